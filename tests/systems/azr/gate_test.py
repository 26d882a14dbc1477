"""The gate admits failed programs by its draws, and votes label them."""

import json

import pytest
import scripted
from scripted_azr import TASK_TYPES, ScriptedPolicy, answer, settings

from azr_jax.config.settings import Invalid
from azr_jax.grading.outcome import Outcome
from azr_jax.parallel import messages
from azr_jax.systems.azr.extensions import gate
from azr_jax.systems.azr.system import AZR
from azr_jax.tasks.programs.solving import VotedOutcome
from azr_jax.tasks.programs.task import UNKNOWN, ZERO_TRIPLET, is_verified

DEDUCTION = "deduction"


class Broken(ScriptedPolicy):
  """Proposes programs that raise; the solver answers 1, 1, 2 and nothing."""

  def reply(self, prompt, sample):
    text = prompt.text
    if "predict output" in text:
      self.made += 1
      return answer(
        ("python", f"def f(x):\n  return x + missing_{self.made}"),
        ("input", "1"),
      )
    if "Find the output" in text and not is_verified(prompt.task):
      return answer(("output", ("1", "+1", "2", "?")[sample % 4]))
    return super().reply(prompt, sample)


def test_draws_depend_on_seed_step_and_number_alone():
  drawn = gate.draw(0, 1, 2)
  assert 0 <= drawn < 1 and gate.draw(0, 1, 2) == drawn
  others = {gate.draw(*key) for key in ((1, 1, 2), (0, 2, 2), (0, 1, 3))}
  assert len(others | {drawn}) == 4


@pytest.fixture
def collected(context):
  def collect(fraction, steps=1, **changes):
    system = AZR(settings(unverified_fraction=fraction, **changes), context)
    policy = Broken()
    batches = [
      scripted.collect(system, policy, step + 1) for step in range(steps)
    ]
    return system, policy, batches

  return collect


def test_a_strict_gate_lets_nothing_in(collected):
  system, _, (batch,) = collected(0.0)
  assert all(map(is_verified, system.buffers[DEDUCTION].tasks()))
  assert batch.metrics["proposals/azr/deduction/rejected_error"] == 2.0
  assert "gate/azr/deduction/admitted" not in batch.metrics


def test_an_open_gate_lets_in_programs_that_fail(collected):
  system, policy, (batch,) = collected(1.0)
  admitted = system.buffers[DEDUCTION].from_step(1)
  assert [task.output for task in admitted] == [UNKNOWN] * 2
  metrics = batch.metrics
  assert metrics["gate/azr/deduction/admitted"] == 2.0
  assert metrics["gate/azr/deduction/solved_fraction"] == 1.0
  assert metrics["gate/azr/induction/admitted"] == 0.0
  unverified = metrics["buffer/azr/deduction/unverified_fraction"]
  assert unverified == 2 / len(system.buffers[DEDUCTION])
  # Admitted tasks still count as rejected, and none counts as valid.
  assert metrics["proposals/azr/deduction/rejected_error"] == 2.0
  assert metrics["proposals/azr/deduction/valid_fraction"] == 0.0
  # Two of four rollouts agree, so eq. 4 gives 1 - 2 / 4.
  assert metrics["labels/azr/deduction/voted"] == 2.0
  assert metrics["labels/azr/deduction/vote_fraction"] == 0.5
  assert "labels/azr/deduction/agreement" not in metrics
  by_group = {t.group_id: t for t in batch.trajectories}
  assert by_group[DEDUCTION, "propose"].reward == 0.5
  # Each task's solution is its first sample, which gives the majority answer.
  assert by_group[DEDUCTION, "solve"].reward == 1.0
  solved = [p.task for p in policy.asked if "Find the output" in p.text]
  assert set(admitted) <= set(solved)


def test_unverified_tasks_stay_in_the_buffers_with_their_labels(
  collected, context
):
  system, _, batches = collected(1.0, steps=3)
  state = json.loads(json.dumps(system.state_dict()))
  again = AZR(settings(unverified_fraction=1.0), context)
  again.load_state_dict(state)
  buffer, restored = system.buffers[DEDUCTION], again.buffers[DEDUCTION]
  unverified = [task for task in buffer.tasks() if not is_verified(task)]
  assert len(unverified) == 6
  for task in unverified:
    assert restored.label(task) == buffer.label(task) is not None
  assert batches[-1].metrics["buffer/azr/deduction/unverified_fraction"] == (
    6 / len(buffer)
  )


def test_a_fraction_admits_those_whose_draws_are_below_it(collected):
  drawn = [gate.draw(0, step, index) for step in (1, 2) for index in (0, 1)]
  fraction = sorted(drawn)[1] + 1e-9
  system, _, _ = collected(fraction, steps=2)
  tasks = system.buffers[DEDUCTION].tasks()
  assert sum(not is_verified(task) for task in tasks) == 2


@pytest.mark.parametrize(
  "changes",
  [
    {"task_types": ("abduction",)},
    {"learnability_samples": 1},
  ],
)
def test_a_gate_that_cannot_be_opened_is_refused(changes):
  with pytest.raises(Invalid, match=next(iter(changes))):
    settings(unverified_fraction=0.5, **changes)


