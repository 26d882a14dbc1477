"""Policy losses: one function each, registered by name.

A loss takes the targets of a micro-batch, and its hyperparameters as keywords.
It returns the loss of each target and values for metrics, which are averaged
over trained targets. Nothing is aggregated here: the batch's `loss_weights`
from `packing.py` define how targets and sequences add up.

In the formulas, A is the target's advantage and r is the probability ratio of
the policy to the old policy. The old policy is the policy at the update's start
or, with `learner.ratio_to=sampled`, the sampler.

`make` binds the hyperparameters from settings: a keyword names a field of the
loss's own section, or else of `PolicyLossSettings`. To add a loss, write a
function and a row in `POLICY_LOSSES`, or a function outside the package
(docs/guide/extend.md).
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from azr_jax.config import named
from azr_jax.config.settings import Settings, setting
from azr_jax.learner import masked, order_statistics, segments
from azr_jax.types import Leaf


@dataclasses.dataclass(frozen=True)
class CispoSettings(Settings):
  """CISPO; its paper tunes the maximum weight and does not report it."""

  weight_max: float = setting(
    5.0, "maximum of the weight r; ScaleRL uses 4 to 8", above=0, expert=True
  )


@dataclasses.dataclass(frozen=True)
class GspoSettings(Settings):
  """GSPO, with the defaults of its paper's section 5.1."""

  clip_low: float = setting(
    3e-4,
    "GSPO clip range: sequence ratios below 1 - clip_low are clipped",
    above=0,
    expert=True,
  )
  clip_high: float = setting(
    4e-4,
    "GSPO clip range: sequence ratios above 1 + clip_high are clipped",
    above=0,
    expert=True,
  )


@dataclasses.dataclass(frozen=True)
class ClipCovSettings(Settings):
  """Clip-Cov, with the defaults of its paper's experiments."""

  fraction: float = setting(
    2e-4,
    "fraction of tokens whose gradient is dropped",
    above=0,
    maximum=1,
    expert=True,
  )
  low: float = setting(1.0, "minimum covariance of such a token", expert=True)
  high: float = setting(5.0, "maximum covariance of such a token", expert=True)

  def check(self) -> None:
    """Rejects an empty range."""
    if self.low >= self.high:
      raise self.invalid("low", f"less than high={self.high}")


@dataclasses.dataclass(frozen=True)
class KlCovSettings(Settings):
  """KL-Cov, with the defaults of its paper's 7B experiments."""

  fraction: float = setting(
    2e-3,
    "fraction of tokens that get the KL penalty",
    above=0,
    maximum=1,
    expert=True,
  )
  coef: float = setting(1.0, "weight of the KL penalty", minimum=0, expert=True)


@dataclasses.dataclass(frozen=True)
class PolicyLossSettings(Settings):
  """Hyperparameters of all policy losses; each loss reads its own."""

  iw_clip_max: float = setting(
    10.0, "maximum importance weight of sequence_weighted", above=0, expert=True
  )
  clip_low: float = setting(
    0.2, "PPO clip range: ratios below 1 - clip_low are clipped", above=0
  )
  clip_high: float = setting(
    0.2, "PPO clip range: ratios above 1 + clip_high are clipped", above=0
  )
  dual_clip: float = setting(
    0.0,
    "dual-clip PPO: maximum ratio where advantages are negative; 0 disables it",
    accepts=(lambda v: v == 0 or v > 1, "0 or a number above 1"),
    expert=True,
  )
  cispo: CispoSettings = CispoSettings()
  gspo: GspoSettings = GspoSettings()
  clip_cov: ClipCovSettings = ClipCovSettings()
  kl_cov: KlCovSettings = KlCovSettings()


class Targets(flax.struct.PyTreeNode):
  """The targets of a micro-batch.

  Attributes:
    logprobs: log-probabilities under the policy.
    old_logprobs: log-probabilities under the old policy, without gradient.
    sampled_logprobs: log-probabilities reported by the sampler.
    advantages: A.
    mask: 1 where the model wrote the target.
    segment_ids: the index of the target's sequence in its row.
    chosen: 1 where `PolicyLoss.choose` selected the target. None if the loss
      selects none.
    is_on_policy: whether the old policy is the policy, so that every r is 1.
  """

  logprobs: Float[Leaf, "B S"]
  old_logprobs: Float[Leaf, "B S"]
  sampled_logprobs: Float[Leaf, "B S"]
  advantages: Float[Leaf, "B S"]
  mask: Float[Leaf, "B S"]
  segment_ids: Int[Leaf, "B S"]
  chosen: Float[Leaf, "B S"] | None = None
  is_on_policy: bool = flax.struct.field(pytree_node=False, default=False)

  @property
  def ratio(self) -> Float[Array, "B S"]:
    """The ratio r of each target."""
    return jnp.exp(self.logprobs - self.old_logprobs)


# The loss of each target, and per-target values by metric name.
Loss: TypeAlias = tuple[Float[Array, "B S"], dict[str, Float[Array, "B S"]]]


