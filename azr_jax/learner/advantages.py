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


def group_mean(
  rewards: np.ndarray, groups: Sequence[Hashable], lengths: np.ndarray
) -> np.ndarray:
  """GRPO without the division: r - mean of the group.

  What ORZ's published GRPO does, where a slip keeps the deviation out.
  """
  del lengths
  names, members = np.unique(
    [str(group) for group in groups], return_inverse=True
  )
  sums = np.bincount(members, rewards, len(names))
  return rewards - (sums / np.bincount(members, minlength=len(names)))[members]


def _rewards_themselves(
  rewards: np.ndarray, groups: Sequence[Hashable], lengths: np.ndarray
) -> np.ndarray:
  """What GAE starts from: on the device, with the critic's values."""
  del groups, lengths
  return rewards


GAE = "gae"
ESTIMATORS: dict[str, Estimator] = {
  "trr++": task_relative,
  "trr++_by_token": task_relative_by_token,
  "reinforce++": reinforce_plus_plus,
  "grpo": task_relative,  # The same formula; the groups are prompts.
  "grpo_mean": group_mean,
  "rloo": leave_one_out,
  GAE: _rewards_themselves,
}
_LEAST_VARIANCE = 1e-8


def estimate(
  name: str,
  rewards: Sequence[float],
  groups: Sequence[Hashable],
  lengths: Sequence[int],
  normalize: bool = False,
) -> np.ndarray:
  """Applies the named estimator.

  Args:
    name: a key of `ESTIMATORS`.
    rewards: one per trajectory, [N].
    groups: the baseline group of each trajectory, [N].
    lengths: completion tokens of each trajectory, [N].
    normalize: give advantages mean 0 and deviation 1 over all tokens of the
      batch (seed 002); not those of `GAE`, which the device normalises.

  Returns:
    float32 [N], the advantage of every token of each trajectory.
  """
  advantages = ESTIMATORS[name](
    np.asarray(rewards, np.float64), groups, np.asarray(lengths)
  )
  if normalize and name != GAE:
    mean = np.average(advantages, weights=lengths)
    variance = np.average((advantages - mean) ** 2, weights=lengths)
    advantages = (advantages - mean) / np.sqrt(max(variance, _LEAST_VARIANCE))
  return advantages.astype(np.float32)
