"""Tells whether self-play collapsed, from held-out scores and diversity.

A model that is rewarded on its own tasks can forget what it knew, mostly after
its proposals have become alike (arXiv 2605.22217, section 4). So this compares
a run's best held-out score with its last one, and the diversity of its first
answers with that of its last ones.
"""

import dataclasses
import statistics
from collections.abc import Sequence

from azr_jax.report import changes, html_parts, units
from azr_jax.report.changes import Change, Estimate
from azr_jax.report.html_parts import Cell
from azr_jax.report.reading import LoggedRun

_SCORES = r"evaluation/(.+)/(pass@\d+)/unbiased"
_DIVERSITY = r"program/[^/]+/(.+)/answer_diversity"
# Significance level of a loss, before correcting for the number of evaluations.
_LEVEL = 0.05
COLLAPSED = "collapsed: the score fell, and proposals became more alike"
FORGETS = "the score fell, with proposals as varied as before"
NARROWS = "no loss detected, but proposals became more alike"
STABLE = "no loss detected, with proposals as varied as before"
UNKNOWN = "unknown: too few steps, or scores without errors"
_READINGS = {
  (True, True): COLLAPSED,
  (True, False): FORGETS,
  (False, True): NARROWS,
  (False, False): STABLE,
}


@dataclasses.dataclass(frozen=True)
class Fall:
  """A score's change from its best evaluation to its last one.

  Attributes:
    change: from the best evaluation to the last.
    step: step of the best evaluation.
    is_worse: whether the loss is significant; None if errors are unknown.
    largest: largest loss that the errors do not exclude, as a fraction; None if
      errors are unknown.
  """

  change: Change
  step: int
  is_worse: bool | None = None
  largest: float | None = None


def table(runs: Sequence[LoggedRun]) -> str:
  """Returns an HTML table with a row per run and held-out score, or "".

  A run needs two scores in training and diversity from at least three steps to
  have a row.
  """
  rows: list[Sequence[Cell]] = []
  for run in runs:
    diversity = _diversity(run)
    for label, name in run.names(_SCORES).items():
      fall = of_best(run, name)
      if fall is None or diversity is None:
        continue
      rows.append(
        [
          f"{run.name}, {label}",
          html_parts.change(fall.change, units.FRACTION),
          f"step {fall.step}",
          html_parts.change(diversity, "", is_goal=False),
          _reading(fall, diversity),
        ]
      )
  head = (
    "score",
    "best \N{RIGHTWARDS ARROW} last",
    "best in",
    "diversity, first \N{RIGHTWARDS ARROW} last",
    "reading",
  )
  return html_parts.table(head, rows) if rows else ""


def _reading(fall: Fall, diversity: Change) -> str:
  """Returns the verdict on both changes, and the loss that may be hidden."""
  if fall.is_worse is None or diversity.difference.stderr is None:
    return UNKNOWN
  text = _READINGS[fall.is_worse, diversity.difference.direction() == "down"]
  if fall.is_worse or fall.largest is None:
    return text
  return f"{text}; a loss of {100 * fall.largest:.1f} points may go undetected"


def of_best(run: LoggedRun, name: str) -> Fall | None:
  """Returns how far a score has fallen from its best evaluation to its last.

  Args:
    name: a metric of evaluations; `NAME_stderr` has its standard errors.

  Returns:
    The fall, or None with fewer than two evaluations. The best of many
    evaluations is a lucky one, so the significance level of 0.05 is divided by
    the number of the others.
  """
  errors = run.values.get(f"{name}_stderr", [None] * len(run.steps))
  found = [
    (step, Estimate(value, error))
    for step, value, error in zip(
      run.steps, run.values[name], errors, strict=True
    )
    if value is not None
  ]
  if len(found) < 2:
    return None
  step, best = max(found, key=lambda one: one[1].value)
  change = Change(best, found[-1][1])
  level = _LEVEL / (2 * (len(found) - 1))
  limit = statistics.NormalDist().inv_cdf(1 - level)
  difference = change.difference
  if difference.stderr is None:
    return Fall(change, step)
  loss, error = -difference.value, limit * difference.stderr
  return Fall(change, step, loss > error, loss + error)


def _diversity(run: LoggedRun) -> Change | None:
  """Returns the change in answer diversity, a mean over task types.

  Each type is compared with itself, between the first and last steps where it
  is known. So a type that is only known for part of the run does not look like
  a change. Types with too few steps for an error count only if all types have
  too few.
  """
  found = []
  for name in run.names(_DIVERSITY).values():
    values = [v for v in run.up_to(name, run.done) if v is not None]
    found.append(changes.of_ends(values, changes.window(len(values))))
  known = [one for one in found if one is not None]
  sure = [one for one in known if one.difference.stderr is not None]
  return changes.mean_change(sure or known)


def section(runs: Sequence[LoggedRun]) -> str:
  """Returns the section of verdicts, or "" if no run has the needed metrics."""
  note = (
    "A score is worse if it is below its best at a level of 0.05, corrected "
    "for the number of evaluations, taking the two as independent; diversity "
    "fell if its first and last steps differ by two standard errors."
  )
  verdicts = table(runs)
  if not verdicts:
    return ""
  return html_parts.section("Did self-play collapse?", verdicts, note)
