"""The verification of one AZR training step, as a load for the executor.

A step proposes 64 tasks of each of the three types, samples eight solutions of
each task for its learnability, and one more for training (AZR, section 3.3 and
table 3). Here the programs are given and all proposals are valid. Half of the
learnability answers are correct, and all of the training answers are. No two
answers have the same text, so each is verified. Some of the wrong answers to
induction tasks may run forever.
"""

import dataclasses
import time
from collections.abc import Sequence
from concurrent.futures import Future

from azr_jax.executor import Executor, futures
from azr_jax.grading import programs
from azr_jax.grading.outcome import Outcome
from azr_jax.tasks.programs import validation
from azr_jax.tasks.programs.task import Triplet

TASKS_PER_TYPE = 64
LEARNABILITY_SAMPLES = 8
PROGRAMS = 3 * TASKS_PER_TYPE
ENDLESS = "def f(*_):\n  while True:\n    pass"
INDUCTION_INPUTS = 10
HIDDEN_INPUTS = 5


@dataclasses.dataclass(frozen=True)
class VerificationTimes:
  """The wall-clock seconds of one step's verification.

  Attributes:
    validation_s: seconds of validating the proposals.
    learnability_s: seconds of grading the learnability answers.
    solving_s: seconds of grading the training answers.
    correct: number of correct answers.
    answers: number of answers.
  """

  validation_s: float
  learnability_s: float
  solving_s: float
  correct: int
  answers: int

  @property
  def total_s(self) -> float:
    """Wall-clock seconds of the whole step."""
    return self.validation_s + self.learnability_s + self.solving_s


def measure(
  executor: Executor, triplets: Sequence[Triplet], endless: int = 0
) -> VerificationTimes:
  """Verifies a step and measures how long it takes.

  Args:
    executor: runs the programs.
    triplets: programs with an input and its output, at least `PROGRAMS`.
    endless: number of learnability answers that never end, at most
      `TASKS_PER_TYPE`.

  Raises:
    ValueError: there are too few triplets.
  """
  if len(triplets) < PROGRAMS:
    raise ValueError(f"{len(triplets)} triplets; expected at least {PROGRAMS}")
  start = time.monotonic()
  futures.gather(_validate(executor, triplets)).result()
  validated = time.monotonic()
  correct = sum(_grade(executor, triplets, LEARNABILITY_SAMPLES, endless))
  graded = time.monotonic()
  correct += sum(_grade(executor, triplets, 1, endless=0))
  answers = 3 * TASKS_PER_TYPE * (LEARNABILITY_SAMPLES + 1)
  end = time.monotonic()
  return VerificationTimes(
    validated - start, graded - validated, end - graded, correct, answers
  )


def _validate(
  executor: Executor, triplets: Sequence[Triplet]
) -> list[validation.ValidationFuture]:
  """Starts the validation of 128 triplets and 64 induction tasks.

  A triplet runs twice on one input, an induction task twice on ten.
  """
  pairs = triplets[: 2 * TASKS_PER_TYPE]
  verdicts = [
    validation.submit_triplet(executor, task.code, task.input) for task in pairs
  ]
  for task in triplets[2 * TASKS_PER_TYPE : 3 * TASKS_PER_TYPE]:
    inputs = [task.input] * INDUCTION_INPUTS
    verdicts.append(
      validation.submit_induction_task(executor, task.code, inputs, "")
    )
  return verdicts


def _grade(
  executor: Executor, triplets: Sequence[Triplet], samples: int, endless: int
) -> list[bool]:
  """Grades answers to 64 tasks of each type.

  Answers with an even sample index are correct. The others are taken from
  another task.

  Args:
    executor: runs the programs.
    triplets: the tasks.
    samples: answers per task.
    endless: number of induction tasks with an answer that never ends.
  """
  size = TASKS_PER_TYPE
  deduction, abduction, induction = (
    triplets[start : start + size] for start in (0, size, 2 * size)
  )

  def answered(task: Triplet, sample: int, group: Sequence[Triplet]) -> Triplet:
    """Returns the task whose solution serves as the answer."""
    other = group[(group.index(task) + 1 + sample) % size]
    return task if sample % 2 == 0 else other

  pending: list[Future[tuple[Outcome, ...]]] = []
  for task in deduction:
    for sample in range(samples):
      answer = answered(task, sample, deduction).output + " " * sample
      verdict = programs.submit_deduction(executor, task.output, answer)
      pending.append(futures.then(verdict, lambda outcome: (outcome,)))
  for task in abduction:
    answers = [
      answered(task, sample, abduction).input + " " * sample
      for sample in range(samples)
    ]
    pending.append(
      programs.submit_abduction(executor, task.code, task.output, answers)
    )
  for number, task in enumerate(induction):
    inputs = [task.input] * HIDDEN_INPUTS
    outputs = [task.output] * HIDDEN_INPUTS
    for sample in range(samples):
      answer = f"{answered(task, sample, induction).code}\n# {sample}"
      if sample == 1 and number < endless:
        answer = f"{ENDLESS}  # {number}"
      verdict = programs.submit_induction(executor, answer, inputs, outputs)
      pending.append(futures.then(verdict, lambda outcome: (outcome,)))
  return [bool(outcome) for graded in pending for outcome in graded.result()]
