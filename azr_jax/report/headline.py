"""The top of the page: whether a run learned, in numbers with errors.

Every sentence is computed. A change is called one only beyond two standard
errors; `changes.py` defines these.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from azr_jax.report import changes, html_parts, run_tables, units
from azr_jax.report.changes import Change
from azr_jax.report.html_parts import Cell, Html
from azr_jax.report.reading import LoggedRun
from azr_jax.report.scores import Benchmarks

_ARROW = "\N{RIGHTWARDS ARROW}"
_CORRECT, _REWARD = "correct in training", "reward in training"
_MAX_NAMED = 4  # quantities in a sentence
# Pattern of metrics -> name in the table. The pattern's groups are the label.
_EVALUATED = (
  (r"evaluation/(.+)/pass@1/unbiased", "pass@1"),
  (r"evaluation/(.+)/reward", "reward"),
)
_TRAINED = (
  (r"correct/[^/]+/(.+)/mean", _CORRECT),
  (r"reward/[^/]+/(.+)/mean", _REWARD),
  (r"tokens/[^/]+/(.+)/mean", "tokens per response"),
  (r"learner/entropy()", "entropy in nats"),
)
# Verb by direction of change.
_VERBS = {"up": "rose", "down": "fell"}


@dataclasses.dataclass(frozen=True)
class ComparedQuantity:
  """A row of the table: one quantity of all runs.

  Attributes:
    name: the name that the reader sees.
    unit: the unit of the values.
    changes: the change of each run, by the run's name.
    is_held_out: whether it is a score on problems outside of training.
    is_goal: whether higher is better.
  """

  name: str
  unit: str
  changes: Mapping[str, Change]
  is_held_out: bool
  is_goal: bool = True


def quantities(
  runs: Sequence[LoggedRun], benchmarks: Benchmarks, last_step: int, steps: int
) -> list[ComparedQuantity]:
  """Returns the quantities to compare, best evidence first.

  Args:
    benchmarks: the runs' scores before and after training.
    last_step: the last step to consider.
    steps: number of steps averaged at each end.
  """
  found = [
    ComparedQuantity(
      f"{name}, scored after training", units.FRACTION, changed, True
    )
    for name, changed in benchmarks.changes().items()
  ]
  for pattern, words in _EVALUATED:
    for label, names in _labels(runs, pattern).items():
      found.append(
        ComparedQuantity(
          f"{label}, {words}",
          units.unit(next(iter(names.values()))),
          _known(
            {
              run.name: changes.of_evaluations(
                run, names[run.name], last_step + 1
              )
              for run in runs
              if run.name in names
            }
          ),
          True,
        )
      )
  for pattern, words in _TRAINED:
    for label, names in _labels(runs, pattern).items():
      found.append(
        ComparedQuantity(
          f"{words}: {label}" if label else words,
          units.unit(next(iter(names.values()))),
          _known(
            {
              run.name: changes.of_ends(
                run.up_to(names[run.name], last_step), steps
              )
              for run in runs
              if run.name in names
            }
          ),
          False,
          words in (_CORRECT, _REWARD),
        )
      )
  return [quantity for quantity in found if quantity.changes]


def _labels(
  runs: Sequence[LoggedRun], pattern: str
) -> dict[str, dict[str, str]]:
  """Returns label -> run name -> metric, for the runs that have the metric."""
  found: dict[str, dict[str, str]] = {}
  for run in runs:
    for label, name in run.names(pattern).items():
      found.setdefault(label, {})[run.name] = name
  return found


def _known(found: Mapping[str, Change | None]) -> dict[str, Change]:
  return {name: change for name, change in found.items() if change is not None}


def build(
  runs: Sequence[LoggedRun], benchmarks: Benchmarks, curve: str = ""
) -> str:
  """Returns the section as HTML: a sentence per run, its curve and a table.

  Args:
    runs: the runs of the page.
    benchmarks: their scores.
    curve: an HTML figure to show beside the table.
  """
  # Compare the runs after the number of steps that all of them have.
  last_step = min(run.done for run in runs)
  steps = changes.window(last_step)
  rows = quantities(runs, benchmarks, last_step, steps)
  sentences = "".join(
    f'<p class="headline">{_sentence(run, rows, len(runs) > 1)}</p>'
    for run in runs
  )
  if not rows:
    return sentences + curve
  names = [run.name for run in runs]
  head = [
    "quantity",
    *(names if len(names) > 1 else ["before " + _ARROW + " after"]),
  ]
  body = html_parts.table(head, [_row(one, names) for one in rows])
  note = _footnote(rows, runs, last_step, steps)
  groups = run_tables.seed_groups(runs)
  means = over_seeds(groups, rows) if groups else ""
  return (
    f'{sentences}<div class="main">{curve}<div>{body}{note}</div></div>{means}'
  )


def _sentence(
  run: LoggedRun, rows: Sequence[ComparedQuantity], with_name: bool
) -> str:
  """Returns a sentence about how a run's best evidence changed."""
  mine = [row for row in rows if run.name in row.changes]
  chosen = (
    [row for row in mine if row.is_held_out]
    or [row for row in mine if row.name.startswith(_CORRECT)]
    or [row for row in mine if row.name.startswith(_REWARD)]
  )
  name = f"{html_parts.as_html(run.name)}: " if with_name else ""
  if not chosen:
    return f"{name}too few steps to say whether it learned."
  parts = []
  for row in chosen[:_MAX_NAMED]:
    change = row.changes[run.name]
    if change.difference.stderr is None:
      text = "went"
    else:
      text = _VERBS.get(
        change.difference.direction(), "did not change significantly:"
      )
    parts.append(
      f"<b>{html_parts.as_html(row.name)}</b> {text} "
      f"{html_parts.change(change, row.unit).text}"
    )
  if len(chosen) > _MAX_NAMED:
    parts.append(f"see the table for {len(chosen) - _MAX_NAMED} more")
  return name + "; ".join(parts) + "."


