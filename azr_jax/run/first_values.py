"""Warns if a critic's first values are far larger than any reward.

Advantages are rewards minus values. If values are much larger than rewards,
advantages reflect the critic's random head instead of the rewards until the
critic has unlearned it, which takes hundreds of steps at ORZ's learning rate.
"""

from collections.abc import Mapping, Sequence

# The run warns if the mean |V| exceeds this many times the largest |reward|.
MARGIN = 2.0


def warning(
  metrics: Mapping[str, float], rewards: Sequence[float]
) -> str | None:
  """Returns a one-line warning about a critic's first values.

  Args:
    metrics: metrics of the first update, from before the critic learned.
    rewards: rewards of its trajectories; not all are 0.

  Returns:
    The warning, or None if there is no critic or its values are plausible.
  """
  size = metrics.get("critic/abs_value")
  largest = max(map(abs, rewards))
  if size is None or size <= MARGIN * largest:
    return None
  return (
    f"warning: the critic's first values have a mean size of {size:.3g}, but "
    f"no reward exceeds {largest:.3g}, so advantages hardly reflect rewards: "
    "use --config.critic.head_init=code, or a critic trained on "
    "rewards of this size"
  )
