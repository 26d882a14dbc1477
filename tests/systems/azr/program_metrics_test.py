"""Complexity and diversity of proposals, and a run's answer counts."""

import pytest
import scripted
from scripted_azr import ScriptedPolicy, settings

from azr_jax.systems.azr import program_metrics
from azr_jax.systems.azr.system import AZR
from azr_jax.tasks.programs import measures
from azr_jax.tasks.programs.task import Triplet

PROGRAM = "program/azr"


@pytest.fixture(name="episode")
def make_play(context):
  def episode(steps, **changes):
    system = AZR(settings(**changes), context)
    policy = ScriptedPolicy()
    metrics = [
      scripted.collect(system, policy, step + 1).metrics
      for step in range(steps)
    ]
    return system, metrics

  return episode


def test_programs_are_measured_in_the_pool(episode):
  _, (metrics,) = episode(1)
  for task_type in ("deduction", "abduction"):
    name = f"{PROGRAM}/{task_type}"
    assert metrics[f"{name}/cognitive"] == 0.0
    assert metrics[f"{name}/cyclomatic"] == 1.0
    # The programs are `x + n` with different n.
    assert 0 < metrics[f"{name}/distance"] < 0.5
    code = "def f(x):\n  # 1\n  return x + 1"
    assert metrics[f"{name}/volume"] == pytest.approx(
      measures.measure(code, [])["volume"], rel=0.1
    )
  # The correct answers are the programs themselves.
  assert metrics[f"{PROGRAM}/induction/gold_minus_answer"] == 0.0
  assert not any("cognitive" in name for name in metrics if "induction" in name)


def test_answers_of_all_steps_count(episode):
  system, (first, second) = episode(2)
  name = f"{PROGRAM}/deduction/answer_diversity"
  # Two different outputs, then two more: 1 - 1/2 and 1 - 1/4.
  assert first[name] == pytest.approx(0.5)
  assert second[name] == pytest.approx(0.75)
  # The reference answer of every abduction task is the input 1.
  assert second[f"{PROGRAM}/abduction/answer_diversity"] == 0.0
  other, _ = episode(0)
  other.load_state_dict(system.state_dict())
  assert other.state_dict() == system.state_dict()
  assert sum(system.state_dict()["answers"]["deduction"].values()) == 4


def test_surprise_is_over_what_was_answered_before(episode):
  """AZR, D.4: 1 - p over the tasks that the solver has answered."""
  system, (first, second, third) = episode(3, seed_factor=1)
  name = f"{PROGRAM}/abduction/surprise"
  # Every abduction task has the input 1, which is known from step 2.
  assert [m[name] for m in (first, second, third)] == [1.0, 0.0, 0.0]
  # Deduction outputs are all new.
  assert third[f"{PROGRAM}/deduction/surprise"] == 1.0
  answered = system.state_dict()["answered"]["deduction"]
  assert sum(answered.values()) == 3 * 2  # A task counts once per step.
  other, _ = episode(0)
  other.load_state_dict(system.state_dict())
  assert other.state_dict() == system.state_dict()


@pytest.mark.parametrize(
  "text, same",
  [
    ("1,2", "1, 2"),
    ("'a', [1,2,]", '"a", [1, 2]'),
    ("b=1, a=2", "a=2,b=1"),
    ("{1, 2}", "{2,1}"),
    ("{'a': 1, 'b': {3}}", "{'b': {3}, 'a': 1}"),
    ("", " "),
  ],
)
def test_inputs_of_one_value_are_one_answer(text, same):
  answers = [
    program_metrics._answers("abduction", Triplet("", argument, "0"))
    for argument in (text, same)
  ]
  assert answers[0] == answers[1]


@pytest.mark.parametrize(
  "text, other", [("1", "1.0"), ("1", "x=1"), ("[1]", "(1,)"), ("1, 2", "2, 1")]
)
def test_inputs_of_other_values_are_others(text, other):
  answers = [
    program_metrics._answers("abduction", Triplet("", argument, "0"))
    for argument in (text, other)
  ]
  assert answers[0] != answers[1]


def test_measures_can_be_left_out(episode):
  _, (metrics,) = episode(1, measure_programs=False)
  assert not any(name.startswith("program/") for name in metrics)


@pytest.mark.parametrize(
  "answers, diversity",
  [(("a",), 0.5), (("b",), 0.75), (("a", "b"), 0.625), (("\ud800",), 0.75)],
)
def test_diversity_by_hand(answers, diversity):
  counts = program_metrics.AnswerCounts()
  counts.add("deduction", ("a", "a", "b", "\ud800"))
  assert counts.diversity("deduction", answers) == diversity


def test_a_program_that_cannot_be_parsed_has_no_metrics(context):
  jobs = context.jobs
  future = jobs.submit(
    lambda executor: program_metrics._submit(
      executor, program_metrics._MEASURE, ("def f(", ["x = 1"])
    )
  )
  jobs.wait_all()
  assert future.result() is None


def test_the_difference_of_a_program_and_an_answer(context):
  program = "def f(x):\n  for i in x:\n    if i:\n      return i"
  answer = "def f(x):\n  if x:\n    return x"
  jobs = context.jobs
  future = jobs.submit(
    lambda executor: program_metrics._submit(
      executor, program_metrics._DIFFERENCE, (program, answer)
    )
  )
  jobs.wait_all()
  assert future.result() == 3.0 - 1.0
