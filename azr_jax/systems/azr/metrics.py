"""Metrics of a step of self-play, per task type and role."""

from collections.abc import Sequence

import numpy as np

from azr_jax import types
from azr_jax.systems import collect
from azr_jax.systems.azr import rewards
from azr_jax.systems.azr.proposer import Proposal
from azr_jax.systems.azr.solver import Solution
from azr_jax.tasks.programs.task import is_verified

NAME = "azr"
# Metric family -> what a healthy value looks like.
HEALTHY = {
  # Reasons of rejected_REASON: `input` is an input that is not a literal;
  # `unused` and `trivial` are composite programs that add nothing to their
  # components; `no_error` is a program that should have raised.
  "proposals": "valid_fraction rises; rejected_blocked and rejected_timeout "
  "stay rare",
  "program": "cognitive, distance and answer_diversity rise or stay level",
  "learnability": "solve_rate away from 0 and 1, where there is no signal; "
  "undecided_fraction (rollouts whose grading timed out) near 0",
  "buffer": "grows by about B x task_fraction per step",
  "guide": "grades differ: grade_std above 0; unread_fraction near 0",
  "labels": "majority labels: agreement with the executor near 1, gap near 0",
  "gate": "unverified tasks in the step: 0 with unverified_fraction=0",
}


def step_metrics(
  trajectories: Sequence[types.Trajectory],
) -> dict[str, float]:
  """Returns rewards, lengths, counts and accuracy per task type and role."""
  metrics: dict[str, float] = {}
  for group in dict.fromkeys(t.group_id for t in trajectories):
    assert isinstance(group, tuple)
    members = [t for t in trajectories if t.group_id == group]
    metrics |= collect.solve_metrics(members, "/".join((NAME, *group)))
    lost = [
      t.metrics["repetition"] for t in members if "repetition" in t.metrics
    ]
    if lost:
      name = f"proposals/{NAME}/{group[0]}/repetition_penalty"
      metrics[name] = float(np.mean(lost))
  return metrics


def response_metrics(
  role: str, responses: Sequence[Proposal] | Sequence[Solution]
) -> dict[str, float]:
  """Returns lengths, counts and format of responses per task type.

  Covers all responses, including those that are not trained on.
  """
  metrics: dict[str, float] = {}
  for task_type in dict.fromkeys(response.task_type for response in responses):
    of_type = [
      response for response in responses if response.task_type == task_type
    ]
    name = "/".join((NAME, task_type, role))
    metrics |= collect.response_metrics([r.completion for r in of_type], name)
    metrics[f"formatted/{name}/mean"] = float(
      np.mean([response.formatted for response in of_type])
    )
  return metrics


def proposal_metrics(
  proposals: Sequence[Proposal], samples: int, reward: str
) -> dict[str, float]:
  """Returns valid fraction, rejections and learnability per task type.

  `valid_fraction` is the fraction of proposals that earn their role's reward
  (eq. 6), not counting those admitted unverified. `task_fraction` also counts
  valid tasks from malformed responses, which enter the buffer too.

  Args:
    proposals: all proposals of the step.
    samples: learnability rollouts per proposal. A histogram counts proposals
      without undecided rollouts by their number of correct rollouts.
    reward: a key of `PROPOSER_REWARDS`.
  """
  metrics: dict[str, float] = {}
  for task_type in dict.fromkeys(p.task_type for p in proposals):
    of_type = [p for p in proposals if p.task_type == task_type]
    name = f"{NAME}/{task_type}"
    valid = [p for p in of_type if p.verified]
    earns_reward = [p for p in valid if p.earns_reward]
    metrics[f"proposals/{name}/valid_fraction"] = len(earns_reward) / len(
      of_type
    )
    metrics[f"proposals/{name}/task_fraction"] = len(valid) / len(of_type)
    metrics[f"proposals/{name}/duplicate_fraction"] = float(
      np.mean([p.duplicate for p in of_type])
    )
    composites = [p for p in of_type if p.prompt.task.components]
    if composites:
      fraction = len(composites) / len(of_type)
      metrics[f"proposals/{name}/composite_fraction"] = fraction
      metrics[f"proposals/{name}/composite_valid_fraction"] = float(
        np.mean([p.task is not None for p in composites])
      )
    for reason in dict.fromkeys(p.rejection for p in of_type if p.rejection):
      count = sum(p.rejection == reason for p in of_type)
      metrics[f"proposals/{name}/rejected_{reason}"] = float(count)
    solved = [p.solved for p in of_type if p.solved is not None]
    metrics |= _learnability_metrics(
      f"learnability/{name}", solved, samples, reward
    )
  return metrics


def gate_metrics(
  proposals: Sequence[Proposal], solutions: Sequence[Solution]
) -> dict[str, float]:
  """Returns how many tasks of the step are unverified, per task type.

  `admitted` counts proposals that the gate admitted. `solved_fraction` is the
  fraction of solutions whose task is unverified.
  """
  metrics: dict[str, float] = {}
  for task_type in dict.fromkeys(p.task_type for p in proposals):
    name = f"gate/{NAME}/{task_type}"
    admitted = sum(
      p.task is not None and not p.verified
      for p in proposals
      if p.task_type == task_type
    )
    metrics[f"{name}/admitted"] = float(admitted)
    solved = [s.prompt.task for s in solutions if s.task_type == task_type]
    if solved:
      metrics[f"{name}/solved_fraction"] = float(
        np.mean([not is_verified(task) for task in solved])
      )
  return metrics


def _learnability_metrics(
  name: str, solved: Sequence[rewards.Solved], samples: int, reward: str
) -> dict[str, float]:
  """Returns metrics of the proposals' learnability rollouts."""
  if not solved:
    return {}
  undecided = sum(counts.undecided for counts in solved)
  metrics = {
    f"{name}/mean": float(
      np.mean([rewards.min_reward(counts, reward) for counts in solved])
    ),
    f"{name}/never_solved_fraction": float(
      np.mean([counts.incorrect == counts.total for counts in solved])
    ),
    f"{name}/undecided_fraction": undecided / (samples * len(solved)),
  }
  rates = [counts.rate for counts in solved if counts.rate is not None]
  if rates:
    metrics[f"{name}/solve_rate"] = float(np.mean(rates))
  for correct in range(samples + 1):
    metrics[f"{name}/solved_{correct}_of_{samples}"] = float(
      sum(c.correct == correct and not c.undecided for c in solved)
    )
  return metrics
