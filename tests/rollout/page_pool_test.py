"""The page pool against a model made of sets."""

import collections

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azr_jax.rollout.page_pool import CachedTokens, PagePool

PAGES, TOKENS = 12, 4
OPERATIONS = st.lists(
  st.tuples(
    st.sampled_from(["new", "grow", "share", "release"]),
    st.integers(0, 5),
    st.integers(0, 30),
    st.integers(0, 3),
  ),
  max_size=60,
)


@settings(max_examples=200)
@given(OPERATIONS)
def test_a_page_is_free_or_has_as_many_users_as_hold_it(operations):
  pool = PagePool(2, PAGES, TOKENS)
  held = []
  for name, which, tokens, spare in operations:
    one = held[which % len(held)] if held else None
    if name == "new" or one is None:
      held.append(CachedTokens(which % 2))
    elif name == "grow":
      free, before = pool.num_free(one.device), list(one.pages)
      missing = max(0, -(-tokens // TOKENS) - len(before))
      enough = missing == 0 or missing + spare <= free
      assert pool.allocate(one, tokens, spare) == enough
      assert one.pages[: len(before)] == before
      assert len(one.pages) == len(before) + enough * missing
      one.count = min(max(one.count, tokens), len(one.pages) * TOKENS)
    elif name == "share":
      shared = pool.share(one)
      assert shared.pages == one.pages[: one.count // TOKENS]
      assert shared.count == len(shared.pages) * TOKENS
      held.append(shared)
    else:
      pool.release(one)
      assert (one.pages, one.count) == ([], 0)
    for device in range(2):
      users = collections.Counter(
        page for one in held if one.device == device for page in one.pages
      )
      assert pool.num_free(device) == PAGES - len(users)


KNOWN_OPERATIONS = st.lists(
  st.tuples(
    st.sampled_from(["begin", "grow", "remember", "share", "release"]),
    st.integers(0, 5),
    st.lists(st.integers(0, 1), max_size=14),
  ),
  max_size=60,
)


@settings(max_examples=300)
@given(KNOWN_OPERATIONS)
def test_a_known_page_holds_the_tokens_that_it_is_known_by(operations):
  """Tokens are 0 or 1 and pages hold two, so many prefixes coincide."""
  pool, held, written = PagePool(1, PAGES, 2), [], {}
  for name, which, tokens in operations:
    one, ids = held[which % len(held)] if held else (None, [])
    if name == "begin" or one is None:
      known = pool.share_known(0, tokens)
      assert [known.count] == pool.num_known([0], tokens)
      assert known.count == 2 * len(known.pages)
      at = range(0, known.count, 2)
      assert [written[page] for page in known.pages] == [
        tokens[i : i + 2] for i in at
      ]
      held.append((known, tokens[: known.count]))
    elif name == "grow":
      total = one.count + len(tokens)
      # New tokens go to unshared pages, or to free space in a page.
      alone = (
        one.count % 2 == 0
        or sum(one.pages[one.count // 2] in other.pages for other, _ in held)
        == 1
      )
      if alone and pool.allocate(one, total):
        ids += tokens
        one.count = total
        for number, page in enumerate(one.pages):
          written[page] = ids[2 * number : 2 * number + 2]
    elif name == "remember":
      pool.remember(one, ids)
      assert pool.num_known([0], ids) == [one.count // 2 * 2]
    elif name == "share":
      shared = pool.share(one)
      held.append((shared, ids[: shared.count]))
    else:
      pool.release(one)
      held.remove((one, ids))
    users = collections.Counter(p for one, _ in held for p in one.pages)
    assert pool.num_free(0) == PAGES - len(users)
    for other, ids in held:
      full = other.count // 2
      assert [written[page] for page in other.pages[:full]] == [
        ids[i : i + 2] for i in range(0, 2 * full, 2)
      ]


def test_pages_released_long_ago_are_taken_first():
  pool = PagePool(1, 5, 1)
  old, new = CachedTokens(0), CachedTokens(0)
  for cached, ids in ((old, [7, 8]), (new, [7, 9])):
    assert pool.allocate(cached, 2)
    cached.count = 2
    pool.remember(cached, ids)
  # The second cache switched to the known page and released its own.
  assert (old.pages, new.pages) == ([0, 1], [0, 3]) and pool.num_free(0) == 2
  pool.release(old)
  pool.release(new)
  taken, known = CachedTokens(0), []
  for count in range(2, 6):
    assert pool.allocate(taken, count)
    known.append([*pool.num_known([0], [7, 8]), *pool.num_known([0], [7, 9])])
  assert known == [[2, 2], [1, 2], [1, 1], [0, 0]]
  assert taken.pages == [2, 4, 1, 3, 0] and not pool.allocate(taken, 6)


def test_equal_hashes_are_not_equal_tokens():
  assert hash((-1,)) == hash((-2,))
  pool, cached = PagePool(1, 2, 1), CachedTokens(0)
  assert pool.allocate(cached, 1)
  cached.count = 1
  pool.remember(cached, (-1,))
  assert pool.num_known([0], (-1,)) == [1]
  assert pool.num_known([0], (-2,)) == [0]


def test_the_smallest_free_page_is_taken_first():
  pool = PagePool(1, 4, TOKENS)
  first, second = CachedTokens(0), CachedTokens(0)
  assert pool.allocate(first, 5) and first.pages == [0, 1]
  assert pool.allocate(second, 1) and second.pages == [2]
  pool.release(first)
  assert pool.allocate(second, 9) and second.pages == [2, 0, 1]


@pytest.mark.parametrize("tokens, pages", [(0, 0), (1, 1), (4, 1), (5, 2)])
def test_pages_are_rounded_up(tokens, pages):
  assert PagePool(1, 1, TOKENS).pages_for(tokens) == pages
