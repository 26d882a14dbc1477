"""Advantage estimators: from rewards and groups to advantages.

Pure NumPy on the host, with one value per trajectory. GAE has one value per
token and needs a critic, so it runs on the device (`gae.py`), on batches that
hold rewards instead of advantages.
"""

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from azr_jax.config import named

# Added to a standard deviation before dividing by it.
EPSILON = 1e-6
# Rewards that differ by at most this much count as equal, because 0.1 + 0.2 and
# 0.3 round differently. For rewards above 1 the tolerance is relative.
_TOLERANCE = 1e-9
# Lower bound of the variance when advantages are normalized.
_MIN_VARIANCE = 1e-8

# (rewards, groups, lengths) -> advantages; `PASS_K` also takes k.
Estimator = Callable[..., Float[np.ndarray, " trajectories"]]


def _members(groups: Sequence[Hashable]) -> list[Int[np.ndarray, " _G"]]:
  """Returns the member indices of each group, in order."""
  indices: dict[Hashable, list[int]] = {}
  for index, group in enumerate(groups):
    indices.setdefault(group, []).append(index)
  return [np.array(members) for members in indices.values()]


def are_equal(rewards: Float[np.ndarray, "*B G"]) -> Bool[np.ndarray, "*B"]:
  """Returns whether the rewards of a group are equal up to rounding.

  Args:
    rewards: rewards of one group, or of several along the leading axes.
  """
  largest = np.maximum(np.abs(rewards).max(axis=-1), 1.0)
  return np.asarray(np.ptp(rewards, axis=-1) <= _TOLERANCE * largest)


def _standardize(
  rewards: Float[np.ndarray, " trajectories"],
  weights: Float[np.ndarray, " trajectories"],
) -> Float[np.ndarray, " trajectories"]:
  """Returns (r - mean) / std with weighted moments; 0 if all r are equal.

  The standard deviation is the population's, which divides by n, not n - 1.
  """
  if are_equal(rewards):
    return np.zeros_like(rewards)
  mean = np.average(rewards, weights=weights)
  variance = np.average((rewards - mean) ** 2, weights=weights)
  return (rewards - mean) / (np.sqrt(variance) + EPSILON)


def reinforce_plus_plus(
  rewards: Float[np.ndarray, " trajectories"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " trajectories"],
) -> Float[np.ndarray, " trajectories"]:
  """Returns REINFORCE++: one baseline for the whole batch (AZR, eq. 10)."""
  del groups, lengths
  return _standardize(rewards, np.ones_like(rewards))


def reward_alone(
  rewards: Float[np.ndarray, " trajectories"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " trajectories"],
) -> Float[np.ndarray, " trajectories"]:
  """Returns the rewards: no baseline.

  With rewards of 0 and 1 the update is fine-tuning on the responses that earned
  1, sampled by the current policy (rejection sampling fine-tuning, RAFT).
  """
  del groups, lengths
  return rewards


def _standardize_groups(
  rewards: Float[np.ndarray, " trajectories"],
  groups: Sequence[Hashable],
  weights: Float[np.ndarray, " trajectories"],
) -> Float[np.ndarray, " trajectories"]:
  """Applies `_standardize` to each group separately."""
  advantages = np.zeros_like(rewards)
  for members in _members(groups):
    advantages[members] = _standardize(rewards[members], weights[members])
  return advantages


def task_relative(
  rewards: Float[np.ndarray, " trajectories"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " trajectories"],
) -> Float[np.ndarray, " trajectories"]:
  """Returns TRR++: mean and std within each task type and role (AZR, eq. 8).

  A = (r - mean_group) / (std_group + 1e-6), population std over responses.
  A group of one response, or of equal rewards, has advantage 0.
  """
  del lengths
  return _standardize_groups(rewards, groups, np.ones_like(rewards))


def task_relative_by_token(
  rewards: Float[np.ndarray, " trajectories"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " trajectories"],
) -> Float[np.ndarray, " trajectories"]:
  """Returns TRR++ with moments over tokens, as in AZR's published code.

  Each response is weighted by its length, so long responses pull the baseline.
  We divide by the population deviation + 1e-6. The published code's variance
  divides by the number of tokens - 1 and adds 1e-8 inside the root. Advantages
  differ by less than 1e-4.
  """
  return _standardize_groups(rewards, groups, lengths.astype(rewards.dtype))


