"""Says whether self-play collapsed: held-out scores against varied proposals.

A model that is rewarded by tasks of its own can lose what it knew, and mostly
does so after its proposals have become alike (arXiv 2605.22217, section 4). So
a run's best held-out score is compared with its last one, and the diversity of
its first answers with that of its last ones.
"""

import dataclasses
import statistics
from collections.abc import Sequence

from azr_jax.report import changes, html_parts, units
from azr_jax.report.changes import Change, Estimate
from azr_jax.report.html_parts import Cell
from azr_jax.report.reading import Run

_SCORES = r"evaluation/(.+)/(pass@\d+)/unbiased"
_DIVERSITY = r"program/[^/]+/(.+)/answer_diversity"
# Two errors, for a score that was the best of one other.
_LEVEL = 0.05
COLLAPSED = "collapsed: worse than it was, with proposals that are more alike"
FORGETS = "worse than it was, with proposals as varied as before"
NARROWS = "no loss seen, with proposals that are more alike"
STABLE = "no loss seen, with proposals as varied as before"
UNKNOWN = "not known: there are too few steps, or scores without errors"
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
    change: the best, and the last.
    step: of the best.
    is_worse: whether it is a loss; None: errors are not known.
    largest: the loss that the errors do not exclude, a fraction; None: they are
      not known.
  """

  change: Change
  step: int
  is_worse: bool | None = None
  largest: float | None = None


def table(runs: Sequence[Run]) -> str:
  """Returns a row per run and held-out score, in HTML; "": nothing is known.

  Runs without two scores in training, or whose proposals were measured in fewer
  than three steps, have no row.
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
  """Returns what both changes say, and the loss that could be hidden."""
  if fall.is_worse is None or diversity.difference.stderr is None:
    return UNKNOWN
  text = _READINGS[fall.is_worse, diversity.difference.direction() == "down"]
  if fall.is_worse or fall.largest is None:
    return text
  return f"{text}; one of {100 * fall.largest:.1f} points would not be seen"


def of_best(run: Run, name: str) -> Fall | None:
  """Returns how far a score has fallen from its best evaluation to its last.

  Args:
    run: the run.
    name: a metric of evaluations; `NAME_stderr` has its standard errors.

  Returns:
    The fall; None if there are not two evaluations. The best of many is lucky,
    so a loss is one at a level of 0.05 divided by the number of the others.
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


def _diversity(run: Run) -> Change | None:
  """Returns the change of the diversity of answers, a mean over task types.

  Each type is compared with itself, at both ends of the steps in which it is
  known, so that one which begins or ends in the middle looks like no change.
  Types of too few steps for an error count only if all are so.
  """
  found = []
  for name in run.names(_DIVERSITY).values():
    values = [v for v in run.up_to(name, run.done) if v is not None]
    found.append(changes.of_ends(values, changes.window(len(values))))
  known = [one for one in found if one is not None]
  sure = [one for one in known if one.difference.stderr is not None]
  return changes.mean_change(sure or known)


def section(runs: Sequence[Run]) -> str:
  """Returns the section of verdicts; "" if no run has what they need."""
  note = (
    "A score is worse if it is below its best at a level of 0.05, corrected "
    "for the number of evaluations, taking the two as independent; diversity "
    "fell if its first and last steps differ by two standard errors."
  )
  verdicts = table(runs)
  if not verdicts:
    return ""
  return html_parts.section("Did self-play collapse?", verdicts, note)
