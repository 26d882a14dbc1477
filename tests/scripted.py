"""Policies for tests, whose completions come from a function."""

import functools
import random
import types
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from azr_jax.rollout.event_loop import Awaited, EventLoop
from azr_jax.rollout.partial_rollouts import PartialRollouts


class Policy:
  """The part of a policy that runs coroutines."""

  partial = PartialRollouts()
  sampler = types.SimpleNamespace(prompt_buckets=(8,))

  @functools.cached_property
  def loop(self):
    return EventLoop()

  async def gather(self, coroutines):
    futures = [self.loop.spawn(coroutine) for coroutine in coroutines]
    return [await Awaited(future) for future in futures]

  async def earlier_steps(self):
    """Returns at once: no step is in flight."""


class Shuffled:
  """Jobs that finish one at a time, in a random order."""

  def __init__(self, seed=0):
    self._random = random.Random(seed)
    self._futures = []

  @property
  def pending(self):
    return len(self._futures)

  def submit(self, value):
    """Returns an awaitable of a value."""
    future = Future()
    self._futures.append((future, value))
    return Awaited(future, self)

  def poll(self, wait):
    if wait and self._futures:
      number = self._random.randrange(len(self._futures))
      future, value = self._futures.pop(number)
      future.set_result(value)


class _Samples:
  """Samples for `for` and `async for`."""

  def __init__(self, generate):
    self._generate = generate

  def __iter__(self):
    return self._generate()

  async def __aiter__(self):
    for sample in self._generate():
      yield sample


def samples(generate) -> Callable[..., Any]:
  """Wraps a generator of samples to act like the result of `Policy.sample`."""

  @functools.wraps(generate)
  def sample(*args, **options):
    return _Samples(functools.partial(generate, *args, **options))

  return sample


class Arrivals:
  """Jobs of an event loop. A random one finishes in each round."""

  def __init__(self, seed):
    self._rng = random.Random(seed)
    self._waiting = []

  @property
  def pending(self):
    return len(self._waiting)

  def poll(self, wait):
    del wait
    if self._waiting:
      index = self._rng.randrange(len(self._waiting))
      self._waiting.pop(index).set_result(None)

  async def come(self):
    future = Future()
    self._waiting.append(future)
    await Awaited(future, self)

  def delay(self, sample):
    """Makes the completions of `Policy.sample` arrive in a random order."""

    async def delayed(*args, **options):
      every = [one async for one in sample(*args, **options)]
      self._rng.shuffle(every)
      for one in every:
        await self.come()
        yield one

    return delayed


def collect(system, policy, step):
  """Runs a step of a system and returns its rollouts."""
  return policy.loop.run(system.collect(policy, step))
