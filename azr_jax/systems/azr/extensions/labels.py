"""Labels to grade solutions by: the executor's answer or a majority vote.

With `azr.labels = "executor"`, a solution is correct if the executor says so
(eq. 5). With `"majority"`, a task's label is the most frequent answer among its
learnability rollouts (TTRL, arXiv 2504.16084; R-Zero, arXiv 2508.05004), and a
solution is correct if it gives that answer. The label is stored with the task,
as in R-Zero, and grades later solutions too. A buffered task without a label,
such as a seed, gets `learnability_samples` rollouts to vote when it is solved.

`proposer_labels` sets the labels that reward proposers, the same or different.
Survive or Collapse (arXiv 2605.22217) varies both: the proposer sees the truth
while the solver does not, or the reverse.

With `"random"`, a solution is correct with chance 1/2, whatever it says;
malformed ones are still punished. Proposals are rewarded by the executor. It is
a control: what such a run gains does not come from the labels (Spurious
Rewards, arXiv 2506.10947).

A task that was admitted unverified (`gate.py`) has no answer from the executor,
so its label is always the vote.

The life of a label:
1. `solver.solve` grades responses and reads their votes.
2. `Labels.vote` counts the votes of a task's rollouts and sets its label.
3. `Labels.grade` grades solutions by the label. The executor's outcome remains
   in `Solution.truth`, for metrics.
"""

import collections
from collections.abc import Mapping, Sequence

import numpy as np

from azr_jax.grading.outcome import Outcome
from azr_jax.grading.votes import majority
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.systems.azr.rewards import Solved
from azr_jax.systems.azr.solver import Solution
from azr_jax.tasks.programs.buffer import TaskBuffer
from azr_jax.tasks.programs.task import Task, is_verified

EXECUTOR, MAJORITY, RANDOM = LABELS = ("executor", "majority", "random")
SAME = "labels"
PROPOSER_LABELS = (SAME, EXECUTOR, MAJORITY)


class Labels:
  """Labels of this step's tasks. Buffers store the labels of their tasks."""

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
    # Keyed by task, because the task may have left its buffer.
    self._new: dict[tuple[str, Task], str] = {}
    self._sums: dict[str, dict[str, list[float]]] = collections.defaultdict(
      lambda: collections.defaultdict(list)
    )

  def by_vote(self, task: Task) -> bool:
    """Returns whether solutions of a task are graded by the solvers' vote."""
    return self._kind == MAJORITY or not is_verified(task)

  def is_voted(self, task: Task) -> bool:
    """Returns whether the solver's or the proposer's reward uses a vote."""
    return self.by_vote(task) or self._for_proposers == MAJORITY

  def needs_vote(self, task_type: str, task: Task) -> bool:
    """Returns whether a task must be voted on before it is solved."""
    return self.by_vote(task) and self._label(task_type, task) is None

  def _label(self, task_type: str, task: Task) -> str | None:
    known = self._new.get((task_type, task))
    return known or self._buffers[task_type].label(task)

  def vote(self, rollouts: Sequence[Solution]) -> Solved:
    """Sets the label of one task, and grades its rollouts by the label.

    Args:
      rollouts: the rollouts of one task for which `is_voted`, in sample order.
        Their outcomes change if the task is labelled by vote.

    Returns:
      The outcome counts that reward the proposer.
    """
    task, task_type = rollouts[0].prompt.task, rollouts[0].task_type
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
        solution.relabel(outcome)
      if label is not None:
        self._new[task_type, task] = label
    return Solved.of(by_vote if uses_votes else truths)

  def grade(self, solutions: Sequence[Solution]) -> None:
    """Grades solutions of tasks whose labels are votes."""
    for solution in solutions:
      task, task_type = solution.prompt.task, solution.task_type
      if not self.by_vote(task):
        continue
      solution.relabel(_outcome(solution, self._label(task_type, task)))
      if solution.truth is not None:
        self._add_gap(solution, solution.truth)

  def draw(self, solutions: Sequence[Solution], seed: int, step: int) -> None:
    """Draws whether each solution of a step is right, if labels are random.

    Args:
      solutions: all solutions and rollouts of the step, in order.
      seed: the seed of the run.
      step: the step, a part of the random draws.
    """
    if self._kind != RANDOM:
      return
    rng = streams.generator(seed, Purpose.RANDOM_LABELS, step)
    drawn = rng.integers(2, size=len(solutions))
    for solution, is_right in zip(solutions, drawn, strict=True):
      truth = solution.outcome
      solution.relabel(Outcome.of(bool(is_right)))
      self._add_gap(solution, truth)

  def _add_gap(self, solution: Solution, truth: Outcome) -> None:
    gap = solution.correct - float(bool(truth))
    self._sums[solution.task_type]["gap"].append(gap)

  def keep(self) -> None:
    """Stores the new labels in the buffers."""
    for (task_type, task), label in self._new.items():
      self._buffers[task_type].set_label(task, label)

  def metrics(self, name: str) -> dict[str, float]:
    """Returns metrics of the votes per task type, for system `name`.

    `voted` counts tasks. `vote_fraction` is the fraction of a task's rollouts
    that agree with its label. `agreement` is the fraction of labels that the
    executor confirms. `gap` is the accuracy of solutions by label minus that by
    executor. The last two cover verified tasks only.
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
  """Grades a solution by a label.

  A solution whose evaluation timed out before it could vote stays undecided.
  """
  if solution.vote is not None:
    return Outcome.of(solution.vote == label)
  if solution.truth is not None and solution.truth.is_undecided:
    return solution.truth
  return Outcome.INCORRECT
