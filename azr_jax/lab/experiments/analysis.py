"""Analyses the runs of an experiment as its plan specified beforehand.

Scores of two arms are compared on the same items. Their seeds are two
independent samples, or pairs if the plan says so. The primary comparisons are
one family, whose p-values get Holm's correction.
"""

import dataclasses
import math

import numpy as np

from azr_jax.evals import statistics
from azr_jax.lab.experiments import checks, folders, outcomes
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.outcomes import START, OutcomeValues
from azr_jax.lab.experiments.plan import (
  LOWER,
  NOT_LOWER,
  PAIRED_SEEDS,
  ArmComparison,
  Plan,
)
from azr_jax.lab.statistics import hypotheses

_RESAMPLES = 10_000
HOLDS, EXCLUDED, OPEN, NOT_RUN = "holds", "excluded", "undecided", "not run"


@dataclasses.dataclass(frozen=True)
class Cell:
  """An outcome of an arm.

  Attributes:
    arm: name of the arm, or "start" for the model that runs start from.
    outcome: name of the outcome.
    seeds: the seeds that count.
    items: number of items N; 1 for a metric.
    mean: mean over seeds and items.
    seed_stderr: standard error over seeds; None with one seed.
    item_stderr: standard error over items; None with one item.
    by_seed: the mean of each seed.
  """

  arm: str
  outcome: str
  seeds: tuple[int, ...]
  items: int
  mean: float
  seed_stderr: float | None
  item_stderr: float | None
  by_seed: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Finding:
  """The result of a comparison.

  Attributes:
    comparison: the claim.
    seeds: the seeds of the arm; in paired comparisons, of both arms.
    base_seeds: the seeds of the base; () without a base or with pairs.
    items: number of items N.
    difference: mean of arm minus base.
    stderr: standard error of the difference, over seeds and items or over
      seeds alone: whichever gives the wider interval.
    df: degrees of freedom of `stderr`.
    interval: Student's t interval; None without a standard error.
    bootstrap: bootstrap interval over items and seeds.
    p: p-value of the claim's test.
    p_holm: p-value corrected for the other primary comparisons.
    planned: difference that the planned runs detect with the plan's power, at
      the expected noise; None if none was expected.
    smallest: the same at the observed noise; None if there is none.
    verdict: holds, excluded, undecided, or not run.
  """

  comparison: ArmComparison
  seeds: tuple[int, ...] = ()
  base_seeds: tuple[int, ...] = ()
  items: int = 0
  difference: float | None = None
  stderr: float | None = None
  df: float | None = None
  interval: tuple[float, float] | None = None
  bootstrap: tuple[float, float] | None = None
  p: float | None = None
  p_holm: float | None = None
  planned: float | None = None
  smallest: float | None = None
  verdict: str = NOT_RUN


def check_runs(workdir: Workdir) -> None:
  """Checks that there are runs, trained with the settings of their arms.

  Settings that were added after a run started are not compared: their defaults
  keep the old behavior.

  Raises:
    ValueError: no run has started, or one was trained with another value.
  """
  begun = [
    (arm, seed)
    for arm, seed in workdir.plan.runs()
    if folders.read_rows(workdir.run(arm, seed))
  ]
  if not begun:
    raise ValueError(
      f"{workdir.path}: expected runs of {workdir.plan.name}; "
      "nothing is written"
    )
  for arm, seed in begun:
    named = {"seed": seed, **workdir.overrides(arm, seed)}
    config = checks.config_of(workdir.plan.arms[arm].config, named)
    folders.check_run(workdir.run(arm, seed), config.to_dict(), {*named})


def cells(workdir: Workdir) -> list[Cell]:
  """Returns every outcome of every arm that has it.

  Raises:
    ValueError: all runs are done, and none has an outcome's metric.
  """
  found = []
  for name, outcome in workdir.plan.outcomes.items():
    for arm in (START, *workdir.plan.arms):
      samples = outcomes.read(workdir, arm, outcome)
      if samples is None:
        continue
      estimate = statistics.estimate(samples.values)
      found.append(
        Cell(
          arm,
          name,
          samples.seeds,
          samples.values.shape[1],
          estimate.mean,
          estimate.seed_stderr,
          estimate.item_stderr if samples.values.shape[1] > 1 else None,
          tuple(samples.values.mean(axis=1).tolist()),
        )
      )
    if outcome.metric and not any(one.outcome == name for one in found):
      if all(folders.is_done(workdir.run(*run)) for run in workdir.plan.runs()):
        raise ValueError(
          f"outcomes.{name}.metric={outcome.metric!r}: expected a metric of "
          "some run"
        )
  return found


