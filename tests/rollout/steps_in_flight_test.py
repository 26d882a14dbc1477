"""Concurrent steps in flight, with a small real model."""

import json

import numpy as np
import pytest
from played_steps import STEPS, Maker, Refilled, plain, play
from rollout_model import TEXTS

from azr_jax import types
from azr_jax.executor import futures
from azr_jax.rollout.event_loop import Awaited
from azr_jax.systems.system import System
from azr_jax.trainer.steps_in_flight import IN_FLIGHT


class Chain(System):
  """Samples each text; a verdict on it decides which text comes next.

  Its state is the sum of each step's tokens, and a step's prompts depend on it.
  """

  name = "chain"

  def __init__(self, jobs):
    self.jobs = jobs
    self.sums = {}
    self.begun = []

  async def collect(self, policy, step):
    known = sum(self.sums.values())
    self.begun.append((step, sorted(self.sums)))
    every = await policy.gather(
      self._play(policy, number, known) for number in range(5)
    )
    await policy.earlier_steps()
    trajectories = [one for group in every for one in group]
    tokens = [t.completion.token_ids.sum() for t in trajectories]
    self.sums[step] = int(sum(tokens))
    return types.RolloutBatch(trajectories, {"tokens": self.sums[step]})

  async def _play(self, policy, number, known):
    trajectories = []
    for turn in range(2):
      text = TEXTS[(number + known) % len(TEXTS)]
      prompt = policy.prompt(text)
      limit = 20 if number == 0 else 2 + (number + known) % 5
      samples = policy.sample(
        [prompt],
        2,
        prompt_numbers=[number],
        call=turn,
        max_new_tokens=[limit],
      )
      done = sorted([one async for one in samples], key=lambda one: one[1])
      for _, _, completion in done:
        trajectories.append(types.Trajectory(prompt, completion, 0.0, number))
        total = int(completion.token_ids.sum())
        verdict = self.jobs.submit(lambda _, total=total: futures.done(total))
        known += await Awaited(verdict, self.jobs)
    return trajectories

  def state_dict(self):
    return {"sums": {str(step): n for step, n in self.sums.items()}}

  def load_state_dict(self, state):
    self.sums = {int(step): n for step, n in state["sums"].items()}


@pytest.fixture(name="make", scope="module")
def make_steps(params, one_device_mesh):
  return Maker(params, one_device_mesh)


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_no_token_is_older_than_is_allowed(make, staleness):
  system, batches, states = make.whole(staleness, Chain)
  oldest = [
    step - 1 - int(t.completion.versions.min())
    for step, batch in enumerate(batches, 1)
    for t in batch.trajectories
  ]
  assert min(oldest) >= 0 and max(oldest) == staleness
  for step, known in system.begun:
    assert known == list(range(1, len(known) + 1))
    assert step - 1 - staleness <= len(known) <= step - 1
  under_way = [IN_FLIGHT in json.loads(state) for state in states]
  assert any(under_way) == (staleness > 0) and not under_way[-1]


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(make, staleness):
  _, batches, states = make.whole(staleness, Chain)
  again, _ = play(make, make(staleness, Chain)[1])
  assert plain(again) == plain(batches)
  for step in range(1, STEPS):
    _, steps = make(staleness, Chain)
    steps.load_state_dict(json.loads(states[step - 1]))
    resumed, last = play(make, steps, first=step + 1)
    assert plain(resumed) == plain(batches[step:])
    assert last[-1] == states[-1]


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_killed_run_replaces_the_prompts_that_it_would_have(make, staleness):
  system, batches, states = make.whole(staleness, Refilled)
  metrics = [batch.metrics for batch in batches]
  assert sum(one["dynamic_sampling/x/sampled"] for one in metrics) > 4 * STEPS
  # No step samples a prompt of another one, even where they overlap.
  order = json.loads(states[-1])["order"]
  assert sorted(system.asked + order["returned"]) == list(range(order["next"]))
  for step in range(1, STEPS):
    _, steps = make(staleness, Refilled)
    steps.load_state_dict(json.loads(states[step - 1]))
    resumed, last = play(make, steps, first=step + 1)
    assert plain(resumed) == plain(batches[step:])
    assert [batch.metrics for batch in resumed] == metrics[step:]
    assert last[-1] == states[-1]


def test_stale_tokens_have_the_logprobs_they_were_sampled_with(make, params):
  """Later parameters prefill the sequences again and continue them."""
  # With few slots, updates find sequences of the next step half done.
  _, batches, _ = make.whole(1, Chain, slots=4)
  mixed = [
    t.completion
    for batch in batches
    for t in batch.trajectories
    if len({*t.completion.versions.tolist()}) > 1
  ]
  assert mixed
  for completion in mixed:
    assert (np.diff(completion.versions) >= 0).all()
    assert (completion.logprobs < 0).all()


class Uneven(System):
  """A long step and a short one in turn. Its state is the steps so far."""

  name = "uneven"

  def __init__(self, jobs):
    self.jobs = jobs
    self.ended = []

  async def collect(self, policy, step):
    prompt = policy.prompt("a")
    limit = [20 if step % 2 else 2]
    samples = policy.sample([prompt], 2, max_new_tokens=limit)
    done = [one async for one in samples]
    await policy.earlier_steps()
    self.ended.append(step)
    trajectories = [types.Trajectory(prompt, c, 0.0, 0) for _, _, c in done]
    return types.RolloutBatch(trajectories, {"ended": len(self.ended)})

  def state_dict(self):
    return {"ended": list(self.ended)}

  def load_state_dict(self, state):
    self.ended = list(state["ended"])


def test_steps_change_the_state_in_order(make):
  """Step 2 has all its samples before step 1."""
  _, batches, states = make.whole(1, Uneven)
  ended = [json.loads(state)["ended"] for state in states]
  assert ended == [list(range(1, step + 1)) for step in range(1, STEPS + 1)]
  assert [batch.metrics["ended"] for batch in batches] == [*range(1, STEPS + 1)]
  in_flight = json.loads(states[0])[IN_FLIGHT]["steps"]
  assert [len(step["sequences"]) for step in in_flight] == [2]
  _, steps = make(1, Uneven)
  steps.load_state_dict(json.loads(states[0]))
  resumed, last = play(make, steps, first=2)
  assert plain(resumed) == plain(batches[1:])
  assert [batch.metrics["ended"] for batch in resumed] == [2, 3, 4, 5]
  assert last[-1] == states[-1]


class Reporting(Chain):
  """Has jobs of its own, whose waits it reports."""

  async def collect(self, policy, step):
    batch = await super().collect(policy, step)
    batch.metrics["time/verdict_wait"] = 5.0
    return batch


def test_a_system_may_report_the_wait_for_its_own_jobs(make):
  system, steps = make(0, Reporting)
  system.jobs.metrics = lambda: {"time/verdict_wait": 0.0, "executor/ok": 2.0}
  [batch], _ = play(make, steps, last=1)
  assert batch.metrics["time/verdict_wait"] == 5.0
  assert batch.metrics["executor/ok"] == 2.0
