"""The graders accept reasoning-gym's own answers and refuse tricks."""

import ast

import gym_solutions
import pytest
import training

from azr_jax.executor import Executor
from azr_jax.executor.literals import typed_key
from azr_jax.grading.gym import grader
from azr_jax.tasks.questions import gym

training.needs("reasoning_gym", extra="gym")

JUNK = ("zzz", "-7", "[]", "{}", "None", "x" * 50, "<answer>", "((((")
# Sets without a stored answer, where several answers are correct.
WITHOUT_ANSWER = {
  "graph_color",
  "propositional_logic",
  "rubiks_cube",
  "rush_hour",
}
FEW = ("gcd", "sokoban", "word_ladder", "arc_1d", "graph_color")


@pytest.fixture(scope="module")
def patient_executor():
  with Executor(workers=1, timeout_s=20.0, memory_mb=2048) as executor:
    yield executor


def check(executor, name, seed=3):
  for question in gym.make(name, 2, seed):
    answer = grader.stored_answer(question.reference)
    if name in WITHOUT_ANSWER:
      entry = ast.literal_eval(question.reference)["entry"]
      answer = gym_solutions.solve(name, question.text, entry["metadata"])
    correct = grader.submit(executor, name, question.reference, answer)
    assert correct.result(), question.id
    graded = {
      junk: grader.submit(executor, name, question.reference, junk)
      for junk in JUNK
      if junk != answer
    }
    assert not [junk for junk, correct in graded.items() if correct.result()]


@pytest.mark.parametrize("name", FEW)
def test_its_answers_are_correct_and_junk_is_wrong(patient_executor, name):
  check(patient_executor, name)


# The arc package leaves a file open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*gym.NAMES} - {*FEW}))
def test_its_answers_of_every_set_are_correct(patient_executor, name):
  check(patient_executor, name)


@pytest.mark.parametrize(
  "name, answer",
  [
    ("game_of_life_halting", "zzz"),
    ("spiral_matrix", "__import__('os').system('true')"),
    ("binary_matrix", "exec('x')"),
    ("countdown", "().__class__"),
    ("simple_integration", "x.__class__"),
    ("polynomial_multiplication", "exec('x')"),
    ("simple_integration", "(x**2).\uff49\uff4e\uff54\uff45\uff47(x)"),
    ("simple_integration", "S(x)"),
    ("simple_integration", "x.diff"),
    ("countdown", "'9' '7'"),
    ("countdown", "9 7"),
    ("countdown", "2**9"),
    ("countdown", "9.5*2"),
    ("complex_arithmetic", "nan"),
    ("number_sorting", "[NaN, NaN]"),
    ("calendar_arithmetic", "7"),
    ("products", None),
    ("products", " "),
    ("products", "1" * 30_000),
  ],
)
def test_answers_that_a_lenient_scorer_accepts_or_runs_are_wrong(
  patient_executor, name, answer
):
  question = gym.make(name, 1, 0)[0]
  before = patient_executor.counters()["programs"]
  graded = grader.submit(patient_executor, name, question.reference, answer)
  assert not graded.result()
  assert patient_executor.counters()["programs"] == before


def test_a_set_with_settings_is_graded_with_them(patient_executor):
  settings = {"min_digits": 3, "max_digits": 3}
  for question in gym.make("products", 2, 0, settings):
    answer = grader.stored_answer(question.reference)
    job = grader.submit(
      patient_executor, "products", question.reference, answer
    )
    assert job.result()
  with pytest.raises(ValueError, match="expected no settings"):
    gym.make("word_ladder", 1, 0, {"min_word_length": 5})


def test_near_answers_are_wrong(patient_executor):
  def graded(name, change):
    question = gym.make(name, 1, 0)[0]
    answer = change(grader.stored_answer(question.reference))
    job = grader.submit(patient_executor, name, question.reference, answer)
    return bool(job.result())

  assert graded("game_of_life", lambda board: board)
  assert not graded("game_of_life", lambda board: board.replace("0", "1", 1))
  assert graded("number_sorting", lambda listed: listed.replace("'", '"'))
  assert not graded(
    "number_sorting",
    lambda listed: str([float(x) + 0.1 for x in eval(listed)]),
  )


def test_questions_are_those_of_their_seed():
  one, two = gym.make("products", 5, 1), gym.make("products", 5, 1)
  assert one == two and len({q.id for q in one}) == 5
  assert one != gym.make("products", 5, 2)
  assert all(typed_key(q.reference) for q in one)
  with pytest.raises(ValueError, match="gym set 'sudoku'"):
    gym.make("sudoku", 1, 0)
