"""The Countdown step with a scripted policy: draws, rewards, closed loop."""

import collections
import dataclasses
import json
import re

import numpy as np
import pytest
import scripted
from scripted_countdown import (
  CONTEXT,
  PUZZLES,
  SETTINGS,
  ScriptedPolicy,
  pool,
  training_puzzle,
)
from typed import present

from azr_jax.curricula import adaptive, mixed, mixture
from azr_jax.curricula.curriculum import Buckets
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.learner import advantages
from azr_jax.systems.countdown.settings import CountdownSettings
from azr_jax.systems.countdown.sources import PROPOSED, Sources
from azr_jax.systems.countdown.system import Countdown
from azr_jax.tasks import templates
from azr_jax.tasks.countdown import difficulty, generator, prompts

HELD_OUT = next(p for p, _ in generator.generate(0, 1, test=True))
ADAPTIVE = adaptive.AdaptiveSettings(warmup_steps=2)


def uniform(**changes):
  items = pool()
  curriculum = mixture.Mixture(items, mixture.proportional(items))
  settings = CountdownSettings(**(SETTINGS | changes))
  return Countdown(settings, CONTEXT, Sources([PUZZLES], items, curriculum))


def closed_loop(context=CONTEXT):
  items = pool((*difficulty.BUCKETS, PROPOSED))
  settings = CountdownSettings(
    **(SETTINGS | {"proposals": 8, "curriculum": "adaptive"})
  )
  sources = Sources(
    [PUZZLES], items, adaptive.Adaptive(items, **vars(ADAPTIVE))
  )
  return Countdown(settings, context, sources)


def groups_of(trajectories):
  groups = collections.defaultdict(list)
  for trajectory in trajectories:
    groups[trajectory.group_id].append(trajectory.reward)
  return groups


def test_a_step_has_a_group_for_each_prompt_and_all_three_rewards():
  collected = scripted.collect(uniform(), ScriptedPolicy(), 1)
  groups = groups_of(collected.trajectories)
  assert len(groups) == 8
  assert all(rewards == [1.0, 1.0, 0.1, 0.0] for rewards in groups.values())
  assert collected.metrics["correct/countdown/solve/mean"] == 0.5
  assert collected.metrics["formatted/countdown/solve/mean"] == 0.75
  assert collected.metrics["groups/countdown/equal_fraction"] == 0.0
  probabilities = [
    v for k, v in collected.metrics.items() if "curriculum/probability" in k
  ]
  assert sum(probabilities) == pytest.approx(1)


def test_groups_of_equal_rewards_have_zero_advantages():
  collected = scripted.collect(uniform(), ScriptedPolicy(skill=4), 1)
  assert collected.metrics["groups/countdown/equal_fraction"] == 1.0
  estimates = advantages.estimate(
    "rloo",
    [t.reward for t in collected.trajectories],
    [t.group_id for t in collected.trajectories],
    [1] * len(collected.trajectories),
  )
  np.testing.assert_array_equal(estimates, 0)


def test_the_same_step_asks_the_same_puzzles():
  asked = []
  for _ in range(2):
    policy = ScriptedPolicy()
    scripted.collect(uniform(), policy, 5)
    asked.append([prompt.text for prompt in policy.asked])
  assert asked[0] == asked[1]


def test_mixing_draws_half_from_the_second_source():
  items, made = pool(), Buckets(difficulty.BUCKETS, [0, 1, 2])
  second = [Puzzle((60, 5, index + 1), 66 + index) for index in range(3)]
  curriculum = mixed.Mixed(
    mixture.Mixture(items, mixture.proportional(items)),
    mixture.Mixture(made, mixture.proportional(made)),
    0.5,
  )
  policy = ScriptedPolicy()
  scripted.collect(
    Countdown(
      CountdownSettings(**SETTINGS),
      CONTEXT,
      Sources([PUZZLES, second], items, curriculum),
    ),
    policy,
    1,
  )
  tasks = [prompt.task for prompt in policy.asked]
  assert sum(task in second for task in tasks) == 4
  assert sum(task in PUZZLES for task in tasks) == 4


