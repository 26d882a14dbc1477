"""Dynamic sampling: which prompts replace groups without signal.

The cases follow DAPO (arXiv 2503.14476), section 3.2.
"""

import itertools
import json
from typing import Any, cast

import numpy as np
import pytest
import scripted

from azr_jax import types
from azr_jax.config.settings import Invalid, build
from azr_jax.curricula import mixture
from azr_jax.curricula.curriculum import Buckets
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Policy
from azr_jax.systems import dynamic_sampling
from azr_jax.systems.code_interpreter.settings import CodeInterpreterSettings
from azr_jax.systems.countdown.settings import CountdownSettings
from azr_jax.systems.countdown.sources import Sources
from azr_jax.systems.countdown.system import Countdown
from azr_jax.systems.dynamic_sampling import DynamicSamplingSettings, EpochOrder
from azr_jax.systems.orz.settings import ORZSettings
from azr_jax.systems.orz.system import ORZ
from azr_jax.tasks.mathematics import prompts
from azr_jax.tasks.mathematics.problem import Problem

UP_TO_THREE = 3


def completion(text, length):
  return types.Completion(
    np.arange(1, 1 + length, dtype=np.int32),
    np.zeros(length, np.float32),
    np.ones(length, bool),
    "stop",
    text,
  )


def trajectories(number, rewards, length=1):
  return [
    types.Trajectory(
      types.Prompt("", (1,)), completion("", length), reward, ("solve", number)
    )
    for reward in rewards
  ]


def sample_groups(rewards, max_prompts=UP_TO_THREE, batch_size=2):
  """Samples groups from {number: rewards}; responses have `number` tokens."""

  async def ask(number):
    return trajectories(number, rewards[number], number + 1)

  policy = cast(Policy, scripted.Policy())
  return policy.loop.run(
    dynamic_sampling.sample_groups(policy, batch_size, max_prompts, ask)
  )


def numbers(groups):
  return [group.prompt_index for group in groups]


def test_a_place_asks_until_the_rewards_of_a_group_differ():
  groups = sample_groups({0: (1, 0), 1: (1, 1), 3: (0, 0), 5: (0, 1)})
  assert numbers(groups.sampled) == [0, 1, 3, 5]
  assert numbers(groups.kept) == [0, 5]
  assert groups.metrics("x") == {
    "count/x/too_long": 0,
    "dynamic_sampling/x/sampled": 4,
    "dynamic_sampling/x/dropped_fraction": 1 / 2,
    "dynamic_sampling/x/budget_fraction": 2 / 4,
    "dynamic_sampling/x/no_signal_fraction": 0,
    # Two responses each, of 2 and of 4 tokens.
    "dynamic_sampling/x/tokens_per_dropped": (2 * 2 + 2 * 4) / 2,
  }


def test_rewards_that_differ_by_rounding_alone_are_equal():
  groups = sample_groups({0: (0.1 + 0.2, 0.3), 1: (0, 1), 2: (1, 0)})
  assert numbers(groups.kept) == [2, 1]


def test_a_place_keeps_its_last_group_when_its_budget_is_spent():
  groups = sample_groups({0: (1, 1), 2: (1, 1), 4: (0, 0), 1: (0, 1)})
  assert numbers(groups.kept) == [4, 1]
  metrics = groups.metrics("x")
  assert metrics["dynamic_sampling/x/no_signal_fraction"] == 1 / 2
  assert metrics["dynamic_sampling/x/dropped_fraction"] == 2 / 4


def test_a_prompt_that_is_too_long_is_replaced_too():
  groups = sample_groups({0: (), 2: (1, 0), 1: (), 3: (), 5: ()})
  assert numbers(groups.kept) == numbers(groups.sampled) == [2]
  assert groups.metrics("x")["count/x/too_long"] == 4


def test_without_replacements_every_group_stays():
  groups = sample_groups({0: (1, 1), 1: (0, 1)}, max_prompts=1)
  assert numbers(groups.kept) == [0, 1]
  assert set(groups.metrics("x")) == {"count/x/too_long"}


