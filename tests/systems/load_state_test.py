"""`load_state_dict` of every system replaces the state."""

import copy
import json
from collections.abc import Callable

import pytest
import scripted_countdown
from letters import Letters
from typed import present, stand_in

from azr_jax.curricula.adaptive import Adaptive, AdaptiveSettings
from azr_jax.curricula.bandit import BanditSettings
from azr_jax.curricula.curriculum import SampledItem
from azr_jax.environments.client import Episodes
from azr_jax.systems import registry
from azr_jax.systems.azr.settings import AZRSettings
from azr_jax.systems.azr.system import AZR
from azr_jax.systems.code_interpreter.settings import CodeInterpreterSettings
from azr_jax.systems.code_interpreter.system import CodeInterpreter
from azr_jax.systems.countdown.settings import CountdownSettings
from azr_jax.systems.countdown.sources import PROPOSED, Sources
from azr_jax.systems.countdown.system import Countdown
from azr_jax.systems.custom.rewards import Rewards
from azr_jax.systems.custom.settings import CustomSettings
from azr_jax.systems.custom.system import Custom
from azr_jax.systems.dynamic_sampling import DynamicSamplingSettings
from azr_jax.systems.environment.settings import EnvironmentSettings
from azr_jax.systems.environment.system import EnvironmentSystem
from azr_jax.systems.orz.settings import ORZSettings
from azr_jax.systems.orz.system import ORZ
from azr_jax.systems.system import System
from azr_jax.tasks.countdown import difficulty
from azr_jax.tasks.mathematics.problem import Problem
from azr_jax.tasks.programs.task import Triplet
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.table.reading import Row

REPLACES = DynamicSamplingSettings(max_prompts=2)


def azr(context):
  system = AZR(AZRSettings(), context)

  def change(step):
    task = Triplet(f"def f(x):\n  return x + {step}", "1", str(1 + step))
    for buffer in system.buffers.values():
      buffer.add(task, step)
    for counts in (
      system._extensions.answers,
      system._extensions.surprise._answered,
    ):
      counts.add("deduction", [task.output])

  return system, change


def countdown(context):
  buckets = scripted_countdown.pool((*difficulty.BUCKETS, PROPOSED))
  settings = CountdownSettings(proposals=8, curriculum="adaptive")
  curriculum = Adaptive(buckets, **vars(AdaptiveSettings()))
  sources = Sources([scripted_countdown.PUZZLES], buckets, curriculum)
  system = Countdown(settings, context, sources)

  def change(step):
    item = system._add(scripted_countdown.training_puzzle(step))
    curriculum.update(step, [item], [0.5], [0.1])

  return system, change


def orz(context):
  problems = [Problem(f"{n} + 1", str(n + 1)) for n in range(20)]
  settings = ORZSettings(
    prompts=2,
    data=("a", "b"),
    curriculum="bandit",
    bandit=BanditSettings(),
    dynamic_sampling=REPLACES,
  )
  system = ORZ(settings, context, [problems[:10], problems[10:]])

  def change(step):
    system._solved[step] = (step, 8)
    system._order.take(step)
    present(system._bandit).update(
      step, [SampledItem(1, 0)], [0.5], [0.1 * step]
    )

  return system, change


def code_interpreter(context):
  questions = [Question(str(n), "gcd", "?", "{}") for n in range(8)]
  settings = CodeInterpreterSettings(prompts=2, dynamic_sampling=REPLACES)
  system = CodeInterpreter(settings, context, questions)

  def change(step):
    system._order.take(step, step)
    system._tool.record_occupancy(step, 1, 8)

  return system, change


def custom(context):
  settings = CustomSettings(
    data="x", reward="y", prompts=2, dynamic_sampling=REPLACES
  )
  rows = [Row(str(n), {}) for n in range(8)]
  system = Custom(settings, context, rows, [], stand_in(Rewards))
  return system, lambda step: system._order.take(step)


def environment(context):
  settings = EnvironmentSettings(prompts=2, dynamic_sampling=REPLACES)
  system = EnvironmentSystem(settings, context, stand_in(Episodes), [])
  return system, lambda step: system._order.take(step)


MAKERS: dict[str, Callable[..., tuple[System, Callable[[int], object]]]] = {
  "azr": azr,
  "countdown": countdown,
  "orz": orz,
  "code_interpreter": code_interpreter,
  "custom": custom,
  "environment": environment,
}


@pytest.mark.parametrize("name", registry.SYSTEMS)
def test_loading_replaces_the_state(make_context, name):
  """As on resume: once for each step in flight, then the newest state."""
  context = make_context(tokenizer=Letters())
  system, change = MAKERS[name](context)
  states = []
  for step in (1, 2, 3):
    change(step)
    states.append(json.loads(json.dumps(system.state_dict())))
  assert states[0] != states[1] != states[2]
  resumed, change_resumed = MAKERS[name](context)
  for state in (states[0], states[1], states[1], states[2]):
    resumed.load_state_dict(copy.deepcopy(state))
    assert resumed.state_dict() == state
  resumed.load_state_dict(states[1])
  change_resumed(3)
  assert resumed.state_dict() == states[2]
