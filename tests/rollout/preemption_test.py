"""Who gets pages where few are free."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from azr_jax.rollout.page_pool import CachedTokens, PagePool
from azr_jax.rollout.preemption import PageAllocator

TOKENS = 4


@given(
  running=st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 8), st.integers(0, 12)),
    max_size=6,
  ),
  wanted=st.integers(0, 16),
  num_pages=st.integers(2, 14),
)
def test_a_page_stays_free_for_each_sequence_that_will_need_one(
  running, wanted, num_pages
):
  pool, sequences = PagePool(2, num_pages, TOKENS), []
  for device, has, more in running:
    cached = CachedTokens(device)
    if pool.allocate(cached, has):
      sequences.append(SimpleNamespace(cached=cached, max_cached=has + more))
  stages = SimpleNamespace(running=sequences, awaiting_tools=[])
  allocator = PageAllocator(None, pool, stages, None)
  growing = sum(
    -(-one.max_cached // TOKENS) > len(one.cached.pages)
    for one in sequences
    if one.cached.device == 0
  )
  pages, free, new = -(-wanted // TOKENS), pool.num_free(0), CachedTokens(0)
  is_enough = pages == 0 or pages + growing <= free
  assert allocator.allocate(new, wanted) == is_enough
  assert len(new.pages) == (pages if is_enough else 0)
