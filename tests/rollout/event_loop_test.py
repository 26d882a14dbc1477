"""The event loop, without a device."""

from concurrent.futures import Future

import pytest
import scripted

from azr_jax.rollout.event_loop import Awaited, EventLoop


@pytest.mark.parametrize("seed", range(5))
def test_coroutines_run_beside_each_other_and_keep_their_order(seed):
  loop, jobs = EventLoop(), scripted.Shuffled(seed)
  ended = []

  async def one(number):
    first = await jobs.submit(number)
    second = await jobs.submit(10 * number)
    ended.append(number)
    return first + second

  async def every():
    futures = [loop.spawn(one(number)) for number in range(6)]
    return [await Awaited(future) for future in futures]

  assert loop.run(every()) == [11 * number for number in range(6)]
  assert sorted(ended) == list(range(6)) and ended != sorted(ended)


def test_an_error_is_raised_where_it_is_awaited():
  loop = EventLoop()

  async def fails():
    raise KeyError("no such task")

  async def survives():
    with pytest.raises(KeyError, match="no such task"):
      await Awaited(loop.spawn(fails()))
    return "went on"

  assert loop.run(survives()) == "went on"
  with pytest.raises(KeyError):
    loop.run(fails())


def test_an_interrupt_ends_the_loop():
  loop = EventLoop()

  async def interrupted():
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    loop.run(interrupted())


def test_asynchronous_items_come_as_they_are_made():
  loop, jobs = EventLoop(), scripted.Shuffled()

  async def items():
    for number in range(3):
      yield await jobs.submit(number)

  assert [*loop.iterate(items())] == [0, 1, 2]


def test_the_error_of_the_last_coroutine_is_no_deadlock():
  async def fails():
    await Awaited(inner)

  async def refuse():
    raise ValueError("no prompt fits")

  loop = EventLoop()
  inner = loop.spawn(refuse())
  done = loop.spawn(fails())
  while not done.done():
    loop.run_once()
  with pytest.raises(ValueError, match="no prompt fits"):
    done.result()


def test_a_coroutine_that_waits_for_nothing_is_told():
  async def waits():
    await Awaited(Future())

  with pytest.raises(
    RuntimeError, match="deadlock: a coroutine awaits a future"
  ):
    EventLoop().run(waits())
  loop = EventLoop()
  loop.spawn(waits())
  loop.run_once()
  with pytest.raises(RuntimeError, match="deadlock"):
    loop.run_once()
