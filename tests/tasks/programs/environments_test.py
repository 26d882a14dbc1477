"""Environments: which proposals are admitted, their instances, their grades."""

import hostile_environments as hostile
import pytest
from typed import instance_of

from azr_jax.executor import Executor
from azr_jax.grading.outcome import Outcome
from azr_jax.systems.azr import seeding
from azr_jax.tasks.programs import (
  environments,
  parsing,
  seed_files,
  validation,
)
from azr_jax.tasks.programs.task import EnvironmentTask


@pytest.fixture(scope="module")
def executor():
  with Executor(2, 2.0, 512) as pool:
    yield pool


def _verdict(executor, parts):
  found = environments.submit(
    executor, hostile.code(**parts), hostile.MESSAGE, 9, seed=1
  ).result()
  if isinstance(found, validation.Rejection):
    return found.reason
  assert len({one.value for one in instance_of(tuple, found)}) == 9
  return hostile.ADMITTED


def _is_quick(number):
  return number % 9 == 0 and hostile.PROGRAMS[number][1] != "timeout"


@pytest.mark.parametrize(
  ("name", "expected", "parts"),
  [
    pytest.param(
      *program,
      id=program[0],
      marks=() if _is_quick(number) else pytest.mark.slow,
    )
    for number, program in enumerate(hostile.PROGRAMS)
  ],
)
def test_only_sound_environments_are_admitted(executor, name, expected, parts):
  del name
  assert _verdict(executor, parts) == expected


@pytest.mark.parametrize(
  ("name", "response"), hostile.MALFORMED, ids=[m[0] for m in hostile.MALFORMED]
)
def test_a_proposal_is_one_program_and_one_message(name, response):
  del name
  assert parsing.parse_environment_proposal(response) is None


def test_what_does_the_same_has_the_same_behavior(executor):
  renamed = hostile.code().replace("rng", "r").replace("_ in", "number in")
  other = hostile.code(solve="def solve(instance):\n  return max(*instance)")
  smaller = hostile.code(
    solve="def solve(instance):\n  return min(instance)",
    score="def score(instance, answer):\n  return answer == min(instance)",
  )
  drawn = [
    instance_of(
      tuple, environments.submit(executor, code, message, *drawn).result()
    )
    for code, message, *drawn in (
      (hostile.code(), "a", 12, 0),
      (renamed, "b", 8, 1),
      (other, "c", 20, 0),
      (smaller, "a", 12, 0),
    )
  ]
  assert [len(instances) for instances in drawn] == [12, 8, 20, 12]
  for instances in drawn:
    assert len({one.value for one in instances}) == len(instances)
  first, *same, different = [found[0].environment.behavior for found in drawn]
  assert [first] * 2 == same
  assert first != different


@pytest.mark.parametrize(
  ("answer", "outcome"),
  [
    ("9", Outcome.CORRECT),
    (" 9  # the largest", Outcome.CORRECT),
    ("9.0", Outcome.CORRECT),  # The program decides: 9.0 == 9 in Python.
    ("8", Outcome.INCORRECT),
    ("'9'", Outcome.INCORRECT),
    ("max([4, 9])", Outcome.INCORRECT),
    ("9, 9", Outcome.INCORRECT),
    ("0x" + 3700 * "f", Outcome.INCORRECT),  # Too long for decimal digits.
    (60 * "{1: " + "1" + 60 * "}", Outcome.INCORRECT),
    ("9), (9", Outcome.INCORRECT),
    ("instance[1]", Outcome.INCORRECT),
    ("", Outcome.INCORRECT),
    (None, Outcome.INCORRECT),
  ],
)
def test_an_answer_is_a_literal_with_full_marks(executor, answer, outcome):
  instance = environments.Instance(
    environments.EnvironmentTask(hostile.code(), "", ""), "[4, 9]", "9"
  )
  graded = environments.submit_grading(executor, instance, answer)
  assert graded.result() is outcome


def test_a_scorer_that_hangs_on_an_answer_is_undecided(executor):
  score = "def score(instance, answer):\n  while answer > 5: pass\n  return 1"
  instance = environments.Instance(
    environments.EnvironmentTask(hostile.code(score=score), "", ""),
    "[4, 9]",
    "9",
  )
  graded = environments.submit_grading(executor, instance, "9")
  assert graded.result() is Outcome.TIMEOUT