def test_no_place_waits_for_another():
  policy, replaced = scripted.Policy(), scripted.Future()

  async def ask(number):
    if number == 0:  # Finishes once the other index has sampled again.
      await Awaited(replaced)
    if number == 3:
      replaced.set_result(None)
    return trajectories(number, (1, 1) if number == 1 else (0, 1))

  groups = policy.loop.run(
    dynamic_sampling.sample_groups(cast(Policy, policy), 2, UP_TO_THREE, ask)
  )
  assert numbers(groups.kept) == [0, 3]


def test_an_epoch_has_every_position_once():
  order, asked = EpochOrder(2, UP_TO_THREE), []
  rewards = np.random.default_rng(0).integers(2, size=(40, 6, 2)).tolist()
  for step in range(40):
    taken = order.take(step)
    groups = sample_groups(dict(enumerate(rewards[step])))
    asked += [taken[number] for number in numbers(groups.sampled)]
    order.return_unused(taken, groups)
    state = json.loads(json.dumps(order.state_dict()))
    order = EpochOrder(2, UP_TO_THREE)
    order.load_state_dict(state)
  assert len(asked) > 100
  assert sorted(asked + state["returned"]) == list(range(state["next"]))
  assert len(state["returned"]) < 6
  assert order.take(0, epochs_of=2) == list(range(6))


def test_steps_that_overlap_ask_other_positions():
  order = EpochOrder(2, UP_TO_THREE)
  first, second = order.take(0), order.take(1)
  assert first + second == list(range(12))
  order.return_unused(second, sample_groups({0: (0, 1), 1: (0, 1)}))
  order.return_unused(first, sample_groups({0: (0, 1), 1: (1, 1), 3: (0, 1)}))
  assert order.take(2) == [2, 4, 5, 8, 9, 10]


PROBLEMS = [Problem(f"what is {n} + 1", str(n + 1)) for n in range(30)]


class Uneven(scripted.Policy):
  """Answers every third problem both rightly and wrongly, others one way.

  Attributes:
    asked: the prompt numbers in the order in which they were sampled.
    ended: the prompt number of each response, in the order of completion.
  """

  def __init__(self, seed=0):
    self.sample = scripted.Arrivals(seed).delay(self._sample)
    self.asked, self.ended = [], []

  def prompt(self, text, task=None, question=""):
    return types.Prompt(text, (1, 2), task)

  def fits(self, prompt):
    return True

  async def _sample(self, asked, n, prompt_numbers, tool_runner=None, call=0):
    [prompt], [number] = asked, prompt_numbers
    self.asked.append(number)
    for sample in range(n):
      yield 0, sample, completion(self.reply(prompt.task, sample), 3 + number)

  def reply(self, problem, sample):
    kind = PROBLEMS.index(problem) % 3
    is_right = kind == 1 or (kind == 2 and sample == 0)
    answer = problem.answer if is_right else "-1"
    return prompts.format_response("so", answer)


def orz(context, **changes):
  settings = ORZSettings(
    prompts=4,
    group_size=3,
    prompt_format="compact",
    grader="rules",
    dynamic_sampling=DynamicSamplingSettings(max_prompts=4),
    **changes,
  )
  return ORZ(settings, context, [PROBLEMS[:15], PROBLEMS[15:]])


def batch_of(rollouts):
  """Returns a step's trajectories and metrics, without timings."""
  rows = [
    (t.group_id, t.prompt.task, t.reward, t.completion.token_ids.tolist())
    for t in rollouts.trajectories
  ]
  metrics = rollouts.metrics.items()
  return rows, {
    k: v for k, v in metrics if not k.startswith(("time/", "executor/"))
  }


