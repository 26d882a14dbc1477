"""Overlong reward shaping and filtering (DAPO).

Both work on the trajectories of any system, before advantages are estimated,
and are off by default:

* Soft overlong punishment lowers the reward of a response whose length comes
  near the maximum (eq. 13).
* Overlong filtering drops truncated responses from the loss. Their rewards
  still count in the baselines of their groups, because a group without its
  failures would look too good. They drop out of every denominator: a token
  mean divides by the trained tokens, a mean over sequences by the trained
  sequences (`packing.loss_weights`), and advantages are normalized over trained
  tokens. The critic, the entropy bonus and the KL term ignore them, too.

Paper: DAPO (arXiv 2503.14476), section 3.4.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Shaped

from azr_jax import types
from azr_jax.config.settings import Settings, setting


@dataclasses.dataclass(frozen=True)
class ShapingSettings(Settings):
  """Section `shaping`: overlong responses; off in the four papers."""

  overlong_buffer: int = setting(
    0,
    "L_cache: penalize this many tokens before rollout.max_tokens; 0 disables",
    paper="DAPO: 4096 of 20480",
    minimum=0,
  )
  overlong_penalty: float = setting(
    1.0,
    "penalty of a response of rollout.max_tokens",
    paper="DAPO: 1",
    minimum=0,
    expert=True,
  )
  mask_truncated: bool = setting(
    False, "drop responses truncated at rollout.max_tokens from the loss"
  )


def overlong_fraction_of(length: int, longest: int, buffer: int) -> float:
  """Returns the fraction of the penalty for a response of a given length.

  With L = `longest` and B = `buffer`, the fraction is 0 up to L - B tokens and
  rises linearly to 1 at L. The paper adds its negative to the reward (DAPO, eq.
  13).

  Args:
    length: number of tokens of the response.
    longest: L, the length at which responses are truncated.
    buffer: B; 0 disables the penalty.
  """
  if not buffer:
    return 0.0
  return min(max((length - (longest - buffer)) / buffer, 0.0), 1.0)


def shape_rewards(
  trajectories: Sequence[types.Trajectory],
  *,
  overlong_buffer: int,
  overlong_penalty: float,
  mask_truncated: bool,
  longest: int,
) -> tuple[list[types.Trajectory], dict[str, float]]:
  """Applies shaping to the trajectories of a step.

  Args:
    trajectories: trajectories of one step.
    overlong_buffer: number of tokens before `longest` that are penalized; 0
      disables the penalty.
    overlong_penalty: the penalty of a response of `longest` tokens.
    mask_truncated: whether truncated responses are dropped from the loss.
    longest: `rollout.max_tokens`, the length at which responses are truncated.

  Returns:
    The trajectories in the same order, and metrics: the fractions punished and
    masked, and the mean penalty. With shaping off, the trajectories are
    unchanged and there are no metrics.
  """
  shaped, metrics = list(trajectories), {}
  if overlong_buffer:
    lost = np.array(
      [
        overlong_penalty
        * overlong_fraction_of(
          len(t.completion.token_ids), longest, overlong_buffer
        )
        for t in shaped
      ]
    )
    shaped = [
      dataclasses.replace(t, reward=t.reward - loss)
      for t, loss in zip(shaped, lost.tolist(), strict=True)
    ]
    metrics["shaping/overlong_fraction"] = _mean(lost > 0)
    metrics["shaping/overlong_penalty"] = _mean(lost)
  if mask_truncated:
    truncated = [t.completion.finish_reason == "length" for t in shaped]
    shaped = [
      dataclasses.replace(t, in_loss=t.in_loss and not is_cut)
      for t, is_cut in zip(shaped, truncated, strict=True)
    ]
    metrics["shaping/masked_fraction"] = _mean(np.array(truncated))
  return shaped, metrics


def _mean(values: Shaped[np.ndarray, " trajectories"]) -> float:
  return float(np.mean(values)) if len(values) else 0.0
