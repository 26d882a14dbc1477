"""Tests of the scheduling structures against plain scans."""

import dataclasses
import math

from hypothesis import given
from hypothesis import strategies as st

from azr_jax.executor.pool.schedule import Deadlines, FreeSlots, RunQueue

SEEDS = (1, 2)


@dataclasses.dataclass(eq=False)
class Item:
  """A zygote or a run."""

  seed: int
  in_flight: int = 0


@given(st.lists(st.tuples(st.sampled_from([1, 2, None]), st.integers(0))))
def test_slots_of_the_least_busy_zygote_go_first(events):
  zygotes = [Item(seed) for _ in range(3) for seed in SEEDS]
  slots: FreeSlots[Item] = FreeSlots(SEEDS, 2)
  for zygote in zygotes:
    slots.put(zygote, 0)
  for seed, which in events:
    busy = [zygote for zygote in zygotes if zygote.in_flight]
    if seed is None:  # A run ends on some zygote.
      if busy:
        zygote = busy[which % len(busy)]
        zygote.in_flight -= 1
        slots.put(zygote, zygote.in_flight)
      continue
    fit = [z for z in zygotes if seed == z.seed and z.in_flight < 2]
    zygote = slots.take(seed)
    if not fit:
      assert zygote is None
      continue
    assert zygote in fit and zygote.in_flight == min(z.in_flight for z in fit)
    zygote.in_flight += 1
    slots.put(zygote, zygote.in_flight)


def test_a_removed_zygote_is_not_taken():
  slots: FreeSlots[Item] = FreeSlots(SEEDS, 1)
  gone, other = Item(1), Item(1)
  for zygote in (gone, other):
    slots.put(zygote, 0)
  slots.remove(gone)
  slots.remove(gone)
  assert slots.take(2) is None
  assert slots.take(1) is other
  assert slots.take(1) is None


def test_runs_come_in_order_as_far_as_seeds_allow():
  queue: RunQueue[Item] = RunQueue(SEEDS)
  runs = [Item(seed) for seed in (1, 2, 2, 1)]
  for run in runs:
    queue.push(run)
  again = Item(2)
  queue.push_first(again)
  assert len(queue) == 5

  def take(without):
    run = queue.oldest(without)
    if run is not None:
      queue.remove_oldest(run)
    return run

  assert take({1}) is again
  assert take({2}) is runs[0]
  assert take(()) is runs[1]
  assert take(()) is runs[2]
  assert take({1}) is None and take({1, 2}) is None
  assert take(()) is runs[3]
  assert take(()) is None and len(queue) == 0


times = st.sampled_from([1.0, 2.0, 3.0, 5.0, 8.0, math.inf])


@given(st.lists(st.tuples(st.integers(0, 4), times, st.booleans())))
def test_deadlines_are_those_of_a_dict(changes):
  deadlines: Deadlines[int] = Deadlines()
  plain: dict[int, float] = {}
  now = 0.0
  for key, after, passes in changes:
    deadlines.set(key, now + after)
    plain[key] = now + after
    assert deadlines.next() == min(plain.values())
    if passes:
      now += 1.5
      due = sorted(deadlines.take_due(now))
      assert due == sorted(key for key in plain if plain[key] <= now)
      for key in due:
        del plain[key]
    assert deadlines.next() == min(plain.values(), default=math.inf)


def test_to_put_deadlines_off_does_not_fill_the_heap():
  deadlines: Deadlines[int] = Deadlines()
  for time in range(1000):
    for key in range(10):
      deadlines.set(key, 100.0 + time)
      deadlines.set(key, math.inf)
  assert len(deadlines._heap) == 10