def findings(workdir: Workdir) -> list[Finding]:
  """Returns the finding for each comparison of the plan."""
  family = [one for one in workdir.plan.comparisons if one.primary]
  found = [
    _find(workdir, one, len(family) if one.primary else 1)
    for one in workdir.plan.comparisons
  ]
  primary = [i for i, one in enumerate(found) if one.comparison.primary]
  # Comparisons that were not run still belong to the family.
  known = [p if p is not None else 1.0 for p in (found[i].p for i in primary)]
  for index, p in zip(primary, hypotheses.holm(known), strict=True):
    if found[index].p is not None:
      found[index] = dataclasses.replace(found[index], p_holm=p)
  alpha = 1 - workdir.plan.about.confidence
  return [
    dataclasses.replace(one, verdict=verdict(one, alpha)) for one in found
  ]


def verdict(finding: Finding, alpha: float) -> str:
  """Returns the verdict on a finding's claim.

  A claim holds if its corrected p-value is below alpha and the difference has
  the claimed sign. It is excluded if the interval contains no difference as
  large as the margin in the claimed direction or, for `not_lower`, none that
  the margin tolerates. Otherwise, and always with one seed of an arm, it is
  undecided.
  """
  if finding.difference is None:
    return NOT_RUN
  has_one_seed = 1 in (len(finding.seeds), len(finding.base_seeds))
  if finding.interval is None or has_one_seed:
    return OPEN
  claim, margin = finding.comparison.claim, finding.comparison.margin
  sign = -1 if claim == LOWER else 1
  ends = [sign * end for end in finding.interval]
  needed = -margin if claim == NOT_LOWER else margin
  p = finding.p if finding.p_holm is None else finding.p_holm
  assert p is not None  # It has an interval.
  if max(ends) < needed or (not margin and max(ends) <= 0):
    return EXCLUDED
  has_sign = claim == NOT_LOWER or sign * finding.difference > 0
  return HOLDS if p < alpha and has_sign else OPEN


def _find(workdir: Workdir, one: ArmComparison, family: int) -> Finding:
  """Returns a finding without correction and verdict.

  Args:
    workdir: the working directory with the runs.
    one: the comparison.
    family: number of comparisons to divide the error rate by.
  """
  about = workdir.plan.about
  not_lower = one.claim == NOT_LOWER
  alpha = (1 - about.confidence) / family
  planned = hypotheses.smallest_detectable(
    _planned(workdir.plan, one), alpha, about.power, one_sided=not_lower
  )
  planned = planned or None
  samples = _read(workdir, one)
  if samples is None:
    return Finding(one, planned=planned)
  arm, base = samples
  if base is None:
    mean = hypotheses.mean_of(arm.values)
  else:
    mean = hypotheses.difference_of(base.values, arm.values)
  boot = statistics.difference(
    np.zeros_like(arm.values[:1]) if base is None else base.values,
    arm.values,
    _RESAMPLES,
    about.confidence,
    # Published intervals came from this generator, so it has no purpose.
    np.random.default_rng(0),
  )
  null = -one.margin if not_lower else 0.0
  error = mean.error(about.confidence)
  return Finding(
    comparison=one,
    seeds=arm.seeds,
    base_seeds=base.seeds if base else (),
    items=arm.values.shape[1],
    difference=mean.value,
    stderr=error.stderr if error else None,
    df=error.df if error else None,
    interval=mean.interval(about.confidence),
    bootstrap=boot.over_both or (boot.over_items if error else None),
    p=mean.p_value(null, one_sided=not_lower),
    planned=planned,
    smallest=hypotheses.smallest_detectable(
      mean, alpha, about.power, one_sided=not_lower
    ),
  )


def _planned(plan: Plan, one: ArmComparison) -> hypotheses.Mean:
  """Returns a difference of 0 with the error expected over the seeds."""
  count = len(plan.about.seeds)
  if count == 1:
    return hypotheses.Mean(0.0)
  is_one_sample = one.base in ("", START) or plan.about.analysis == PAIRED_SEEDS
  df = (count - 1) * (1 if is_one_sample else 2)
  error = hypotheses.Error(one.expected_sd / math.sqrt(count), df)
  return hypotheses.Mean(0.0, (error,))


def _read(
  workdir: Workdir, one: ArmComparison
) -> tuple[OutcomeValues, OutcomeValues | None] | None:
  """Returns the values of the arm and its base, or None if one has none.

  There is one sample and no base without a base, with the start as base, and
  with paired seeds: the arm's values, their differences from the start's scores
  of the same items, or the differences of the seeds that both arms have.
  """
  outcome = workdir.plan.outcomes[one.outcome]
  arm = outcomes.read(workdir, one.arm, outcome)
  if arm is None:
    return None
  if not one.base:
    return arm, None
  base = outcomes.read(workdir, one.base, outcome)
  if base is None:
    return None
  outcomes.check_same_items(arm, base)
  if one.base == START:
    return OutcomeValues(arm.seeds, arm.items, arm.values - base.values), None
  if workdir.plan.about.analysis != PAIRED_SEEDS:
    return arm, base
  seeds = tuple(seed for seed in arm.seeds if seed in base.seeds)
  if not seeds:
    return None
  values = arm.of(seeds) - base.of(seeds)
  return OutcomeValues(seeds, arm.items, values), None
