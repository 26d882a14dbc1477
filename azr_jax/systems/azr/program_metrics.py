"""Complexity and diversity of proposed programs (AZR, appendix C.4 and C.5).

The executor measures programs while the learnability rollouts are sampled, so
this adds little time to a step. Programs that cannot be measured have no
metrics.
"""

import collections
import hashlib
import itertools
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax.executor import Executor, Job, Result, futures
from azr_jax.grading import literals
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.event_loop import Awaited
from azr_jax.systems.azr.extensions import composite
from azr_jax.systems.azr.proposer import Proposal
from azr_jax.systems.azr.solver import Solution
from azr_jax.tasks.programs import parsing
from azr_jax.tasks.programs.task import (
  ABDUCTION,
  INDUCTION,
  EnvironmentTask,
  InductionTask,
  Instance,
  Task,
  Triplet,
  is_verified,
)

LIBRARY = "azr_jax.tasks.programs.measures"
_MEASURE = """
from azr_jax.tasks.programs import measures
def f(code, references):
  return measures.measure(code, references)
"""
_DIFFERENCE = """
from azr_jax.tasks.programs import measures
def f(reference, answer):
  return measures.cognitive(reference) - measures.cognitive(answer)
"""


class AnswerCounts:
  """Counts how often each answer was the reference, over the whole run."""

  def __init__(self) -> None:
    self._counts: dict[str, collections.Counter[str]] = {}

  def state_dict(self) -> dict[str, dict[str, int]]:
    """Returns {task type: {hash of the answer: count}}."""
    return {name: dict(counts) for name, counts in self._counts.items()}

  def load_state_dict(self, state: dict[str, dict[str, int]]) -> None:
    """Restores what `state_dict` returned."""
    self._counts = {name: collections.Counter(c) for name, c in state.items()}

  def add(self, task_type: str, answers: Sequence[str]) -> None:
    """Counts the reference answers of a proposal."""
    counts = self._counts.setdefault(task_type, collections.Counter())
    counts.update(map(_key, answers))

  def diversity(self, task_type: str, answers: Sequence[str]) -> float:
    """Returns the mean of 1 - p(answer) over answers.

    p is the answer's fraction of all counted answers of the task type, or 0 if
    none were counted.
    """
    counts = self._counts.get(task_type, collections.Counter())
    total = max(counts.total(), 1)
    return 1.0 - float(np.mean([counts[_key(a)] / total for a in answers]))


class Surprise:
  """Rewards tasks whose answers the solver has rarely seen (AZR, D.4).

  The reward is 1 - p, where p is the answer's frequency among tasks that the
  solver was given in earlier steps. A task counts once per step.
  """

  def __init__(self) -> None:
    self._answered = AnswerCounts()

  def state_dict(self) -> dict[str, dict[str, int]]:
    """Returns the counts; see `AnswerCounts.state_dict`."""
    return self._answered.state_dict()

  def load_state_dict(self, state: dict[str, dict[str, int]]) -> None:
    """Restores what `state_dict` returned."""
    self._answered.load_state_dict(state)

  def rate_and_count(
    self, proposals: Sequence[Proposal], solutions: Sequence[Solution]
  ) -> None:
    """Sets `surprise` of valid proposals, then counts the step's tasks.

    Args:
      proposals: the proposals of the step.
      solutions: all solver responses of the step.
    """
    for proposal in proposals:
      if proposal.task is not None and proposal.verified:
        answers = _answers(proposal.task_type, proposal.task)
        proposal.program_metrics["surprise"] = self._answered.diversity(
          proposal.task_type, answers
        )
    for task_type, task in dict.fromkeys(
      (s.task_type, s.prompt.task) for s in solutions
    ):
      self._answered.add(task_type, _answers(task_type, task))


def _key(answer: str) -> str:
  text = answer.encode("utf-8", "surrogatepass")
  return hashlib.blake2b(text, digest_size=8).hexdigest()


async def measure(jobs: SharedJobs, proposal: Proposal) -> None:
  """Measures the program that a proposal contains.

  Induction proposals contain none and are skipped. Components of composite
  programs are excluded.
  """
  if isinstance(proposal.task, Triplet | EnvironmentTask):
    shown = proposal.prompt.task
    code = composite.without_components(proposal.task.code, shown.components)
    arguments = code, list(shown.references)
    future = jobs.submit(
      lambda executor: _submit(executor, _MEASURE, arguments)
    )
    proposal.program_metrics = dict(await Awaited(future, jobs) or {})


def count_answers(proposals: Sequence[Proposal], counts: AnswerCounts) -> None:
  """Sets `answer_diversity` of valid proposals.

  Args:
    proposals: all proposals of the step.
    counts: the answer counts of the run; the step's answers are added.
  """
  valid = [p for p in proposals if p.verified]
  for proposal in valid:
    assert proposal.task is not None
    counts.add(proposal.task_type, _answers(proposal.task_type, proposal.task))
  for proposal in valid:
    assert proposal.task is not None
    proposal.program_metrics["answer_diversity"] = counts.diversity(
      proposal.task_type, _answers(proposal.task_type, proposal.task)
    )


def _answers(task_type: str, task: Task) -> Sequence[str]:
  """Returns a task's reference answers, normalized so equal values match.

  Unverified tasks have none. That of an environment is what it does.
  """
  if not is_verified(task):
    return ()
  if isinstance(task, InductionTask):
    return task.outputs
  if isinstance(task, EnvironmentTask):
    return (task.behavior,)
  if isinstance(task, Instance):
    return (task.environment.behavior,)
  if task_type != ABDUCTION:
    return (task.output,)
  try:
    return (literals.arguments_text(task.input),)
  except literals.ParseError:  # Buffers of old runs may hold expressions.
    return (task.input,)


def metrics(proposals: Sequence[Proposal], prefix: str) -> dict[str, float]:
  """Returns the mean of each program metric per task type."""
  means: dict[str, float] = {}
  for task_type in dict.fromkeys(p.task_type for p in proposals):
    measured = [
      p.program_metrics for p in proposals if p.task_type == task_type
    ]
    for name in dict.fromkeys(itertools.chain.from_iterable(measured)):
      values = [values[name] for values in measured if name in values]
      means[f"program/{prefix}/{task_type}/{name}"] = float(np.mean(values))
  return means


async def gold_minus_answer(
  jobs: SharedJobs, solution: Solution
) -> float | None:
  """Returns the reference's cognitive complexity minus the answer's (C.5).

  None if the solution is not a correct induction program.
  """
  answer = parsing.parse_program_answer(solution.completion.text)
  if solution.task_type != INDUCTION or not solution.correct or not answer:
    return None
  pair = solution.prompt.task.code, answer
  future = jobs.submit(lambda executor: _submit(executor, _DIFFERENCE, pair))
  return await Awaited(future, jobs)


def solution_metrics(
  differences: Sequence[float | None], prefix: str
) -> dict[str, float]:
  """Returns the mean difference as a metric; {} if none is known."""
  known = [one for one in differences if one is not None]
  if not known:
    return {}
  return {
    f"program/{prefix}/{INDUCTION}/gold_minus_answer": float(np.mean(known))
  }


def _submit(
  executor: Executor, program: str, arguments: tuple[Any, ...]
) -> "Future[Any]":
  """Submits a job; its future holds the return value, or None on failure."""
  text = ", ".join(map(ascii, arguments))
  job = Job("measures", program, (text,), libraries=(LIBRARY,))
  return futures.then(executor.submit(job), _value)


def _value(result: Result) -> Any:
  output = result.outputs[0]
  return None if output is None else literals.literal_value(output)
