"""Error deduction and composite programs in a self-play step (D.1, D.2)."""

from typing import cast

import numpy as np
import pytest
import scripted
from scripted_azr import (
  PROMPT_BUILDER,
  SETTINGS,
  ScriptedPolicy,
  answer,
  proposer,
  settings,
)
from typed import instance_of

from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr import solver
from azr_jax.systems.azr.proposer import PromptPrograms
from azr_jax.systems.azr.system import AZR
from azr_jax.tasks.programs.buffer import TaskBuffer
from azr_jax.tasks.programs.task import (
  ZERO_ERROR_TRIPLET,
  ZERO_TRIPLET,
  Triplet,
)


class Erring(ScriptedPolicy):
  """Proposes programs that may raise; every second solution names the error."""

  def __init__(self, raising=True, **settings):
    super().__init__(**settings)
    self.raising = raising

  def reply(self, prompt, sample):
    if "predict error" in prompt.text:
      self.made += 1
      divisor = "x" if self.raising and self.made % 3 else "7"
      code = f"def f(x):\n  return {self.made} // {divisor}"
      return answer(("python", code), ("input", "0"))
    if "Find the error" in prompt.text and sample % 2 == 0:
      return answer(("output", f"{prompt.task.output}: division by zero"))
    return super().reply(prompt, sample)


class Building(ScriptedPolicy):
  """Adds up calls of all components, and optionally something else."""

  def __init__(self, added):
    super().__init__()
    self.added = added

  def reply(self, prompt, sample):
    if "Call all of these" not in prompt.text:
      return super().reply(prompt, sample)
    calls = " + ".join(f"g_{i}(x)" for i in range(len(prompt.task.components)))
    return answer(
      ("python", f"def f(x):\n  return {calls}{self.added}"), ("input", "1")
    )


def episode(context, policy, **changes):
  system = AZR(settings(**changes), context)
  return system, scripted.collect(system, policy, 1)


def test_errors_are_proposed_validated_and_deduced(context):
  policy = Erring()
  system, collected = episode(
    context, policy, task_types=("deduction", "error_deduction")
  )
  tasks = system.buffers["error_deduction"].tasks()
  assert tasks and {instance_of(Triplet, t).output for t in tasks} == {
    "ZeroDivisionError"
  }
  solved = [
    t
    for t in collected.trajectories
    if t.group_id == ("error_deduction", "solve")
  ]
  # The grader ignores the message of an error.
  assert [t.reward for t in solved] == [1.0, 1.0]
  name = "learnability/azr/error_deduction"
  assert collected.metrics[f"{name}/solve_rate"] == 0.5
  shown = [p.text for p in policy.asked if "Find the error" in p.text]
  assert all("ZeroDivisionError" not in text for text in shown)


def test_without_errors_there_is_the_zero_one(context):
  system, collected = episode(
    context, Erring(raising=False), task_types=("error_deduction",)
  )
  assert system.buffers["error_deduction"].tasks() == [ZERO_ERROR_TRIPLET]
  rejected = "proposals/azr/error_deduction/rejected_no_error"
  assert collected.metrics[rejected] == SETTINGS["prompts"]


def test_an_error_too_long_to_be_solved_is_no_seed(context):
  class Long(Erring):
    def reply(self, prompt, sample):
      if "predict error" not in prompt.text:
        return super().reply(prompt, sample)
      listed = ",".join(map(str, range(15)))  # Stripping adds spaces.
      code = f"def f(x):\n return [{listed}][x+101]"
      return answer(("python", code), ("input", "0"))

  policy = Long(limit=144)
  system, _ = episode(context, policy, task_types=("error_deduction",))
  buffer = system.buffers["error_deduction"]
  for task in buffer.tasks():
    solving = solver.solve_prompt(
      cast(Policy, policy), "error_deduction", task, PROMPT_BUILDER
    )
    assert policy.fits(solving)
  # Task types that are not configured get no prompts.
  assert all("error" in p.text for p in policy.asked)


def test_a_resumed_run_has_the_same_task_types(context):
  system, _ = episode(context, ScriptedPolicy(), task_types=("deduction",))
  other = AZR(settings(), context)
  with pytest.raises(ValueError, match="task_types includes abduction"):
    other.load_state_dict(system.state_dict())


def test_the_new_part_of_a_composite_program_is_measured(context):
  _, collected = episode(
    context, Building(" + 5"), composite_prob=1.0, prompts=8
  )
  # The new part is one line without a branch.
  assert collected.metrics["program/azr/deduction/cyclomatic"] == 1.0


def test_induction_is_never_about_a_program_that_raises(context):
  policy = Erring()
  episode(context, policy, task_types=("error_deduction", "induction"))
  about = [p.task.program for p in policy.asked if "a message" in p.text]
  assert about and all("// x" not in code for code in about)


@pytest.mark.parametrize("added, valid", [(" + 5", 1.0), ("", None)])
def test_programs_are_built_on_the_buffers(context, added, valid):
  policy = Building(added)
  system, collected = episode(
    context, policy, composite_prob=1.0, max_components=2, prompts=8
  )
  asked = [
    p for p in policy.asked if "New program" in p.text and p.task.components
  ]
  counts = {len(p.task.components) for p in asked}
  assert counts == {1, 2}
  for task_type in ("deduction", "abduction"):
    name = f"proposals/azr/{task_type}"
    assert collected.metrics[f"{name}/composite_fraction"] == 1.0
    if valid is not None:
      assert collected.metrics[f"{name}/composite_valid_fraction"] == valid
      tasks = system.buffers[task_type].tasks()
      assert any(
        isinstance(t, Triplet) and t.code.startswith("def g_0") for t in tasks
      )
    else:
      # Calling one component is trivial; summing two is not.
      assert collected.metrics[f"{name}/rejected_trivial"] >= 1


def test_components_that_are_too_long_are_left_out(context):
  buffer = TaskBuffer(50)
  code = "def f(x):\n  return x" + " + 1" * 200
  buffer.add(Triplet(code, "1", "201"), 0)
  prompt = proposer(composite_prob=1.0, max_components=3).prompt(
    cast(Policy, ScriptedPolicy(limit=300)),
    "deduction",
    {"deduction": buffer},
    np.random.default_rng(0),
  )
  assert prompt.task == PromptPrograms((ZERO_TRIPLET.code,))


def test_prompts_have_no_components_by_default(context):
  policy = ScriptedPolicy()
  _, collected = episode(context, policy)
  assert not any("Call all of these" in p.text for p in policy.asked)
  assert not any("composite" in name for name in collected.metrics)
