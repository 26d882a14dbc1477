"""What becomes of long responses before their advantages are estimated (DAPO).

Both parts work on the trajectories of any system, and are off by default:

* Soft overlong punishment lowers the reward of a response that comes near to
  the longest one (eq. 13).
* Overlong filtering takes truncated responses out of the loss. Their rewards
  stay in the baselines of their groups, because a group without its failures
  would look better than it is. They leave every denominator: a token mean
  divides by the tokens that are trained on, a mean over sequences by the
  sequences that are (`packing.loss_weights`), and advantages are normalised
  over trained tokens. So the critic, the entropy bonus and the KL term leave
  them out, too.

Paper: DAPO (arXiv 2503.14476), section 3.4.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from azr_jax import types
from azr_jax.config.settings import Settings, setting


@dataclasses.dataclass(frozen=True)
class ShapingSettings(Settings):
  """Section `shaping`: long responses, which the four papers leave alone."""

  overlong_buffer: int = setting(
    0,
    "L_cache, the last tokens before rollout.max_tokens, which cost; 0: off",
    paper="DAPO: 4096 of 20480",
    minimum=0,
  )
  overlong_penalty: float = setting(
    1.0,
    "what a response of rollout.max_tokens loses",
    paper="DAPO: 1",
    minimum=0,
    expert=True,
  )
  mask_truncated: bool = setting(
    False, "take responses that the longest length cut out of the loss"
  )


def overlong_fraction_of(length: int, longest: int, buffer: int) -> float:
  """Returns the part of the penalty that a response's length costs it.

  With L = `longest` and B = `buffer` it is 0 up to L - B tokens, rises linearly
  and is 1 at L; the paper adds the negative of it to the reward (DAPO, eq. 13).

  Args:
    length: tokens of the response.
    longest: L, the length at which responses are cut.
    buffer: B; 0: nothing costs.
  """
  if not buffer:
    return 0.0
  return min(max((length - (longest - buffer)) / buffer, 0.0), 1.0)


def shape(
  trajectories: Sequence[types.Trajectory],
  settings: ShapingSettings,
  longest: int,
) -> tuple[list[types.Trajectory], dict[str, float]]:
  """Returns trajectories with shaped rewards, and masks.

  Args:
    trajectories: of a step.
    settings: what is shaped.
    longest: `rollout.max_tokens`, the length at which responses are cut.

  Returns:
    The trajectories in the same order, and metrics: the fractions that were
    punished and masked, and the mean punishment. Without any shaping they are
    those that were given, and there are no metrics.
  """
  shaped, metrics = list(trajectories), {}
  if settings.overlong_buffer:
    lost = np.array(
      [
        settings.overlong_penalty
        * overlong_fraction_of(
          len(t.completion.token_ids), longest, settings.overlong_buffer
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
  if settings.mask_truncated:
    truncated = [t.completion.finish_reason == "length" for t in shaped]
    shaped = [
      dataclasses.replace(t, in_loss=t.in_loss and not is_cut)
      for t, is_cut in zip(shaped, truncated, strict=True)
    ]
    metrics["shaping/masked_fraction"] = _mean(truncated)
  return shaped, metrics


def _mean(values: Sequence[float] | np.ndarray) -> float:
  return float(np.mean(values)) if len(values) else 0.0
