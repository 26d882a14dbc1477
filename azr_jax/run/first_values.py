"""Warns of a critic whose first values are far from any reward.

Advantages are rewards less values. Where values are much larger than rewards,
advantages show the critic's head and hardly the rewards, until the critic has
unlearned it, which takes hundreds of steps at ORZ's rate.
"""

from collections.abc import Mapping, Sequence

# A mean |V| of so many times the largest |reward| is warned of.
MARGIN = 2.0


def warning(
  metrics: Mapping[str, float], rewards: Sequence[float]
) -> str | None:
  """Returns what to tell the user of a critic's first values, in one line.

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
    f"warning: the critic's first values have a mean size of {size:.3g}, and "
    f"no reward is larger than {largest:.3g}: advantages are nearly all "
    "critic; expected --config.critic.head_init=code, or a critic that was "
    "trained on such rewards"
  )
