"""Advantage estimators: rewards and groups in, advantages out.

Pure NumPy on the host: one value per trajectory.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from jaxtyping import Float, Int

# Added to a standard deviation before rewards are divided by it.
EPSILON = 1e-6
# Floor of the variance when advantages are normalised.
_MIN_VARIANCE = 1e-8

Estimator = Callable[[np.ndarray, Sequence[Hashable], np.ndarray], np.ndarray]


def _standardise(
  rewards: Float[np.ndarray, " N"], weights: np.ndarray
) -> Float[np.ndarray, " N"]:
  """Returns (r - mean) / std with weighted moments; 0 when all r are equal.

  The deviation is that of the population: divided by N, not by N - 1.
  """
  if np.ptp(rewards) == 0:
    return np.zeros_like(rewards)
  mean = np.average(rewards, weights=weights)
  variance = np.average((rewards - mean) ** 2, weights=weights)
  return (rewards - mean) / (np.sqrt(variance) + EPSILON)


def reinforce_plus_plus(
  rewards: Float[np.ndarray, " N"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " N"],
) -> Float[np.ndarray, " N"]:
  """Returns REINFORCE++: one baseline for the whole batch (AZR, eq. 10)."""
  del groups, lengths
  return _standardise(rewards, np.ones_like(rewards))


def _standardise_groups(
  rewards: Float[np.ndarray, " N"],
  groups: Sequence[Hashable],
  weights: np.ndarray,
) -> Float[np.ndarray, " N"]:
  """Applies `_standardise` to each group by itself."""
  advantages = np.zeros_like(rewards)
  for group in dict.fromkeys(groups):
    members = np.array([other == group for other in groups])
    advantages[members] = _standardise(rewards[members], weights[members])
  return advantages


def task_relative(
  rewards: Float[np.ndarray, " N"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " N"],
) -> Float[np.ndarray, " N"]:
  """Returns TRR++: mean and std within each task type and role (AZR, eq. 8).

  A = (r - mean_group) / (std_group + 1e-6), population std over responses.
  A group of one, or of equal rewards, has advantage 0.
  """
  del lengths
  return _standardise_groups(rewards, groups, np.ones_like(rewards))


def task_relative_by_token(
  rewards: Float[np.ndarray, " N"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " N"],
) -> Float[np.ndarray, " N"]:
  """Returns TRR++ with moments over tokens, as AZR's published code has it.

  Each response counts with its length, so long ones pull the baseline.
  """
  return _standardise_groups(rewards, groups, lengths.astype(rewards.dtype))


def leave_one_out(
  rewards: Float[np.ndarray, " N"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " N"],
) -> Float[np.ndarray, " N"]:
  """Returns RLOO: the baseline is the mean of the others (Countdown, eq. 1).

  A = r - mean of the other G - 1 of the group, not divided by a deviation. A
  group of one, or of equal rewards, has advantage 0.
  """
  del lengths
  members_of: dict[Hashable, list[int]] = {}
  for index, group in enumerate(groups):
    members_of.setdefault(group, []).append(index)
  advantages = np.zeros_like(rewards)
  for members in members_of.values():
    group_rewards = rewards[members]
    if np.ptp(group_rewards) > 0:
      others = (group_rewards.sum() - group_rewards) / (len(members) - 1)
      advantages[members] = group_rewards - others
  return advantages


def standardised_unbiased(
  rewards: Float[np.ndarray, " N"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " N"],
) -> Float[np.ndarray, " N"]:
  """Returns GRPO with the unbiased deviation, as verl and Search-R1 have it.

  A = (r - mean) / (s + 1e-6), where s^2 divides by G - 1. With G = 5 advantages
  are sqrt(4 / 5) of those with the population's deviation. A group of one has
  advantage 0 here; verl, which has no baseline for it, gives it its reward.
  """
  del lengths
  advantages = np.zeros_like(rewards)
  for group in dict.fromkeys(groups):
    members = np.array([other == group for other in groups])
    own = rewards[members]
    if np.ptp(own) > 0:
      deviation = own.std(ddof=1) + EPSILON
      advantages[members] = (own - own.mean()) / deviation
  return advantages


def group_mean(
  rewards: Float[np.ndarray, " N"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " N"],
) -> Float[np.ndarray, " N"]:
  """Returns GRPO without the division by the deviation: r - mean of the group.

  ORZ's published GRPO computes this, because a slip leaves the deviation out.
  """
  del lengths
  names, members = np.unique(
    [str(group) for group in groups], return_inverse=True
  )
  sums = np.bincount(members, rewards, len(names))
  return rewards - (sums / np.bincount(members, minlength=len(names)))[members]


def _rewards_unchanged(
  rewards: Float[np.ndarray, " N"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " N"],
) -> Float[np.ndarray, " N"]:
  """Returns the rewards; GAE starts from them on the device, with a critic."""
  del groups, lengths
  return rewards


GAE = "gae"
ESTIMATORS: dict[str, Estimator] = {
  "trr++": task_relative,
  "trr++_by_token": task_relative_by_token,
  "reinforce++": reinforce_plus_plus,
  "grpo": task_relative,  # GRPO is the same formula with prompts as groups.
  "grpo_unbiased": standardised_unbiased,
  "grpo_mean": group_mean,
  "rloo": leave_one_out,
  GAE: _rewards_unchanged,
}


def estimate(
  name: str,
  rewards: Sequence[float],
  groups: Sequence[Hashable],
  lengths: Sequence[int],
  normalize: bool = False,
) -> Float[np.ndarray, " N"]:
  """Applies the named estimator.

  Args:
    name: a key of `ESTIMATORS`.
    rewards: one per trajectory, [N].
    groups: the group of each trajectory, [N].
    lengths: completion tokens of each trajectory, [N].
    normalize: give advantages mean 0 and deviation 1 over all tokens of the
      batch (ORZ); those of `GAE` are normalised on the device instead.

  Returns:
    float32 [N], the advantage of every token of each trajectory.
  """
  advantages = ESTIMATORS[name](
    np.asarray(rewards, np.float64), groups, np.asarray(lengths)
  )
  if normalize and name != GAE:
    mean = np.average(advantages, weights=lengths)
    variance = np.average((advantages - mean) ** 2, weights=lengths)
    advantages = (advantages - mean) / np.sqrt(max(variance, _MIN_VARIANCE))
  return advantages.astype(np.float32)
