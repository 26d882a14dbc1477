"""Policy losses by name, with their settings.

`make` binds the hyperparameters from settings: a keyword names a field of the
loss's own section, or else of `PolicyLossSettings`. The formulas are in
`surrogate_losses.py`. To add a loss, write a function there and a row in
`POLICY_LOSSES`, or a function outside the package (docs/guide/extend.md).
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jaxtyping import Array, Bool

from azr_jax.config import named
from azr_jax.config.settings import Settings, setting
from azr_jax.learner import surrogate_losses, token_selection


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

  loss: Callable[..., surrogate_losses.Loss]
  choose: Callable[..., Bool[Array, "*B"]] | None = None
  section: str = ""
  is_weighted: bool = False
  is_penalty: bool = False


POLICY_LOSSES: dict[str, PolicyLoss] = {
  "clipped": PolicyLoss(surrogate_losses.clipped),
  "sequence_weighted": PolicyLoss(
    surrogate_losses.sequence_weighted, is_weighted=True
  ),
  "cispo": PolicyLoss(surrogate_losses.cispo, section="cispo"),
  "gspo": PolicyLoss(surrogate_losses.gspo, section="gspo"),
  "clip_cov": PolicyLoss(
    surrogate_losses.clip_cov,
    token_selection.choose_clip_cov,
    section="clip_cov",
  ),
  "kl_cov": PolicyLoss(
    surrogate_losses.kl_cov,
    token_selection.choose_kl_cov,
    section="kl_cov",
    is_penalty=True,
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
