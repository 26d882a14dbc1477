"""Who gets pages when few are free."""

import dataclasses
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_model import SETTINGS, host_stream, page_engine
from typed import present

from azr_jax import types
from azr_jax.rollout.build import shapes_of
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.host_engine import HostEngine
from azr_jax.rollout.meter import Meter, RequestMeter
from azr_jax.rollout.page_pool import CachedTokens, PagePool
from azr_jax.rollout.preemption import PageAllocator
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.sequence_stages import Stages
from azr_jax.rollout.slots import SlotTable
from azr_jax.rollout.stream import SampleKey
from azr_jax.rollout.tokens import DecodedCall

TOKENS = 4
PROMPT = types.Prompt("", tuple(range(1, 17)))


def made(pool, slots=2, note=lambda sequence: None):
  """Returns stages, slots and allocator of a pool."""
  settings = dataclasses.replace(SETTINGS, slots=slots, page_size=TOKENS)
  shapes = shapes_of(settings, devices=len(pool._free))
  stages = Stages((16,))
  engine = cast(Engine, HostEngine(shapes))
  table = SlotTable(engine, stages, RequestMeter(Meter()))
  allocator = PageAllocator(*(pool, stages, table, settings.decode_chunk), note)
  return stages, table, allocator


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
  pool = PagePool(2, num_pages, TOKENS)
  stages, slots, allocator = made(pool, slots=12)
  free, growing = slots.free(), 0
  for device, has, more in running:
    prompt = types.Prompt("", (1,) * has)
    # The last token is not cached.
    request = Request(0, prompt, 1, more + 1, np.zeros(2, np.uint32), 0)
    cached = CachedTokens(device)
    sequence = SequenceState(request, 0, cached=cached)
    if pool.allocate(cached, has):
      slots.enter(free[device].pop(), sequence)
      pages = len(cached.pages)
      growing += device == 0 and -(-(has + more) // TOKENS) > pages
  pages, free, new = -(-wanted // TOKENS), pool.num_free(0), CachedTokens(0)
  is_enough = pages == 0 or pages + growing <= free
  assert allocator.allocate(new, wanted) == is_enough
  assert len(new.pages) == (pages if is_enough else 0)


@pytest.mark.parametrize("slots", [2, 3])
def test_the_step_that_the_update_waits_for_keeps_its_pages(slots):
  """A sequence of step 1 arrives while two of step 2 decode in all pages.

  With three slots all decode; with two its prompt is prefilled ahead of time.
  """
  settings = dataclasses.replace(
    SETTINGS, slots=slots, max_tokens=24, page_size=TOKENS
  )
  # 15 pages: the longest sequence has 10, so there is room for one and a half.
  stream = host_stream(page_engine(settings, num_pages=15), settings)
  ended, decoding = [], []

  def submit(step, n):
    prompt = types.Prompt("", (step,) * 16)  # The steps share no page.
    key = SampleKey(np.zeros(2, np.uint32), 0)
    for future in stream.submit(prompt, n, key, priority=(step, 0))[1]:
      future.add_done_callback(
        lambda done: ended.append((step, len(done.result().token_ids)))
      )

  submit(2, 2)
  while not stream.is_empty:
    if stream.send():
      decoding.append([s.request.priority[0] for s in stream.decoding])
      stream.fetch()
    if len(decoding) == 1:
      submit(1, 1)
  assert ended == [(1, 24), (2, 24), (2, 24)]
  # Step 1 keeps its slot until it has ended, and step 2 leaves its own.
  calls = [number for number, steps in enumerate(decoding) if 1 in steps]
  assert len(calls) == 24 // settings.decode_chunk == 1 + calls[-1] - calls[0]
  assert decoding[0] == [2, 2]
  assert any(2 not in decoding[call] for call in calls)


def holding(pool, step):
  """Returns a sequence of a step that holds two pages."""
  request = Request(0, PROMPT, 1, 9, np.zeros(2, np.uint32), 0, 1.0, (step, 0))
  sequence = SequenceState(request, 0, cached=CachedTokens(0))
  assert pool.allocate(sequence.cached, 2 * TOKENS)
  return sequence


@pytest.mark.parametrize("steps", [(1, 2), (2, 1), (1, 1)])
def test_the_last_step_gives_pages_up_first_while_it_waits_for_tools(steps):
  pool = PagePool(1, 4, TOKENS)
  stages, _, allocator = made(pool)
  stages.awaiting_tools = [holding(pool, step) for step in steps]
  assert allocator.allocate(CachedTokens(0), 1)
  kept = [bool(one.cached) for one in stages.awaiting_tools]
  # Within a step, the one that has waited least gives up its pages.
  assert kept == ([False, True] if steps == (2, 1) else [True, False])


def test_a_sequence_is_noted_with_the_pages_that_it_wrote():
  """Pages that are known for the same tokens may hold other experts."""
  pool, noted = PagePool(1, 4, TOKENS), {}
  stages, _, allocator = made(
    pool, note=lambda one: noted.setdefault(one, [*one.cached.pages])
  )
  stages.awaiting_tools = [holding(pool, 1), holding(pool, 1)]
  wrote = {}
  for one in stages.awaiting_tools:
    present(one.cached).count = 2 * TOKENS
    wrote[one] = [*present(one.cached).pages]
  # The second one's pages become known, and the first one switches to them.
  assert allocator.allocate(CachedTokens(0), 3 * TOKENS)
  assert noted == wrote


@pytest.mark.parametrize("steps", [(1, 2), (2, 1), (1, 1)])
def test_the_first_step_keeps_pages_to_decode_where_nothing_does(steps):
  pool = PagePool(1, 4, TOKENS)
  stages, _, allocator = made(pool)
  stages.resuming = [holding(pool, step) for step in steps]
  assert allocator.free_some() and not allocator.free_some()
  assert [one.request.priority[0] for one in stages.resuming] == [1]
  assert stages.queue.num_sequences == 1


@pytest.mark.parametrize("slots", [(0, 1), (1, 0)])
def test_the_sequence_that_started_last_gives_its_pages_up(slots):
  """Both need another page, and one is free."""
  pool = PagePool(1, 5, TOKENS)
  stages, table, allocator = made(pool)
  first, second = holding(pool, 1), holding(pool, 1)
  for slot, sequence in zip(slots, (first, second), strict=True):
    present(sequence.cached).count = 2 * TOKENS
    table.enter(slot, sequence)
  allocator.allocate_running()
  assert [*stages.running] == [first]
  assert len(present(first.cached).pages) == 3
  assert second.cached is None and stages.queue.num_sequences == 1
  assert table.occupied[slots[0]] and not table.occupied[slots[1]]


def test_a_sequence_grows_until_it_has_the_pages_of_its_last_token():
  pool = PagePool(1, 9, TOKENS)
  _, table, allocator = made(pool)
  sequence, held = holding(pool, 1), []
  cached = present(sequence.cached)
  cached.count = 2 * TOKENS
  ids, counts = np.zeros((2, 3), np.int32), np.array([0, 3], np.int32)
  call = DecodedCall(ids, np.zeros((2, 3), np.float32), counts, 0)
  table.enter(1, sequence)
  for _ in range(6):
    allocator.allocate_running()
    held.append((len(cached.pages), table.num_growing(0)))
    table.add_tokens(dataclasses.replace(call, following=None))
  # It has 8 to 24 tokens cached, and room for three more before each call.
  assert held == [(3, 1), (4, 1), (5, 1), (5, 1), (6, 0), (6, 0)]
  table.leave(sequence)
  assert cached.count == 2 * TOKENS + 6 * 3


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_page_that_was_never_copied_has_no_cached_tokens(is_waiting):
  """A sequence enters with a shared prompt of six tokens, and leaves."""
  pool = PagePool(1, 4, TOKENS)
  _, slots, _ = made(pool)
  prompt = types.Prompt("", (1,) * 6)
  request = Request(0, prompt, 1, 8, np.zeros(2, np.uint32), 0)
  cached = CachedTokens(0)
  assert pool.allocate(cached, 6)
  cached.count = 6
  sequence = SequenceState(request, 0, cached=cached)
  slots.enter(0, sequence)
  if is_waiting:
    slots.changes.copy(sequence, 3, cached.pages[1])
  slots.leave(sequence)
  assert cached.count == (TOKENS if is_waiting else 6)
