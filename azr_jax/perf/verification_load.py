"""The verification of one training step of the paper's size, as a load.

A step proposes 64 tasks of each of the three types, asks eight solvers about
each task for its learnability, and one more for training (paper, section 3.3
and table 3). Here the tasks are given programs, the proposals are valid, and
half of the learnability answers are right, and all of the others; every one is
different, so none is spared.
"""

import dataclasses
import time
from collections.abc import Sequence
from concurrent.futures import Future

from azr_jax.executor import Executor, futures
from azr_jax.grading import programs
from azr_jax.tasks.programs import validation
from azr_jax.tasks.programs.task import Triplet

TASKS_PER_TYPE = 64
LEARNABILITY_SAMPLES = 8
PROGRAMS = 3 * TASKS_PER_TYPE
INDUCTION_INPUTS = 10
HIDDEN_INPUTS = 5


@dataclasses.dataclass(frozen=True)
class StepTimes:
  """Wall-clock seconds, and how many answers were right, of how many."""

  validation_s: float
  learnability_s: float
  solving_s: float
  right: int
  answers: int

  @property
  def total_s(self) -> float:
    """Seconds of the whole step."""
    return self.validation_s + self.learnability_s + self.solving_s


def measure(executor: Executor, triplets: Sequence[Triplet]) -> StepTimes:
  """Verifies a step on programs with their inputs and outputs.

  Raises:
    ValueError: there are too few triplets.
  """
  if len(triplets) < PROGRAMS:
    raise ValueError(f"{len(triplets)} triplets; expected at least {PROGRAMS}")
  start = time.monotonic()
  futures.gather(_validate(executor, triplets)).result()
  validated = time.monotonic()
  right = sum(_judge(executor, triplets, LEARNABILITY_SAMPLES))
  judged = time.monotonic()
  right += sum(_judge(executor, triplets, 1))
  answers = 3 * TASKS_PER_TYPE * (LEARNABILITY_SAMPLES + 1)
  end = time.monotonic()
  return StepTimes(
    validated - start, judged - validated, end - judged, right, answers
  )


def _validate(
  executor: Executor, triplets: Sequence[Triplet]
) -> list[validation.Verdict]:
  """Two runs of 128 programs with an input, and of 64 with ten inputs."""
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


def _judge(
  executor: Executor, triplets: Sequence[Triplet], samples: int
) -> list[bool]:
  """Answers to 64 tasks of each type, half of them another task's."""
  size = TASKS_PER_TYPE
  deduction, abduction, induction = (
    triplets[start : start + size] for start in (0, size, 2 * size)
  )

  def answered(task: Triplet, sample: int, group: Sequence[Triplet]) -> Triplet:
    other = group[(group.index(task) + 1 + sample) % size]
    return task if sample % 2 == 0 else other

  pending: list[Future[tuple[bool, ...]]] = []
  for task in deduction:
    for sample in range(samples):
      answer = answered(task, sample, deduction).output + " " * sample
      verdict = programs.deduction_correct(task.output, answer)
      pending.append(futures.done((verdict,)))
  for task in abduction:
    answers = [
      answered(task, sample, abduction).input + " " * sample
      for sample in range(samples)
    ]
    pending.append(
      programs.submit_abduction(executor, task.code, task.output, answers)
    )
  for task in induction:
    inputs, golds = [task.input] * HIDDEN_INPUTS, [task.output] * HIDDEN_INPUTS
    for sample in range(samples):
      answer = f"{answered(task, sample, induction).code}\n# {sample}"
      verdict = programs.submit_induction(executor, answer, inputs, golds)
      pending.append(futures.then(verdict, lambda correct: (correct,)))
  return [right for group in pending for right in group.result()]
