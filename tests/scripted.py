"""Policies of tests, whose completions a function writes."""

import functools

from azr_jax.rollout.event_loop import Awaited, EventLoop


class Policy:
  """The part of a policy that runs coroutines."""

  @functools.cached_property
  def loop(self):
    return EventLoop()

  async def gather(self, coroutines):
    futures = [self.loop.spawn(coroutine) for coroutine in coroutines]
    return [await Awaited(future) for future in futures]


class _Samples:
  """Samples for `for` and `async for`."""

  def __init__(self, generate):
    self._generate = generate

  def __iter__(self):
    return self._generate()

  async def __aiter__(self):
    for sample in self._generate():
      yield sample


def samples(generate):
  """Makes a generator of samples what `Policy.sample` returns."""

  @functools.wraps(generate)
  def sample(*args, **options):
    return _Samples(functools.partial(generate, *args, **options))

  return sample


def collect(system, policy, step):
  """Plays a step of a system; returns its rollouts."""
  return policy.loop.run(system.collect(policy, step))