def clipped(
  targets: Targets, *, clip_low: float, clip_high: float, dual_clip: float
) -> Loss:
  """Returns PPO's clipped objective as a loss (AZR, eq. 9).

  -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A). With `dual_clip`, the loss
  is at most -dual_clip A where A is negative (dual-clip PPO, arXiv 1912.09729).
  """
  loss = _clipped(targets.ratio, targets.advantages, clip_low, clip_high)
  if dual_clip:
    limit = -dual_clip * targets.advantages
    loss = jnp.where(targets.advantages < 0, jnp.minimum(loss, limit), loss)
  return loss, _clip_fraction(targets, targets.ratio, clip_low, clip_high)


def _clipped(
  ratio: Float[Array, "B S"],
  advantages: Float[Array, "B S"],
  clip_low: float,
  clip_high: float,
) -> Float[Array, "B S"]:
  clipped = jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
  return -jnp.minimum(ratio * advantages, clipped * advantages)


def _clip_fraction(
  targets: Targets,
  ratio: Float[Array, "B S"],
  clip_low: float,
  clip_high: float,
) -> dict[str, Float[Array, "B S"]]:
  """Returns where ratios are outside the clip range; empty if all are 1."""
  if targets.is_on_policy:
    return {}
  outside = (ratio < 1 - clip_low) | (ratio > 1 + clip_high)
  return {"learner/clip_fraction": outside * 1.0}


def sequence_weighted(targets: Targets, *, iw_clip_max: float) -> Loss:
  """Returns REINFORCE with one importance weight per sequence.

  -w A log p, w = min(exp(log p(sequence) - log q(sequence)), iw_clip_max),
  where q is the sampler and w has no gradient (Countdown, section 4). Summed
  over a sequence's targets this is -w A log p(sequence).

  Metrics average over targets, so long sequences count more.
  """
  log_ratio = targets.logprobs - targets.sampled_logprobs
  log_weights = segments.sums(
    jax.lax.stop_gradient(log_ratio) * targets.mask, targets.segment_ids
  )
  # Clip before the exponential, which could overflow.
  weights = jnp.exp(jnp.minimum(log_weights, jnp.log(iw_clip_max)))
  return -weights * targets.advantages * targets.logprobs, {
    "learner/weight": weights,
    "learner/clip_fraction": (weights >= iw_clip_max) * 1.0,
  }


def cispo(targets: Targets, *, weight_max: float) -> Loss:
  """Returns CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5).

  -min(r, weight_max) A log p. The clipped r has no gradient, so every target
  keeps the gradient of its log p. As in the paper, r has no lower bound.
  """
  ratio = jax.lax.stop_gradient(targets.ratio)
  weights = jnp.minimum(ratio, weight_max)
  loss = -weights * targets.advantages * targets.logprobs
  return loss, _clip_fraction(targets, ratio, 1.0, weight_max - 1.0)


def gspo(targets: Targets, *, clip_low: float, clip_high: float) -> Loss:
  """Returns GSPO (arXiv 2507.18071, eq. 5 and 7).

  -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A), where s is the geometric
  mean of r over the target's sequence. As in GSPO-token (eq. 14), s carries the
  gradient of the target's own log p. If the targets of a sequence share A and
  their weight, this equals GSPO's gradient. The paper's objective needs
  `learner.aggregation=sequence_mean`.
  """
  log_ratio = targets.logprobs - targets.old_logprobs
  mean = segments.means(
    jax.lax.stop_gradient(log_ratio), targets.mask, targets.segment_ids
  )
  own = targets.logprobs - jax.lax.stop_gradient(targets.logprobs)
  ratio = jnp.exp(mean + own)
  loss = _clipped(ratio, targets.advantages, clip_low, clip_high)
  return loss, _clip_fraction(targets, ratio, clip_low, clip_high)


def clip_cov(
  targets: Targets, *, clip_low: float, clip_high: float, dual_clip: float
) -> Loss:
  """Returns `clipped`, with 0 at the targets that `choose_clip_cov` selects.

  This is Clip-Cov (arXiv 2505.22617, section 4).
  """
  assert targets.chosen is not None
  loss, values = clipped(
    targets, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
  )
  return loss * (1.0 - targets.chosen), values


def kl_cov(targets: Targets, *, coef: float) -> Loss:
  """Returns -r A, plus coef |log r| at the targets `choose_kl_cov` selects.

  This is KL-Cov (arXiv 2505.22617, section 4). |log r| stands in for the KL to
  the old policy, and has no gradient where r is 1.
  """
  assert targets.chosen is not None
  log_ratio = targets.logprobs - targets.old_logprobs
  penalty = coef * jnp.abs(log_ratio) * targets.chosen
  return -targets.ratio * targets.advantages + penalty, {}


def covariances(
  logprobs: Float[Array, "*B"],
  advantages: Float[Array, "*B"],
  mask: Float[Array, "*B"],
) -> Float[Array, "*B"]:
  """Returns each target's term of Cov(log p, A) over a batch.

  (log p - mean log p) (A - mean A) (arXiv 2505.22617, section 4).
  """
  logprobs = logprobs - masked.masked_mean(logprobs, mask)
  return logprobs * (advantages - masked.masked_mean(advantages, mask))