def test_a_closed_loop_begins_by_proposing_within_the_budget():
  system, policy = closed_loop(), ScriptedPolicy()
  collected = scripted.collect(system, policy, 1)
  groups = groups_of(collected.trajectories)
  proposed = groups.pop(("propose", 1))
  # Two of eight proposals are invalid; half of the answers to the others are
  # correct.
  assert sorted(proposed) == [-0.5] * 2 + [0.5] * 6
  # As many completions as without proposals: 8 x 4.
  assert len(collected.trajectories) == 32
  assert present(Countdown.about(system.settings).load).trained == 32
  assert collected.metrics["proposals/countdown/valid_fraction"] == 0.75
  assert collected.metrics["buffer/countdown/proposed/size"] == 6
  assert collected.metrics["learnability/countdown/mean"] == 0.5
  # The policy solves the puzzles that it proposed.
  proposed_puzzles = {training_puzzle(number) for number in (1, 2, 3, 5, 6, 7)}
  assert proposed_puzzles <= {p.task for p in policy.asked}


@pytest.mark.parametrize("skill, reward", [(0, 0.0), (1, 0.75), (4, 0.0)])
def test_a_proposal_is_rewarded_for_being_learnable(skill, reward):
  collected = scripted.collect(closed_loop(), ScriptedPolicy(skill), 1)
  valid = [
    t.reward
    for t in collected.trajectories
    if t.group_id[0] == "propose" and t.metrics["valid"]
  ]
  assert valid == [reward] * 6


def test_both_roles_are_asked_in_a_user_s_words(tmp_path):
  (tmp_path / "countdown_solve.txt").write_text("Reach {TARGET}: {NUMBERS}.")
  (tmp_path / "countdown_propose.txt").write_text("propose\n{REFERENCES}")
  read = templates.read(str(tmp_path), prompts.FILES)
  system = closed_loop(dataclasses.replace(CONTEXT, templates=read))
  collected = scripted.collect(system, ScriptedPolicy(), 1)
  asked = {t.prompt.text for t in collected.trajectories}
  proposals = {text for text in asked if text.startswith("propose\n[")}
  solved = asked - proposals
  assert proposals and solved
  for text in solved:
    assert re.fullmatch(r"Reach \d+: ( ?\d+)+\.", text.replace("  ", " "))


def test_a_known_unsolvable_or_held_out_puzzle_is_refused():
  class Repeating(ScriptedPolicy):
    def reply(self, prompt, sample):
      if not prompt.text.startswith("propose"):
        return super().reply(prompt, sample)
      self.made += 1
      texts = {
        1: "[1 20 30] 51",
        2: "[1 1 1] 99",
        3: "[100 1 1] 102",
        4: prompts.puzzle_line(HELD_OUT),
      }
      return prompts.format_response("", texts.get(self.made, "[7 50 2] 59"))

  collected = scripted.collect(closed_loop(), Repeating(), 1)
  said = {t.feedback for t in collected.trajectories}
  assert "Rejected: The puzzle exists already." in said
  rejected = {
    name.partition("/rejected_")[2]: count
    for name, count in collected.metrics.items()
    if "/rejected_" in name
  }
  assert rejected == {
    "known": 4.0,
    "unsolvable": 1.0,
    "range": 1.0,
    "held_out": 1.0,
  }


def test_state_goes_through_json_and_continues_alike():
  whole = closed_loop()
  policy = ScriptedPolicy()
  for step in range(1, 6):
    scripted.collect(whole, policy, step)
  state = json.loads(json.dumps(whole.state_dict()))
  resumed = closed_loop()
  resumed.load_state_dict(state)
  assert resumed.state_dict() == whole.state_dict()
  assert closed_loop().state_dict() != whole.state_dict()
  for step in range(6, 11):
    asked = []
    for system in (whole, resumed):
      policy = ScriptedPolicy()
      policy.made = 100 * step
      scripted.collect(system, policy, step)
      asked.append([prompt.text for prompt in policy.asked])
    assert asked[0] == asked[1]
