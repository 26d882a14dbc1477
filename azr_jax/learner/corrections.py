"""Importance weights that correct the policy loss of off-policy samples.

p is the policy at the start of the update. q is the behaviour policy, whose
log-probabilities the sampler returned. q may have older parameters, even for
part of a sequence, or different numerics. The policy loss of each target is
multiplied by a weight without gradient, made of the ratio r = p / q:

  truncate: min(r_t, cap) (token-level truncated importance sampling, TIS;
    IMPALA, arXiv 1802.01561, section 4.1, with lambda 0);
  mask: r_t, but 0 outside [low, high] (MIS);
  sequence_truncate, sequence_mask: the same with the ratio of t's sequence.

A sequence's ratio is the product of its targets' ratios, which is exact but
noisy, or their geometric mean, as in GSPO (arXiv 2507.18071, eq. 7).

Combined with the clipped ratio to p, this is decoupled PPO (AReaL, arXiv
2505.24298, eq. 5): p is its proximal policy, q its behaviour policy.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from azr_jax.config.settings import Invalid, Settings, setting
from azr_jax.learner import masked, segments
from azr_jax.types import Metrics

AUTO, NONE = "auto", "none"
KINDS = ("truncate", "mask", "sequence_truncate", "sequence_mask")
SEQUENCE_RATIOS = ("geometric_mean", "product")
# Metric names. The effective fraction is computed from the mean square of the
# weights.
_WEIGHT, _SQUARE, _EFFECTIVE, _TRUNCATED = (
  f"learner/correction/{name}"
  for name in (
    "weight",
    "weight_square",
    "effective_fraction",
    "truncated_fraction",
  )
)
# Log-ratios are clipped to plus or minus this, so that no weight overflows.
_MAX_LOG_RATIO = 20.0


# (log-ratio, mask, segment ids) -> (weights, 1 where a limit changed a ratio).
Correct: TypeAlias = Callable[
  ..., tuple[Float[Array, "B S"], Float[Array, "B S"]]
]


@dataclasses.dataclass(frozen=True)
class CorrectionSettings(Settings):
  """Limits of the importance weights."""

  cap: float = setting(2.0, "maximum weight of truncate", above=0, expert=True)
  low: float = setting(
    0.5, "ratio below which mask drops a token", minimum=0, expert=True
  )
  high: float = setting(
    2.0, "ratio above which mask drops a token", above=0, expert=True
  )
  sequence_ratio: str = setting(
    "geometric_mean",
    "how a sequence's ratio combines its tokens' ratios",
    choices=SEQUENCE_RATIOS,
    expert=True,
  )

  def check(self) -> None:
    """Rejects an empty range."""
    if self.low > self.high:
      raise self.invalid("low", f"at most high={self.high}")


def resolve(kind: str, may_be_off_policy: bool, is_weighted: bool) -> str:
  """Returns the correction that a configuration asks for.

  Args:
    kind: a name of `KINDS`, `NONE` or `AUTO`. `AUTO` truncates if samples may
      be off-policy.
    may_be_off_policy: whether q may differ from p.
    is_weighted: whether the policy loss itself multiplies by p / q.

  Raises:
    Invalid: samples would be weighted twice.
  """
  if kind == AUTO:
    return "truncate" if may_be_off_policy and not is_weighted else NONE
  if kind != NONE and is_weighted:
    raise Invalid(
      "learner.correction",
      f"={kind!r}: expected 'auto' or 'none', because the policy loss already "
      "has a ratio to the sampled log-probabilities",
    )
  return kind


def make(kind: str, settings: CorrectionSettings) -> Correct | None:
  """Returns `weights` with its kind and limits bound; None for `NONE`."""
  if kind == NONE:
    return None
  return functools.partial(weights, kind, **vars(settings))


def weights(
  kind: str,
  log_ratio: Float[Array, "B S"],
  mask: Float[Array, "B S"],
  segment_ids: Int[Array, "B S"],
  *,
  cap: float,
  low: float,
  high: float,
  sequence_ratio: str,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Returns the weight of each target, and 1 where a limit changed the ratio.

  Args:
    kind: one of `KINDS`.
    log_ratio: log p - log q, without gradient.
    mask: 1 where the model wrote the target.
    segment_ids: the index of the target's sequence in its row.
    cap: maximum weight of truncate.
    low: ratio below which mask drops a target.
    high: ratio above which mask drops a target.
    sequence_ratio: one of `SEQUENCE_RATIOS`.
  """
  if kind.startswith("sequence_"):
    if sequence_ratio == "product":
      log_ratio = segments.sums(log_ratio * mask, segment_ids)
    else:
      log_ratio = segments.means(log_ratio, mask, segment_ids)
  ratio = jnp.exp(jnp.clip(log_ratio, -_MAX_LOG_RATIO, _MAX_LOG_RATIO))
  if kind.endswith("truncate"):
    return jnp.minimum(ratio, cap), (ratio > cap) * 1.0
  outside = (ratio < low) | (ratio > high)
  return jnp.where(outside, 0.0, ratio), outside * 1.0


def sums(
  weights: Float[Array, "B S"],
  truncated: Float[Array, "B S"],
  mask: Float[Array, "B S"],
) -> Metrics:
  """Returns a micro-batch's sums of weights, their squares and truncations."""
  return {
    _WEIGHT: masked.masked_sum(weights, mask),
    _SQUARE: masked.masked_sum(weights**2, mask),
    _TRUNCATED: masked.masked_sum(truncated, mask),
  }


def with_effective_fraction(metrics: Metrics) -> Metrics:
  """Replaces the mean square of the weights by the effective fraction.

  The effective sample size as a fraction of the targets is
  (sum w)^2 / (n sum w^2). Without a correction, the metrics are returned
  unchanged.
  """
  if _SQUARE not in metrics:
    return metrics
  others = {name: x for name, x in metrics.items() if name != _SQUARE}
  fraction = metrics[_WEIGHT] ** 2 / jnp.maximum(metrics[_SQUARE], 1e-30)
  return others | {_EFFECTIVE: fraction}
