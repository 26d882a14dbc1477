"""Advantage estimators: rewards and baseline groups in, advantages out.

Pure NumPy on the host: one value per trajectory.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

EPSILON = 1e-6

Estimator = Callable[[np.ndarray, Sequence[Hashable], np.ndarray], np.ndarray]


def _standardise(rewards: np.ndarray, weights: np.ndarray) -> np.ndarray:
  """(r - mean) / std with weighted moments; zeros when all r are equal."""
  if np.ptp(rewards) == 0:
    return np.zeros_like(rewards)
  mean = np.average(rewards, weights=weights)
  variance = np.average((rewards - mean) ** 2, weights=weights)
  return (rewards - mean) / (np.sqrt(variance) + EPSILON)


def reinforce_plus_plus(
  rewards: np.ndarray, groups: Sequence[Hashable], lengths: np.ndarray
) -> np.ndarray:
  """REINFORCE++: one baseline for the whole batch (AZR eq. 10)."""
  del groups, lengths
  return _standardise(rewards, np.ones_like(rewards))


def _per_group(
  rewards: np.ndarray, groups: Sequence[Hashable], weights: np.ndarray
) -> np.ndarray:
  advantages = np.zeros_like(rewards)
  for group in dict.fromkeys(groups):
    members = np.array([other == group for other in groups])
    advantages[members] = _standardise(rewards[members], weights[members])
  return advantages


def task_relative(
  rewards: np.ndarray, groups: Sequence[Hashable], lengths: np.ndarray
) -> np.ndarray:
  """TRR++: mean and std within each task type and role (AZR eq. 8).

  A = (r - mean_group) / (std_group + 1e-6), population std over responses.
  A group of one, or of equal rewards, has advantage 0.
  """
  del lengths
  return _per_group(rewards, groups, np.ones_like(rewards))


def task_relative_by_token(
  rewards: np.ndarray, groups: Sequence[Hashable], lengths: np.ndarray
) -> np.ndarray:
  """TRR++ as published code has it: moments over tokens, not responses.

  Each response counts with its length, so long ones pull the baseline.
  """
  return _per_group(rewards, groups, lengths.astype(rewards.dtype))


def leave_one_out(
  rewards: np.ndarray, groups: Sequence[Hashable], lengths: np.ndarray
) -> np.ndarray:
  """RLOO: the baseline is the mean of the group's others (seed 003, eq. 1).

  A = r - mean of the other G - 1; no division by a deviation. A group of one,
  or of equal rewards, has advantage 0.
  """
  del lengths
  members: dict[Hashable, list[int]] = {}
  for index, group in enumerate(groups):
    members.setdefault(group, []).append(index)
  advantages = np.zeros_like(rewards)
  for own in members.values():
    if np.ptp(rewards[own]) > 0:
      others = (rewards[own].sum() - rewards[own]) / (len(own) - 1)
      advantages[own] = rewards[own] - others
  return advantages


ESTIMATORS: dict[str, Estimator] = {
  "trr++": task_relative,
  "trr++_by_token": task_relative_by_token,
  "reinforce++": reinforce_plus_plus,
  "rloo": leave_one_out,
}


def estimate(
  name: str,
  rewards: Sequence[float],
  groups: Sequence[Hashable],
  lengths: Sequence[int],
) -> np.ndarray:
  """Applies the named estimator.

  Args:
    name: a key of `ESTIMATORS`.
    rewards: one per trajectory, [N].
    groups: the baseline group of each trajectory, [N].
    lengths: completion tokens of each trajectory, [N].

  Returns:
    float32 [N], the advantage of every token of each trajectory.
  """
  advantages = ESTIMATORS[name](
    np.asarray(rewards, np.float64), groups, np.asarray(lengths)
  )
  return advantages.astype(np.float32)
