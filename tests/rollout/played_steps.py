"""Steps of a small real model, run in sequence or concurrently."""

import functools
import json

import jax
from rollout_model import TEXTS, ByteTokenizer, policy
from typed import stand_in

from azr_jax import types
from azr_jax.executor import futures
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.event_loop import Awaited
from azr_jax.systems import dynamic_sampling
from azr_jax.systems.system import System
from azr_jax.trainer.steps_in_flight import StepsInFlight

STEPS = 5


class Refilled(System):
  """Replaces prompts whose responses have equal rewards, in epoch order.

  Its state consists of the epoch position and the sampled positions.
  """

  name = "refilled"
  # The longest response to a position, in turn.
  limits: tuple[int, ...] = (20,)
  temperature = None

  def __init__(self, jobs, max_prompts=4):
    self.jobs = jobs
    self.max_prompts = max_prompts
    self.order = dynamic_sampling.EpochOrder(4, max_prompts)
    self.asked = []

  async def collect(self, policy, step):
    taken = self.order.take(step - 1)
    items = [*taken, *policy.partial.items]
    groups = await dynamic_sampling.sample_groups(
      policy,
      4,
      self.max_prompts,
      lambda number: self._ask(policy, number, items[number]),
      items,
    )
    await policy.earlier_steps()
    self.order.return_unused(taken, groups)
    self.asked += [items[group.prompt_index] for group in groups.sampled]
    kept = [t for group in groups.kept for t in group.trajectories]
    return types.RolloutBatch(kept, groups.metrics("x"))

  async def _ask(self, policy, number, position):
    prompt = policy.prompt(TEXTS[position % len(TEXTS)], position)
    limit = self.limits[position % len(self.limits)]
    samples = policy.sample(
      [prompt],
      2,
      [number],
      None,
      self.temperature,
      call=0,
      max_new_tokens=[limit],
    )
    done = sorted([one async for one in samples], key=lambda one: one[1])
    rewards = [
      await Awaited(
        self.jobs.submit(
          lambda _, c=c: futures.done(float(c.token_ids.sum() % 3 == 0))
        ),
        self.jobs,
      )
      for _, _, c in done
    ]
    return [
      types.Trajectory(prompt, completion, reward, number)
      for (_, _, completion), reward in zip(done, rewards, strict=True)
    ]

  def state_dict(self):
    return {"order": self.order.state_dict(), "asked": list(self.asked)}

  def load_state_dict(self, state):
    self.order.load_state_dict(state["order"])
    self.asked = list(state["asked"])


class Maker:
  """Makes a system and its steps, and the parameters after each update."""

  def __init__(self, params, mesh, growth=0.05):
    self._params, self._mesh = params, mesh
    # Each step adds this fraction of the initial parameters.
    self._growth = growth
    # Sampling takes most of a test's time, so tests share uninterrupted runs.
    self.whole = functools.cache(self._whole)

  def __call__(self, staleness, make_system, **changes):
    # Pages are small, so that prompts share some of them.
    settings = {"max_staleness": 1, "max_tokens": 20, "slots": 8}
    settings |= {"page_size": 4} | changes
    sampler = policy(self._params, self._mesh, **settings).sampler
    jobs = SharedJobs(None, stand_in(Hosts, index=0, count=1), DecodeClock(2))
    jobs.metrics = dict  # There are no hosts.
    system = make_system(jobs)
    steps = StepsInFlight(
      sampler,
      ByteTokenizer(),
      lambda step: jax.random.fold_in(jax.random.key(3), step),
      system,
      jobs,
      staleness,
      settings.get("step_tokens", 0),
      STEPS,
    )
    return system, steps

  def _whole(self, *arguments, **changes):
    """Returns the system, rollouts and states of an uninterrupted run."""
    system, steps = self(*arguments, **changes)
    return system, *play(self, steps)

  def params_before(self, step):
    return jax.tree.map(lambda x: x * (1 + self._growth * step), self._params)


def play(make, steps, first=1, last=STEPS):
  """Returns the rollouts of some steps and the JSON state after each."""
  batches, states = [], []
  for step in range(first, last + 1):
    with steps.sampling(make.params_before(step), step):
      batches.append(steps.collect(step)[0])
    states.append(json.dumps(steps.state_dict()))
  return batches, states


def plain(batches):
  """Returns the comparable parts of rollouts."""
  return [
    [
      (
        t.completion.token_ids.tolist(),
        t.completion.logprobs.tolist(),
        t.completion.versions.tolist(),
      )
      for t in batch.trajectories
    ]
    for batch in batches
  ]
