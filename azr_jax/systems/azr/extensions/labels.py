"""What solutions are graded by: the executor's answer, or the solvers' vote.

With `azr.labels = "executor"` a solution is right if the executor says so (eq.
5). With `"majority"` the label of a task is the most frequent answer among its
learnability rollouts (TTRL, arXiv 2504.16084; R-Zero, arXiv 2508.05004), and a
solution is right if it is that answer. The label is kept with the task, as in
R-Zero, so later solutions are graded by it too. A task of the buffer that has
none, such as a seed, gets as many rollouts for its vote when it is solved.

A proposer is paid by the same labels, or by either kind, as `proposer_labels`
says. Survive or Collapse (arXiv 2605.22217) varies both: a proposer that sees
the truth beside solvers that do not, and the other way round.

A task that was admitted unverified (`gate.py`) has no answer of the executor,
so its label is the vote in either case.

The life of a label:
1. `solver.solve` grades responses and reads their votes;
2. `Labels.vote` counts the votes of a task's rollouts and sets its label;
3. `Labels.grade` grades solutions by it; the executor's outcome stays in their
   `truth`, for the metrics.
"""

import collections
from collections.abc import Mapping, Sequence

import numpy as np

from azr_jax.grading.outcome import Outcome
from azr_jax.grading.votes import majority
from azr_jax.systems.azr.rewards import Solved
from azr_jax.systems.azr.solver import Solution
from azr_jax.tasks.programs.buffer import TaskBuffer
from azr_jax.tasks.programs.task import Task, is_verified

EXECUTOR, MAJORITY = LABELS = ("executor", "majority")
SAME = "labels"
PROPOSER_LABELS = (SAME, *LABELS)


class Labels:
  """The labels of a step's tasks, of which buffers keep those of theirs."""

  def __init__(
    self, kind: str, for_proposers: str, buffers: Mapping[str, TaskBuffer]
  ):
    """Makes the labels of one step.

    Args:
      kind: one of `LABELS`.
      for_proposers: one of `PROPOSER_LABELS`.
      buffers: the tasks of each type, with the labels of earlier steps.
    """
    self._kind = kind
    self._for_proposers = kind if for_proposers == SAME else for_proposers
    self._buffers = buffers
    # By task type and task; the task may have left its buffer.
    self._new: dict[tuple[str, Task], str] = {}
    self._sums: dict[str, dict[str, list[float]]] = collections.defaultdict(
      lambda: collections.defaultdict(list)
    )

  def by_vote(self, task: Task) -> bool:
    """Returns whether solutions of a task are graded by the solvers' vote."""
    return self._kind == MAJORITY or not is_verified(task)

  def is_voted(self, task: Task) -> bool:
    """Returns whether the vote on a task is asked for."""
    return self.by_vote(task) or self._for_proposers == MAJORITY

  def needs_vote(self, task_type: str, task: Task) -> bool:
    """Returns whether a task must be voted on before it is solved."""
    return self.by_vote(task) and self._label(task_type, task) is None

  def _label(self, task_type: str, task: Task) -> str | None:
    known = self._new.get((task_type, task))
    return known or self._buffers[task_type].label(task)

  def vote(self, rollouts: Sequence[Solution]) -> Solved:
    """Sets the label of one task, and grades the rollouts that vote by it.

    Args:
      rollouts: of one task, in the order of their numbers. Those of a task
        that is not voted on stay as they are.

    Returns:
      How the task is solved, to its proposer.
    """
    task, task_type = rollouts[0].prompt.task, rollouts[0].task_type
    if not self.is_voted(task):
      return Solved.of([solution.outcome for solution in rollouts])
    label = majority([solution.vote for solution in rollouts])
    by_vote = [_outcome(solution, label) for solution in rollouts]
    sums = self._sums[task_type]
    sums["vote_fraction"].append(float(np.mean([*map(bool, by_vote)])))
    if is_verified(task):
      is_true = any(
        solution.truth and agrees
        for solution, agrees in zip(rollouts, by_vote, strict=True)
      )
      sums["agreement"].append(float(is_true))
    uses_votes = self._for_proposers == MAJORITY or not is_verified(task)
    truths = [s.truth for s in rollouts if s.truth is not None]
    if self.by_vote(task):
      for solution, outcome in zip(rollouts, by_vote, strict=True):
        solution.outcome = outcome
      if label is not None:
        self._new[task_type, task] = label
    return Solved.of(by_vote if uses_votes else truths)

  def grade(self, solutions: Sequence[Solution]) -> None:
    """Grades solutions by the labels of their tasks, if these are votes."""
    for solution in solutions:
      task, task_type = solution.prompt.task, solution.task_type
      if not self.by_vote(task):
        continue
      solution.outcome = _outcome(solution, self._label(task_type, task))
      if solution.truth is not None:
        gap = solution.correct - float(bool(solution.truth))
        self._sums[task_type]["gap"].append(gap)

  def keep(self) -> None:
    """Has the buffers keep the labels of their tasks."""
    for (task_type, task), label in self._new.items():
      self._buffers[task_type].set_label(task, label)

  def metrics(self, name: str) -> dict[str, float]:
    """Returns how tasks were voted on, by task type of system `name`.

    `voted` counts tasks, and `vote_fraction` is the fraction of a task's
    rollouts that agree with its label. `agreement` is the fraction of the
    labels that the executor calls correct, and `gap` how much more often a
    solution is correct by its label than by the executor; both are of verified
    tasks.
    """
    metrics: dict[str, float] = {}
    for task_type, sums in self._sums.items():
      prefix = f"labels/{name}/{task_type}"
      metrics[f"{prefix}/voted"] = float(len(sums["vote_fraction"]))
      for key, values in sums.items():
        if values:
          metrics[f"{prefix}/{key}"] = float(np.mean(values))
    return metrics


def _outcome(solution: Solution, label: str | None) -> Outcome:
  """Returns how a vote for a label is graded.

  A limit that ended the answer before it voted leaves it undecided.
  """
  if solution.vote is not None:
    return Outcome.of(solution.vote == label)
  if solution.truth is not None and solution.truth.is_undecided:
    return solution.truth
  return Outcome.INCORRECT