class Agreeing(ScriptedPolicy):
  """Gives the same wrong answer in three of four samples, and a right one."""

  def reply(self, prompt, sample):
    text = prompt.text
    if "New program" in text or "inputs and a message" in text:
      return super().reply(prompt, sample)
    if sample == 3:
      return super().reply(prompt, 0)
    code = "def f(x):\n  return 'wrong'"
    return answer(("output", "'wrong'"), ("input", "-1"), ("python", code))


@pytest.mark.parametrize("labels", ["executor", "majority"])
def test_labels_are_the_executors_or_the_majoritys(context, labels):
  system = AZR(settings(labels=labels), context)
  policy = Agreeing()
  metrics = scripted.collect(system, policy, 1).metrics
  for task_type in TASK_TYPES:
    rate = metrics[f"learnability/azr/{task_type}/solve_rate"]
    correct = metrics[f"correct/azr/{task_type}/solve/mean"]
    name = f"labels/azr/{task_type}"
    if labels == "executor":
      assert (rate, correct) == (0.25, 0.0)
      assert f"{name}/voted" not in metrics
    else:
      assert (rate, correct) == (0.75, 1.0)
      assert metrics[f"{name}/voted"] == 2.0
      assert metrics[f"{name}/vote_fraction"] == 0.75
      assert metrics[f"{name}/agreement"] == 0.0
      assert metrics[f"{name}/gap"] == 1.0


@pytest.mark.parametrize(
  "labels, proposer_labels, rate, correct",
  [
    ("executor", "labels", 0.25, 0.0),
    ("executor", "majority", 0.75, 0.0),
    ("majority", "executor", 0.25, 1.0),
    ("majority", "majority", 0.75, 1.0),
  ],
)
def test_proposers_may_be_paid_by_other_labels(
  context, labels, proposer_labels, rate, correct
):
  changes = {"labels": labels, "proposer_labels": proposer_labels}
  system = AZR(settings(**changes), context)
  collected = scripted.collect(system, Agreeing(), 1)
  by_group = {t.group_id: t.reward for t in collected.trajectories}
  for task_type in TASK_TYPES:
    assert by_group[task_type, "propose"] == 1 - rate
    found = collected.metrics[f"correct/azr/{task_type}/solve/mean"]
    assert found == correct


def test_solvers_alone_vote_too(context):
  """Without training the proposer, there are no learnability rollouts."""
  system = AZR(settings(labels="majority", roles=("solve",)), context)
  metrics = scripted.collect(system, Agreeing(), 1).metrics
  for task_type in TASK_TYPES:
    assert metrics[f"labels/azr/{task_type}/voted"] == 2.0
    assert metrics[f"correct/azr/{task_type}/solve/mean"] == 1.0


def test_grades_go_between_hosts():
  grades = (
    VotedOutcome(Outcome.TIMEOUT, None),
    VotedOutcome(None, "ab"),
    VotedOutcome(Outcome.CORRECT, "ab"),
  )
  assert messages.loads(messages.dumps(grades)) == grades


def test_seeds_are_voted_on_when_they_are_solved(context):
  """The second step's proposals are rejected, so seeds are solved instead."""

  class Tired(Agreeing):
    def reply(self, prompt, sample):
      if self.made > 5 and "New program" in prompt.text:
        return "nothing"
      return super().reply(prompt, sample)

  system = AZR(settings(labels="majority", task_types=(DEDUCTION,)), context)
  policy = Tired()
  for step in range(1, 6):
    metrics = scripted.collect(system, policy, step).metrics
    assert metrics["correct/azr/deduction/solve/mean"] == 1.0
  buffer = system.buffers[DEDUCTION]
  seeds = [task for task in buffer.tasks() if task in buffer.from_step(0)]
  solved = [p.task for p in policy.asked if "Find the output" in p.text]
  assert seeds and all(buffer.label(t) for t in seeds if t in solved)


def test_a_seed_that_several_episodes_solve_is_voted_on_once(context):
  class Refused(Agreeing):
    def reply(self, prompt, sample):
      is_proposal = "New program" in prompt.text
      return "nothing" if is_proposal else super().reply(prompt, sample)

  changes = {"labels": "majority", "task_types": (DEDUCTION,), "prompts": 3}
  system = AZR(settings(**changes), context)
  system.buffers[DEDUCTION].add(ZERO_TRIPLET, 0)
  metrics = scripted.collect(system, Refused(), 1).metrics
  assert metrics["count/azr/deduction/solve"] == 3.0
  assert metrics["labels/azr/deduction/voted"] == 1.0


def test_a_late_duplicate_is_not_paid_by_its_vote(context):
  """Another step buffers the same programs while this one runs."""

  class Ahead(Agreeing):
    """Runs the step of `other` before its own continues."""

    other = None

    async def earlier_steps(self):
      if self.other is not None:
        other, self.other = self.other, None
        scripted.collect(system, other, 3)

  changes = {"labels": "majority", "duplicates": "reject"}
  system = AZR(settings(task_types=(DEDUCTION,), **changes), context)
  system.buffers[DEDUCTION].add(ZERO_TRIPLET, 0)
  policy = Ahead()
  policy.other = Agreeing()  # Proposes the same.
  batch = scripted.collect(system, policy, 2)
  metrics = batch.metrics
  assert metrics["proposals/azr/deduction/rejected_duplicate"] == 2.0
  assert metrics["labels/azr/deduction/voted"] > 0
  assert "learnability/azr/deduction/solve_rate" not in metrics
  rewards = [t.reward for t in batch.trajectories if t.group_id[1] == "propose"]
  assert rewards == [-1.0, -1.0]
