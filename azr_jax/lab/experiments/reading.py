"""Puts the result of a comparison into words."""

from collections.abc import Mapping
from typing import Any

from azr_jax.lab.experiments import analysis
from azr_jax.lab.experiments.plan import (
  HIGHER,
  LOWER,
  NOT_LOWER,
  OutcomeSettings,
  Plan,
)

_SIGNS = {HIGHER: "above", LOWER: "below", NOT_LOWER: "not below"}


def scale(outcome: OutcomeSettings) -> float:
  """Returns the factor for display: scores are shown in percent."""
  return 100.0 if outcome.score else 1.0


def shown(outcome: OutcomeSettings, value: float, signed: bool = False) -> str:
  """Formats a value of an outcome; scores are in percent."""
  sign = "+" if signed else ""
  digits = ".1f" if outcome.score else ".3g"
  return f"{scale(outcome) * value:{sign}{digits}}"


def claim(plan: Plan, one: Mapping[str, Any]) -> str:
  """Returns the claim of a comparison in results.json, in words."""
  outcome = plan.outcomes[one["outcome"]]
  base = f"`{one['base']}`" if one["base"] else "0"
  text = f"{outcome.title}: `{one['arm']}` {_SIGNS[one['claim']]} {base}"
  if not one["margin"]:
    return text
  margin = shown(outcome, one["margin"])
  if one["claim"] == NOT_LOWER:
    return f"{text} by {margin}"
  return f"{text} (a difference of {margin} matters)"


def sentence(plan: Plan, one: Mapping[str, Any]) -> str:
  """Returns a paragraph on a comparison in results.json; "" if not run."""
  text, found = f"**{claim(plan, one)}**: ", one["verdict"]
  if found == analysis.NOT_RUN:
    return ""  # The table already lists it as not run.
  outcome = plan.outcomes[one["outcome"]]
  value = shown(outcome, one["difference"], signed=True)
  text += f"{verdict(plan, one)}. The difference is {value}"
  if one["interval"]:
    low, high = (shown(outcome, x, signed=True) for x in one["interval"])
    text += f", between {low} and {high}"
  text += ". "
  if found == analysis.OPEN:
    return text + _undecided(plan, one)
  if found == analysis.HOLDS:
    text += _small(one)
  return (
    text
    + "That says nothing of its cause beyond what the arms differ in, nor of "
    "other models and sizes."
  )


def verdict(plan: Plan, one: Mapping[str, Any]) -> str:
  """Returns the verdict of a comparison in results.json, for a table.

  A secondary comparison that holds is a hint, because its p-value is not
  corrected for the others. If the claim is excluded, the verdict says what the
  interval excludes.
  """
  if one["verdict"] == analysis.EXCLUDED:
    return _excluded(plan, one)
  if one["verdict"] == analysis.HOLDS and not one["primary"]:
    return "hint (not corrected)"
  return one["verdict"]


def _excluded(plan: Plan, one: Mapping[str, Any]) -> str:
  """Returns which differences the interval excludes."""
  margin = shown(plan.outcomes[one["outcome"]], one["margin"])
  if one["claim"] == NOT_LOWER:
    return f"lower by more than {margin}"
  if not one["margin"]:
    return "opposite sign"
  return f"no {'gain' if one['claim'] == HIGHER else 'loss'} of {margin}"


def _small(one: Mapping[str, Any]) -> str:
  """Returns a warning if a claim holds but the difference may not matter."""
  if one["claim"] == NOT_LOWER or not one["margin"]:
    return ""
  if min(map(abs, one["interval"])) >= one["margin"]:
    return ""
  return "It may be smaller than what matters. "


def _undecided(plan: Plan, one: Mapping[str, Any]) -> str:
  """Returns why a comparison is undecided."""
  if 1 in (len(one["seeds"]), len(one["base_seeds"])):
    return "Only one seed was run; another may differ by more."
  null = -one["margin"] if one["claim"] == NOT_LOWER else 0.0
  low, high = one["interval"]
  if not low <= null <= high:
    return (
      "Alone it would hold, but not after Holm's correction for several "
      f"claims at level {1 - plan.about.confidence:.2g}."
    )
  # The smallest detectable distance is measured from the tested difference.
  smallest = shown(
    plan.outcomes[one["outcome"]],
    null + one["smallest"],
    signed=one["claim"] == NOT_LOWER,
  )
  return (
    "These runs cannot tell. With so much noise a true difference of "
    f"{smallest} would be seen in {100 * plan.about.power:g} of 100 such "
    "experiments, a smaller one less often; that none was seen is no evidence "
    "that there is none."
  )
