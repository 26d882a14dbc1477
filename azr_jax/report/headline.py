"""Says first on the page whether a run learned: numbers with their errors.

Every sentence is computed. A change is called one beyond two standard errors;
`changes.py` says what these are.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from azr_jax.report import changes, html_parts, run_tables, units
from azr_jax.report.changes import Change
from azr_jax.report.html_parts import Cell, Html
from azr_jax.report.reading import Run
from azr_jax.report.scores import Benchmarks

_ARROW = "\N{RIGHTWARDS ARROW}"
_CORRECT, _REWARD = "correct in training", "reward in training"
_MAX_NAMED = 4  # quantities in a sentence
# Pattern of metrics -> what the table calls them. The groups are the label.
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
# Sentences are made of the first kind of evidence that a run has.
_VERBS = {"up": "rose", "down": "fell"}


@dataclasses.dataclass(frozen=True)
class Quantity:
  """A row of the table: one quantity of all runs.

  Attributes:
    name: as the reader sees it.
    unit: of its values.
    changes: from before to after, by the run's name.
    is_held_out: whether it is a score of problems outside of training.
    is_goal: whether more of it is better.
  """

  name: str
  unit: str
  changes: Mapping[str, Change]
  is_held_out: bool
  is_goal: bool = True


def quantities(
  runs: Sequence[Run], benchmarks: Benchmarks, last_step: int, steps: int
) -> list[Quantity]:
  """Returns what the headline compares, the best evidence first.

  Args:
    runs: the runs.
    benchmarks: their scores, before and after.
    last_step: steps after this one do not count.
    steps: how many steps are averaged at each end.
  """
  found = [
    Quantity(f"{name}, scored after training", units.FRACTION, changed, True)
    for name, changed in benchmarks.changes().items()
  ]
  for pattern, words in _EVALUATED:
    for label, names in _labels(runs, pattern).items():
      found.append(
        Quantity(
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
        Quantity(
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


def _labels(runs: Sequence[Run], pattern: str) -> dict[str, dict[str, str]]:
  """Returns by label the metric of each run that has it, by the run's name."""
  found: dict[str, dict[str, str]] = {}
  for run in runs:
    for label, name in run.names(pattern).items():
      found.setdefault(label, {})[run.name] = name
  return found


def _known(found: Mapping[str, Change | None]) -> dict[str, Change]:
  return {name: change for name, change in found.items() if change is not None}


def build(runs: Sequence[Run], benchmarks: Benchmarks, curve: str = "") -> str:
  """Returns the section's HTML: a sentence per run, its curve and a table.

  Args:
    runs: the runs of the page.
    benchmarks: their scores.
    curve: a figure to show beside the table, as HTML.
  """
  # Runs are compared after as many steps as all of them have.
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


def _sentence(run: Run, rows: Sequence[Quantity], with_name: bool) -> str:
  """Returns in a sentence how a run's best evidence changed."""
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
        change.difference.direction(), "did not clearly change:"
      )
    parts.append(
      f"<b>{html_parts.as_html(row.name)}</b> {text} "
      f"{html_parts.change(change, row.unit).text}"
    )
  if len(chosen) > _MAX_NAMED:
    parts.append(f"{len(chosen) - _MAX_NAMED} more are in the table")
  return name + "; ".join(parts) + "."


def _row(quantity: Quantity, names: Sequence[str]) -> list[Cell]:
  """Returns a row of the table: each run, and its difference to the first."""
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
  rows: Sequence[Quantity], runs: Sequence[Run], last_step: int, steps: int
) -> str:
  """Returns what the numbers are."""
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
      "error over problems; that of a difference takes the two as "
      "independent unless it says paired."
    )
  notes.append(
    "Coloured: beyond two standard errors, of one run each; another seed may "
    "differ by more. Green is better, red is worse, blue is neither."
  )
  if len({run.done for run in runs}) > 1:
    notes.append(
      "The runs have different numbers of steps and are compared after "
      f"{last_step}."
    )
  return f'<p class="hint">{" ".join(notes)}</p>'


def over_seeds(
  groups: Mapping[str, Sequence[Run]], rows: Sequence[Quantity]
) -> str:
  """Returns a table of means over runs that differ in their seed alone.

  Args:
    groups: the runs of each group, by a name for it.
    rows: what is averaged.
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
    '<p class="hint">Means over runs that differ in <code>seed</code> alone, '
    "\N{PLUS-MINUS SIGN} the standard error over runs.</p>"
  )
  return html_parts.table(["mean over seeds", *groups], table) + note