def leave_one_out(
  rewards: Float[np.ndarray, " trajectories"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " trajectories"],
) -> Float[np.ndarray, " trajectories"]:
  """Returns RLOO: the baseline is the mean of the others (Countdown, eq. 1).

  A = r - mean of the group's other G - 1 rewards, with no division by a
  standard deviation. A group of one, or of equal rewards, has advantage 0.
  """
  del lengths
  advantages = np.zeros_like(rewards)
  for members in _members(groups):
    group_rewards = rewards[members]
    if not are_equal(group_rewards):
      others = (group_rewards.sum() - group_rewards) / (len(members) - 1)
      advantages[members] = group_rewards - others
  return advantages


def grpo_sample_std(
  rewards: Float[np.ndarray, " trajectories"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " trajectories"],
) -> Float[np.ndarray, " trajectories"]:
  """Returns GRPO with the sample deviation, as in verl and Search-R1.

  A = (r - mean) / (s + 1e-6), where s^2 divides by G - 1. With G = 5,
  advantages are sqrt(4 / 5) times those with the population deviation. A group
  of one has advantage 0 here; verl has no baseline for it and uses its reward.
  """
  del lengths
  advantages = np.zeros_like(rewards)
  for members in _members(groups):
    group_rewards = rewards[members]
    if not are_equal(group_rewards):
      deviation = group_rewards.std(ddof=1) + EPSILON
      centred = group_rewards - group_rewards.mean()
      advantages[members] = centred / deviation
  return advantages


def minus_group_mean(
  rewards: Float[np.ndarray, " trajectories"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " trajectories"],
) -> Float[np.ndarray, " trajectories"]:
  """Returns GRPO without the division by the deviation: r - group mean.

  ORZ's published GRPO computes this, because a bug leaves the deviation out.
  """
  del lengths
  advantages = np.zeros_like(rewards)
  for members in _members(groups):
    group_rewards = rewards[members]
    if not are_equal(group_rewards):
      advantages[members] = group_rewards - group_rewards.mean()
  return advantages


def best_of_k(
  rewards: Float[np.ndarray, " trajectories"],
  groups: Sequence[Hashable],
  lengths: Int[np.ndarray, " trajectories"],
  k: int,
) -> Float[np.ndarray, " trajectories"]:
  """Returns the advantage of pass@k training, in closed form.

  Every set of k of a group's G responses earns its largest reward. A response's
  advantage is the mean over the sets that contain it, minus the mean over all
  sets, divided by their deviation + 1e-6. With rewards 0 and 1, of which n are
  0, and R = 1 - C(n, k) / C(G, k), this is (1 - R) / sqrt(R (1 - R)) for a
  right response and (1 - R - C(n - 1, k - 1) / C(G - 1, k - 1)) /
  sqrt(R (1 - R)) for a wrong one (arXiv 2508.10751, eq. 14 and 15).

  Args:
    rewards: one reward per trajectory.
    groups: the group of each trajectory.
    lengths: unused.
    k: responses per set. A group of k or fewer has only one set, so its
      advantages are 0.
  """
  del lengths
  advantages = np.zeros_like(rewards)
  for members in _members(groups):
    group_rewards = rewards[members]
    if len(group_rewards) > k and not are_equal(group_rewards):
      advantages[members] = _best_of_sets(group_rewards, k)
  return advantages


def _best_of_sets(
  rewards: Float[np.ndarray, " G"], k: int
) -> Float[np.ndarray, " G"]:
  """Returns the advantages of one group, as defined in `best_of_k`."""
  count = len(rewards)
  order = np.argsort(rewards, kind="stable")
  ranked = rewards[order]
  # For each rank, the fraction of sets whose best response has that rank.
  sets = math.comb(count, k)
  best = np.array([math.comb(rank, k - 1) / sets for rank in range(count)])
  mean = float(best @ ranked)
  deviation = math.sqrt(float(best @ (ranked - mean) ** 2))
  # The same for the sets that contain a given response. Either it is the best,
  # or a better one is, and the other k - 2 rank below that one.
  sets = math.comb(count - 1, k - 1)
  is_best = np.array([math.comb(m, k - 1) / sets for m in range(count)])
  better = [
    math.comb(m - 1, k - 2) / sets * ranked[m] if k > 1 and m else 0.0
    for m in range(count)
  ]
  # Sums over all higher ranks.
  above = np.append(np.cumsum(better[::-1])[::-1][1:], 0.0)
  advantages = np.empty_like(rewards)
  mean_with = is_best * ranked + above
  advantages[order] = (mean_with - mean) / (deviation + EPSILON)
  return advantages


