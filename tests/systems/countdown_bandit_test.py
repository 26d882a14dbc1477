"""Countdown with SEC's bandit: gains and exact resume."""

import json

import numpy as np
import pytest
import scripted
from scripted_countdown import (
  CONTEXT,
  PUZZLES,
  SETTINGS,
  ScriptedPolicy,
  pool,
)
from typed import stand_in

from azr_jax import types
from azr_jax.curricula import mixed, replay
from azr_jax.curricula.bandit import Bandit, BanditSettings
from azr_jax.systems import collect
from azr_jax.systems.countdown.settings import CountdownSettings
from azr_jax.systems.countdown.sources import Sources
from azr_jax.systems.countdown.system import Countdown


@pytest.mark.parametrize("skill", range(5))
def test_gains_are_mean_absolute_advantages(skill):
  """With rewards of 0 and 1, 2 sqrt(p (1 - p))."""
  rewards = [1.0] * skill + [0.0] * (4 - skill)
  group = [
    types.Trajectory(stand_in(types.Prompt), stand_in(types.Completion), r, 0)
    for r in rewards
  ]
  rate = skill / 4
  want = 2 * np.sqrt(rate * (1 - rate))
  assert collect.gains([group]) == [pytest.approx(want, abs=1e-5)]


def countdown(**changes):
  """Returns Countdown with the bandit, replay and a second source."""
  items = pool()
  inner = replay.Replay(
    Bandit(items, **vars(BanditSettings())),
    **vars(replay.ReplaySettings(fraction=0.5, warmup_steps=1)),
  )
  second = Bandit(pool(), **vars(BanditSettings(0.1, 0.2)))
  sources = Sources(
    [PUZZLES, PUZZLES],
    items,
    mixed.Mixed(inner, second, 0.25),
  )
  settings = CountdownSettings(**SETTINGS | {"curriculum": "bandit"} | changes)
  return Countdown(settings, CONTEXT, sources)


class Uneven(ScriptedPolicy):
  """Always solves puzzles with some targets, others half of the time."""

  def reply(self, prompt, sample):
    self.skill = 4 if prompt.task.target % 3 else 2
    return super().reply(prompt, sample)


def test_a_resumed_run_asks_the_same_and_has_the_same_metrics():
  whole = countdown()
  for step in range(1, 5):
    scripted.collect(whole, Uneven(), step)
  state = json.loads(json.dumps(whole.state_dict()))
  resumed = countdown()
  resumed.load_state_dict(state)
  batches = []
  for step in range(5, 8):
    policies = Uneven(), Uneven()
    batches = [
      scripted.collect(system, policy, step)
      for system, policy in zip((whole, resumed), policies, strict=True)
    ]
    first, second = ([p.text for p in policy.asked] for policy in policies)
    assert first == second
    assert batches[0].metrics == batches[1].metrics
  assert whole.state_dict() == resumed.state_dict()
  fresh = countdown()
  assert scripted.collect(fresh, Uneven(), 5).metrics != batches[0].metrics
