"""The pages of a pool, against sets."""

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


@settings(deadline=None, max_examples=200)
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