def _row(quantity: ComparedQuantity, names: Sequence[str]) -> list[Cell]:
  """Returns a table row: each run, and its difference to the first run."""
  base = quantity.changes.get(names[0])
  cells: list[Cell] = [quantity.name]
  for name in names:
    change = quantity.changes.get(name)
    if change is None:
      cells.append("\N{EN DASH}")
      continue
    cell = html_parts.change(change, quantity.unit, quantity.is_goal)
    if name != names[0] and base is not None:
      apart = change.last.minus(base.last)
      words = html_parts.difference_of(
        apart, quantity.unit, quantity.is_goal, f"after, against {names[0]}"
      )
      cell = Html(f"{cell.text}<br>{words.text}")
    cells.append(cell)
  return cells


def _footnote(
  rows: Sequence[ComparedQuantity],
  runs: Sequence[LoggedRun],
  last_step: int,
  steps: int,
) -> str:
  """Returns notes on what the numbers mean."""
  notes = []
  if any(not row.is_held_out for row in rows):
    notes.append(
      f"In training: means of steps 1 to {steps} and of the last {steps} up to "
      f"step {last_step}, \N{PLUS-MINUS SIGN} their standard error over steps. "
      "The prompts differ from step to step."
    )
  if any(row.is_held_out for row in rows):
    notes.append(
      "Scores: the first and the last one, \N{PLUS-MINUS SIGN} the standard "
      "error over problems. The error of a difference assumes independent "
      "scores unless marked as paired."
    )
  notes.append(
    "Coloured differences exceed two standard errors, which do not include the "
    "variation between seeds. Green is better, red is worse, blue is neither."
  )
  if len({run.done for run in runs}) > 1:
    notes.append(
      "The runs have different numbers of steps and are compared after step "
      f"{last_step}."
    )
  return f'<p class="hint">{" ".join(notes)}</p>'


def over_seeds(
  groups: Mapping[str, Sequence[LoggedRun]], rows: Sequence[ComparedQuantity]
) -> str:
  """Returns a table of means over runs that differ only in their seed.

  Args:
    groups: the runs of each group, by the group's name.
    rows: the quantities to average.
  """
  table = []
  for row in rows:
    cells: list[Cell] = [row.name]
    for members in groups.values():
      found = [row.changes[r.name] for r in members if r.name in row.changes]
      if len(found) < len(members):
        cells.append("\N{EN DASH}")
        continue
      mean = Change(
        changes.mean([one.first.value for one in found]),
        changes.mean([one.last.value for one in found]),
        changes.mean([one.difference.value for one in found]),
      )
      cells.append(html_parts.change(mean, row.unit, row.is_goal))
    table.append(cells)
  note = (
    '<p class="hint">Means over runs that differ only in <code>seed</code>, '
    "\N{PLUS-MINUS SIGN} the standard error over runs.</p>"
  )
  return html_parts.table(["mean over seeds", *groups], table) + note
