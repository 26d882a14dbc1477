"""The meter's counts against counts by hand."""

import numpy as np
from rollout_model import policy

from azr_jax.rollout.meter import Counts, Meter, RequestMeter


class Result:
  """An array that is ready when the test says so."""

  def __init__(self):
    self.done = False

  def is_ready(self):
    return self.done


def metered():
  """Returns a meter, a request's meter, and the clock as a list."""
  clock = [0.0]
  meter = Meter(now=lambda: clock[0])
  return meter, RequestMeter(meter), clock


def test_a_call_that_ran_alone_is_timed_until_it_was_seen_to_be_done():
  meter, request, clock = metered()
  result = Result()
  clock[0] = 10.0
  request.record_decode_dispatch()
  clock[0] = 11.0
  request.check_ready(result)
  result.done, clock[0] = True, 12.0
  request.check_ready(result)
  clock[0] = 13.0
  request.check_ready(result)
  # Slots had 5, 7 and 0 cache entries and got 2, 3 and 0 tokens.
  request.fetched(np.array([2, 3, 0]), np.array([2, 3, 0]), np.array([5, 7, 0]))
  entries = (5 + 6) + (7 + 8 + 9)
  assert meter.counts == Counts(
    calls=1,
    iterations=3,
    slot_steps=9,
    live_slot_steps=5,
    decoded=5,
    alone_s=2.0,
    alone_steps=3,
    alone_entries=entries,
  )
  assert meter.busy == [(10.0, 12.0)]


def test_a_call_after_another_program_is_busy_but_not_timed():
  meter, request, clock = metered()
  clock[0] = 1.0
  request.record_dispatch()
  clock[0] = 2.0
  request.record_decode_dispatch()
  clock[0] = 5.0
  request.fetched(np.array([1]), np.array([1]), np.array([4]))
  assert meter.counts == Counts(
    calls=1, iterations=1, slot_steps=1, live_slot_steps=1, decoded=1
  )
  assert meter.busy == [(1.0, 5.0)]
  request.record_decode_dispatch()
  clock[0] = 6.0
  request.fetched(np.array([1]), np.array([1]), np.array([5]))
  assert meter.counts.alone_s == 1.0 and meter.counts.alone_entries == 5


def test_drafts_take_fewer_iterations_than_tokens():
  meter, request, _ = metered()
  request.record_decode_dispatch()
  request.fetched(
    np.array([9, 3, 0]), np.array([3, 2, 0]), np.array([10, 20, 0])
  )
  assert meter.counts.iterations == 3
  assert meter.counts.live_slot_steps == 5 and meter.counts.decoded == 12
  # Iterations read the cache and, on average, half of the earlier new tokens.
  assert meter.counts.alone_entries == 3 * 10 + 2 * 20 + 12 + 2


def test_what_was_taken_is_not_counted_again():
  meter, request, clock = metered()
  request.ended(7)
  clock[0] = 3.0
  with meter.spanning():
    clock[0] = 4.5
  taken = meter.take()
  assert taken.counts.tokens == 7 and taken.spans == [(3.0, 4.5)]
  assert meter == Meter()
  request.ended(2)
  assert taken.counts.tokens == 7 and meter.counts.tokens == 2


def test_a_sampler_counts_its_slots_and_cache_entries(params, one_device_mesh):
  """Four samples of a 5-token prompt fill four slots, to 10 tokens each.

  Each call runs 3 steps; the first call follows the prompt's prefill.
  """
  sampling = policy(params, one_device_mesh)
  meter = sampling.sampler.meter
  meter.take()
  samples = list(sampling.sample([sampling.prompt("hello")], n=4))
  assert {len(completion.token_ids) for _, _, completion in samples} == {10}
  taken = meter.take()
  assert taken.counts.tokens == taken.counts.live_slot_steps == 40
  assert taken.counts.slot_steps == 40
  assert taken.counts.alone_steps == 7
  assert taken.counts.alone_entries == 4 * sum(range(4 + 3, 4 + 10))
  assert taken.counts.alone_s > 0
  [(start, end)] = taken.spans
  assert len(taken.busy) == 4
  assert all(start <= a <= b <= end for a, b in taken.busy)