@pytest.mark.parametrize("curriculum", ["epochs", "bandit"])
def test_batches_do_not_depend_on_the_order_of_arrival(context, curriculum):
  batches, states, orders = [], [], []
  for seed in range(4):
    system, policy = orz(context, curriculum=curriculum), Uneven(seed)
    runs = [scripted.collect(system, policy, step) for step in (1, 2, 3)]
    batches.append([batch_of(run) for run in runs])
    states.append(system.state_dict())
    orders.append(policy.asked)
  assert all(batch == batches[0] for batch in batches)
  assert all(state == states[0] for state in states)
  assert any(order != orders[0] for order in orders)
  kept = [t.reward for t in runs[0].trajectories]
  assert np.ptp(np.reshape(kept, (4, 3)), axis=1).sum() >= 3


@pytest.mark.parametrize("curriculum", ["epochs", "bandit"])
def test_a_resumed_run_asks_what_the_whole_run_asks(context, curriculum):
  whole, resumed = (orz(context, curriculum=curriculum) for _ in range(2))
  for step in (1, 2):
    scripted.collect(whole, Uneven(), step)
  resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
  for step in (3, 4):
    runs = [
      batch_of(scripted.collect(one, Uneven(), step))
      for one in (whole, resumed)
    ]
    assert runs[0] == runs[1]
  assert whole.state_dict() == resumed.state_dict()


def test_an_epoch_of_orz_has_every_problem_once(context):
  system, asked = orz(context), []
  for step in range(1, 5):
    seen = []
    policy: Any = Uneven()
    prompt = policy.prompt
    policy.prompt = lambda *a, p=prompt, s=seen: s.append(a[1]) or p(*a)
    scripted.collect(system, policy, step)
    asked += seen
  assert len(asked) > 30
  # Only the returned positions are left of the first epoch.
  missing = set(PROBLEMS) - set(asked)
  assert len(missing) <= len(system.state_dict()["order"]["returned"])
  counts = [asked.count(problem) for problem in PROBLEMS]
  assert max(counts) <= 2


class Recorded(mixture.Mixture):
  """A curriculum that records its updates."""

  def update(self, step, items, pass_rates, gains):
    self.told = [item.index for item in items], list(pass_rates), list(gains)


PUZZLES = [Puzzle((n, 2, 3), n + 5) for n in range(10, 22)]


class Adder(Uneven):
  """Sometimes solves puzzles with an even number, always solves others."""

  def reply(self, problem, sample):
    numbers = list(problem.numbers)
    if numbers[0] % 2 == 0 and sample:
      numbers.reverse()
      return "none"
    return f"<answer>{' + '.join(map(str, numbers))}</answer>"


def test_a_curriculum_is_told_of_groups_that_were_dropped(context):
  buckets = Buckets(("easy", "medium", "hard"), [0, 1, 2] * 4)
  curriculum = Recorded(buckets, mixture.proportional(buckets))
  settings = CountdownSettings(
    prompts=4,
    group_size=4,
    prompt_format="compact",
    dynamic_sampling=DynamicSamplingSettings(max_prompts=5),
  )
  system = Countdown(settings, context, Sources([PUZZLES], buckets, curriculum))
  policy = Adder()
  rollouts = scripted.collect(system, policy, 1)
  told, rates, gains = curriculum.told
  assert len(told) == len(policy.asked) > 4
  is_even = [index % 2 == 0 for index in told]
  assert rates == [1 / 4 if even else 1.0 for even in is_even]
  assert [gain > 0 for gain in gains] == is_even
  metrics = rollouts.metrics
  assert metrics["dynamic_sampling/countdown/sampled"] == len(told)
  groups = itertools.groupby(rollouts.trajectories, lambda t: t.group_id)
  kept = [[t.reward for t in group] for _, group in groups]
  assert len(kept) == 4
  unfilled = sum(len(set(rewards)) == 1 for rewards in kept)
  assert (
    metrics["dynamic_sampling/countdown/no_signal_fraction"] == unfilled / 4
  )


@pytest.mark.parametrize("settings", [ORZSettings, CodeInterpreterSettings])
def test_groups_of_one_cannot_differ(settings):
  values = {"group_size": 1, "dynamic_sampling": {"max_prompts": 2}}
  with pytest.raises(
    Invalid, match=r"expected at least 2 with dynamic_sampling"
  ):
    build(settings, values)
