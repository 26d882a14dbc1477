"""Majority labels for given votes."""

from typed import stand_in

from azr_jax import types
from azr_jax.grading.outcome import Outcome
from azr_jax.systems.azr.extensions.labels import Labels
from azr_jax.systems.azr.rewards import Solved
from azr_jax.systems.azr.solver import Solution
from azr_jax.tasks.programs.buffer import TaskBuffer
from azr_jax.tasks.programs.task import UNKNOWN, Triplet

TASK = Triplet("def f(x):\n  return x", "1", "1")
LET_IN = Triplet("def f(x):\n  return y", "1", UNKNOWN)
RIGHT, WRONG, TIMEOUT = Outcome.CORRECT, Outcome.INCORRECT, Outcome.TIMEOUT


def rollouts(votes, truths=None, task=TASK):
  """Returns solutions with these votes; `truths` are the executor's grades."""
  truths = truths or [None] * len(votes)
  return [
    Solution(
      types.Prompt("", (), task),
      stand_in(types.Completion),
      "deduction",
      True,
      WRONG if truth is None else truth,
      truth,
      vote,
      said="f(1) returns 1.",
      reference="1",
    )
    for vote, truth in zip(votes, truths, strict=True)
  ]


def labels_of(kind, for_proposers="labels"):
  buffer = TaskBuffer(10)
  buffer.add(TASK, 0)
  buffer.add(LET_IN, 0)
  return Labels(kind, for_proposers, {"deduction": buffer}), buffer


def test_the_executors_labels_change_nothing():
  labels, buffer = labels_of("executor")
  given = rollouts("aab", [WRONG, TIMEOUT, RIGHT])
  assert not labels.is_voted(TASK)
  labels.grade(given)
  assert [s.outcome for s in given] == [WRONG, TIMEOUT, RIGHT]
  assert all(s.said and s.reference for s in given)
  assert buffer.label(TASK) is None and labels.metrics("azr") == {}
  assert not labels.needs_vote("deduction", TASK)


def test_a_majority_labels_and_is_compared_with_the_truth():
  labels, buffer = labels_of("majority")
  assert labels.needs_vote("deduction", TASK)
  given = rollouts(
    ["a", "a", "b", None, None], [WRONG, WRONG, RIGHT, WRONG, TIMEOUT]
  )
  assert labels.vote(given) == Solved(correct=2, incorrect=2, undecided=1)
  assert [s.outcome for s in given] == [RIGHT, RIGHT, WRONG, WRONG, TIMEOUT]
  # They would give the truth away.
  assert not any(s.said or s.reference for s in given)
  labels.keep()
  assert buffer.label(TASK) == "a"
  assert not labels.needs_vote("deduction", TASK)
  solved = rollouts(["a", "b", None], [WRONG, RIGHT, WRONG])
  labels.grade(solved)
  assert [s.outcome for s in solved] == [RIGHT, WRONG, WRONG]
  assert labels.metrics("azr") == {
    "labels/azr/deduction/voted": 1.0,
    "labels/azr/deduction/vote_fraction": 0.4,
    "labels/azr/deduction/agreement": 0.0,
    "labels/azr/deduction/gap": 0.0,
  }


def test_a_task_that_was_let_in_is_voted_on_by_either_kind():
  for kind in ("executor", "majority"):
    labels, buffer = labels_of(kind, "executor")
    given = rollouts("bba", task=LET_IN)
    assert labels.vote(given) == Solved(correct=2, incorrect=1)
    labels.keep()
    assert buffer.label(LET_IN) == "b"
    assert "labels/azr/deduction/agreement" not in labels.metrics("azr")


def test_without_a_vote_a_task_has_no_label_and_no_right_answer():
  labels, buffer = labels_of("majority")
  given = rollouts([None, None], [WRONG, WRONG])
  assert labels.vote(given) == Solved(correct=0, incorrect=2)
  solved = rollouts(["a"], [RIGHT])
  labels.grade(solved)
  labels.keep()
  assert solved[0].outcome is WRONG
  assert buffer.label(TASK) is None
  assert labels.needs_vote("deduction", TASK)


def test_a_task_that_is_voted_on_twice_has_the_later_label():
  labels, buffer = labels_of("majority")
  for votes in ("aab", "bba"):
    assert labels.vote(rollouts(votes, [WRONG] * 3)).correct == 2
  labels.keep()
  assert buffer.label(TASK) == "b"


def test_labels_outlive_the_step_and_the_task_its_buffer():
  labels, buffer = labels_of("majority")
  for index in range(10):
    buffer.add(Triplet(f"def f(x):\n  return {index}", "1", str(index)), 1)
  assert TASK not in buffer.tasks()
  labels.vote(rollouts("aab", [WRONG] * 3))
  solved = rollouts("a", [WRONG])
  labels.grade(solved)
  assert solved[0].outcome is RIGHT
  labels, buffer = labels_of("majority")
  labels.vote(rollouts("aab", [WRONG] * 3))
  labels.keep()
  later = Labels("majority", "labels", {"deduction": buffer})
  assert not later.needs_vote("deduction", TASK)