# The estimator on the device.
GAE = "gae"
PASS_K = "pass@k"
# Estimators whose advantages are not 0 in a group of equal rewards.
WITHOUT_GROUPS = ("reward", "reinforce++", GAE)
ESTIMATORS: dict[str, Estimator] = {
  "trr++": task_relative,
  "trr++_by_token": task_relative_by_token,
  "reinforce++": reinforce_plus_plus,
  "reward": reward_alone,
  "grpo": task_relative,  # GRPO is the same formula with prompts as groups.
  "grpo_sample_std": grpo_sample_std,
  "grpo_mean": minus_group_mean,
  # Dr. GRPO also needs learner.aggregation=fixed_length.
  "dr_grpo": minus_group_mean,
  "rloo": leave_one_out,
  PASS_K: best_of_k,
}


def load(name: str) -> Estimator:
  """Returns an estimator by its name.

  Args:
    name: a key of `ESTIMATORS`, or MODULE:NAME of a function of rewards, groups
      and lengths.

  Raises:
    ValueError: there is no such estimator. The message says what was expected.
  """
  return named.choose(name, ESTIMATORS, callable, "an estimator")


def estimate(
  name: str,
  rewards: Sequence[float],
  groups: Sequence[Hashable],
  lengths: Sequence[int],
  normalize: bool = False,
  pass_k: int = 4,
  in_loss: Sequence[bool] | None = None,
) -> Float32[np.ndarray, " trajectories"]:
  """Applies the named estimator.

  Args:
    name: a key of `ESTIMATORS`, or MODULE:NAME; see `load`.
    rewards: one reward per trajectory.
    groups: the group of each trajectory.
    lengths: number of tokens that the model wrote in each trajectory.
    normalize: give advantages mean 0 and deviation 1 over those tokens,
      counting only trajectories in the loss (ORZ).
    pass_k: responses per set of `PASS_K`; other estimators ignore it.
    in_loss: whether each trajectory is trained on. None if all are. The
      rewards of the others still count in the baselines.

  Returns:
    The advantage of every token of each trajectory.
  """
  if not len(rewards):
    return np.zeros(0, np.float32)
  numbers = {"k": pass_k} if name == PASS_K else {}
  advantages = load(name)(
    np.asarray(rewards, np.float64), groups, np.asarray(lengths), **numbers
  )
  if normalize:
    trained = np.ones(len(rewards), bool) if in_loss is None else in_loss
    advantages = _normalized(advantages, np.multiply(lengths, trained))
  return advantages.astype(np.float32)


def _normalized(
  advantages: Float[np.ndarray, " trajectories"],
  tokens: Int[np.ndarray, " trajectories"],
) -> Float[np.ndarray, " trajectories"]:
  """Returns advantages with mean 0 and deviation 1 over trained tokens.

  Args:
    advantages: the advantage of each trajectory.
    tokens: number of trained tokens of each trajectory. If all are 0, the
      advantages are returned unchanged.
  """
  if not tokens.any():
    return advantages
  mean = np.average(advantages, weights=tokens)
  variance = np.average((advantages - mean) ** 2, weights=tokens)
  return (advantages - mean) / np.sqrt(max(variance, _MIN_VARIANCE))


def groups_differ(
  rewards: Sequence[float], groups: Sequence[Hashable]
) -> list[bool]:
  """Returns, for each trajectory, whether its group's rewards differ.

  Rewards that are equal up to rounding do not differ (`are_equal`).

  In a group without differences no response is better than another, and all
  estimators except `WITHOUT_GROUPS` give advantage 0.

  Args:
    rewards: one reward per trajectory.
    groups: the group of each trajectory.
  """
  values = np.asarray(rewards, np.float64)
  differ = np.zeros(len(values), bool)
  for members in _members(groups):
    differ[members] = not are_equal(values[members])
  return differ.tolist()