def choose_clip_cov(
  covariances: Float[Array, "*B"],
  mask: Float[Array, "*B"],
  key: Key[Array, ""],
  *,
  fraction: float,
  low: float,
  high: float,
) -> Bool[Array, "*B"]:
  """Samples a fraction of all targets, from those with covariance in range.

  Selects all of those if they are fewer.

  Args:
    covariances: covariances of the whole batch's targets.
    mask: 1 where the model wrote the target.
    key: random key of the selection; consumed.
    fraction: fraction of all targets to select.
    low: exclusive lower bound of the selected covariances.
    high: exclusive upper bound of the selected covariances.
  """
  inside = (covariances > low) & (covariances < high)
  draws = jax.random.uniform(key, covariances.shape)
  return order_statistics.largest(draws, inside * mask, _count(mask, fraction))


def choose_kl_cov(
  covariances: Float[Array, "*B"],
  mask: Float[Array, "*B"],
  key: Key[Array, ""],
  *,
  fraction: float,
) -> Bool[Array, "*B"]:
  """Returns the targets with the largest covariances; the key is unused."""
  del key
  return order_statistics.largest(covariances, mask, _count(mask, fraction))


def _count(mask: Float[Array, "*B"], fraction: float) -> Int[Array, ""]:
  """Returns a fraction of the target count, rounded down, at least 1."""
  count = jnp.floor(fraction * jnp.sum(mask)).astype(jnp.int32)
  return jnp.maximum(count, 1)


@dataclasses.dataclass(frozen=True)
class PolicyLoss:
  """A policy loss and its requirements.

  Attributes:
    loss: returns the loss of each target and values for metrics. It takes the
      targets and, unless `make` bound them, hyperparameters as keywords.
    choose: selects targets before the update, from the whole batch's
      covariances: `(covariances, mask, key)` and hyperparameters as keywords.
    section: the section of `learner` with the loss's own hyperparameters; "" if
      there is none.
    is_weighted: whether the loss already weights samples by their probability
      under the sampler. Such a loss needs no correction and ignores the old
      policy.
    is_penalty: whether the old policy must differ from the policy. The loss has
      no clipping, and its penalty is 0 where r is 1.
  """

  loss: Callable[..., Loss]
  choose: Callable[..., Bool[Array, "*B"]] | None = None
  section: str = ""
  is_weighted: bool = False
  is_penalty: bool = False


POLICY_LOSSES: dict[str, PolicyLoss] = {
  "clipped": PolicyLoss(clipped),
  "sequence_weighted": PolicyLoss(sequence_weighted, is_weighted=True),
  "cispo": PolicyLoss(cispo, section="cispo"),
  "gspo": PolicyLoss(gspo, section="gspo"),
  "clip_cov": PolicyLoss(clip_cov, choose_clip_cov, section="clip_cov"),
  "kl_cov": PolicyLoss(
    kl_cov, choose_kl_cov, section="kl_cov", is_penalty=True
  ),
}


def load(name: str) -> PolicyLoss:
  """Returns a policy loss by its name, with its hyperparameters unbound.

  Args:
    name: a key of `POLICY_LOSSES`, or MODULE:NAME of a function or a
      `PolicyLoss`.

  Raises:
    ValueError: there is no such loss, or one of its keywords is neither a
      setting nor has a default. The message says what was expected.
  """
  found = named.choose(name, POLICY_LOSSES, _is_loss, "a policy loss")
  loss = found if isinstance(found, PolicyLoss) else PolicyLoss(found)
  if name in POLICY_LOSSES:
    return loss
  known = {field.name for field in dataclasses.fields(PolicyLossSettings)}
  lacking = [
    parameter.name
    for parameter in _keywords(loss.loss)
    if parameter.name not in known and parameter.default is parameter.empty
  ]
  if lacking:
    raise ValueError(
      f"a function whose keywords are fields of PolicyLossSettings or have "
      f"defaults, unlike {', '.join(lacking)}"
    )
  return loss


def _is_loss(found: Any) -> bool:
  return isinstance(found, PolicyLoss) or callable(found)


def make(name: str, settings: PolicyLossSettings) -> PolicyLoss:
  """Returns a policy loss by its name, with hyperparameters from settings."""
  row = load(name)
  own = vars(getattr(settings, row.section)) if row.section else {}
  numbers = vars(settings) | own
  choose = _bound(row.choose, numbers) if row.choose else None
  return dataclasses.replace(row, loss=_bound(row.loss, numbers), choose=choose)


def _bound(
  function: Callable[..., Any], numbers: Mapping[str, Any]
) -> Callable[..., Any]:
  """Binds the keywords of a function that are settings."""
  keywords = [parameter.name for parameter in _keywords(function)]
  return functools.partial(
    function, **{name: numbers[name] for name in keywords if name in numbers}
  )


def _keywords(function: Callable[..., Any]) -> list[inspect.Parameter]:
  """Returns the keyword-only parameters."""
  parameters = inspect.signature(function).parameters.values()
  return [p for p in parameters if p.kind is p.KEYWORD_ONLY]