def test_self_play_can_start_from_each_of_its_seeds(executor):
  rows = seed_files.read(str(seeding.SEED_ENVIRONMENTS))
  tasks = [instance_of(EnvironmentTask, row.task) for row in rows]
  assert len(tasks) == 10
  pending = [
    environments.submit(executor, task.code, task.message, 9, 0)
    for task in tasks
  ]
  found = [instance_of(tuple, future.result()) for future in pending]
  assert len({instances[0].environment.behavior for instances in found}) == 10


def test_each_seed_draws_new_instances(executor):
  code = hostile.code()
  drawn = [
    instance_of(tuple, environments.submit(executor, code, "", 9, s).result())
    for s in (0, 0, 1)
  ]
  values = [{one.value for one in instances} for instances in drawn]
  assert values[0] == values[1]
  assert not values[0] & values[2]


@pytest.mark.parametrize(
  ("given", "rate"),
  [
    ((None, None, None), 1 / 3),  # Of the other three, one has the answer 3.
    (("3", None, None), 1 / 3),
    # Right for three of nine, as one of the calls raises.
    (("3", "3", "'a'"), 1 / 3),
    (("3", "23", "13"), 4 / 9),
    (("3", "3 + 0", "3"), 1 / 3),  # An expression is no answer.
  ],
)
def test_what_guessing_reaches(executor, given, rate):
  code = hostile.code(
    score="def score(instance, answer):\n  return answer % 10 == instance"
  )
  task = environments.EnvironmentTask(code, "", "")
  answers = ["3", "1", "3", "0"]
  drawn = [environments.Instance(task, one, one) for one in answers]
  found = environments.submit_guesses(executor, drawn, given)
  assert found.result() == pytest.approx(rate)


def test_instances_with_different_answers_cannot_be_guessed(executor):
  task = environments.EnvironmentTask(hostile.code(), "", "")
  drawn = [environments.Instance(task, f"[{i}, 0]", str(i)) for i in range(4)]
  guesses = environments.submit_guesses(executor, drawn, ["0", "1", "2"])
  assert guesses.result() == 0


@pytest.mark.parametrize(
  ("body", "rate"),
  [
    # 24 calls, of which those with the next instance give full marks.
    ("sum(range(10**6)); return answer == instance - 1", 8 / 24),
    ("while True: pass", 1),
  ],
)
def test_guesses_of_many_rollouts(executor, body, rate):
  code = hostile.code(score=f"def score(instance, answer):\n  {body}")
  task = environments.EnvironmentTask(code, "", "")
  values = [str(one) for one in range(9)]
  drawn = [environments.Instance(task, one, one) for one in values]
  found = environments.submit_guesses(executor, drawn, values[:8])
  assert found.result() == pytest.approx(rate)


def test_slow_scores_of_many_answers_have_time(executor):
  """Ninety calls of 20 ms take longer than the second of one job."""
  slow = "def score(instance, answer):\n  sum(range(10**6))\n  return "
  parts = {"score": f"{slow}answer == max(instance)"}
  assert _verdict(executor, parts) == hostile.ADMITTED


@pytest.mark.parametrize(
  ("parts", "said"),
  [
    ({"solve": "def solve(instance):\n  return 1 // 0"}, "solve([{}"),
    (
      {"score": "def score(instance, answer):\n  return 2"},
      "score([{} is not from 0 to 1.",
    ),
    (
      {"score": "def score(instance, answer):\n  return 0.25"},
      "score([{} is 0.25.",
    ),
    ({"score": "def score(instance, answer):\n  return 1"}, "score([{} is 1."),
  ],
)
def test_a_rejection_names_a_call(executor, parts, said):
  code = hostile.code(**parts)
  found = environments.submit(executor, code, "", 3, 0).result()
  assert isinstance(found, validation.Rejection)
  start, _, end = said.partition("{}")
  assert found.detail.startswith(start) and found.detail.endswith(end)


def test_a_failing_seed_draws_nothing(executor):
  code = hostile.code(generate="def generate(seed):\n  return [4 // seed, 1]")
  environment = environments.EnvironmentTask(code, "", "")
  draw = environments.submit_instance
  assert draw(executor, environment, 0).result() is None
  found = draw(executor, environment, 2).result()
  assert found == environments.Instance(environment, "[2, 1]", "2")
