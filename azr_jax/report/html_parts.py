"""HTML parts of the page: sections, and tables that fit on a phone."""

import dataclasses
import html
import re
from collections.abc import Sequence

from azr_jax.report import axes, units
from azr_jax.report.changes import Change, Estimate


@dataclasses.dataclass(frozen=True)
class Html:
  """Text that already is HTML."""

  text: str


Cell = str | Html


def section(name: str, content: str, note: str = "") -> str:
  """Returns a section of the page with its title and a note below it."""
  anchor = re.sub(r"\W+", "-", name.lower())
  if note:
    note = f'<p class="hint">{html.escape(note)}</p>'
  return (
    f'<section id="{anchor}"><h2>{html.escape(name)}</h2>{note}{content}'
    "</section>\n"
  )


def grid(figures: str) -> str:
  """Returns figures in a grid that adapts to the window's width."""
  return f'<div class="grid">{figures}</div>'


def folded(summary: str, content: str, is_open: bool = False) -> str:
  """Returns content that unfolds when the summary is clicked."""
  state = " open" if is_open else ""
  name = html.escape(re.sub(r"\W+", "-", summary.lower()).strip("-"))
  return (
    f'<details id="{name}"{state}><summary>{html.escape(summary)}</summary>'
    f"{content}</details>"
  )


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
  """Returns a table. On a phone, each row becomes a list of its cells.

  Args:
    head: the names of the columns, which a phone shows next to the cells. The
      head of a two-column table is hidden if the second name is "".
    rows: the cells of each row. The first cell names the row.
  """
  names = "".join(f"<th>{html.escape(name)}</th>" for name in head)
  body = "".join(
    "<tr>"
    + "".join(
      f'<td data-name="{html.escape(name)}">{as_html(cell)}</td>'
      for name, cell in zip(head, row, strict=True)
    )
    + "</tr>"
    for row in rows
  )
  is_pairs = len(head) == 2 and not head[1]
  top = "" if is_pairs else f"<thead><tr>{names}</tr></thead>"
  kind = ' class="pairs"' if is_pairs else ""
  return (
    f'<div class="wide"><table{kind}>{top}<tbody>{body}</tbody></table></div>'
  )


def as_html(cell: Cell) -> str:
  """Returns a cell as HTML."""
  return cell.text if isinstance(cell, Html) else html.escape(cell)


def estimate(one: Estimate, unit: str, signed: bool = False) -> str:
  """Returns a number with its standard error; fractions are in percent."""
  factor, suffix = (100, " %") if unit == units.FRACTION else (1, "")
  value, error = factor * one.value, factor * (one.stderr or 0.0)
  # Errors have two significant digits and set the precision of their value. A
  # value without an error has three.
  if suffix:
    digits = 1
  elif error:
    digits = max(0, 1 - axes.exponent(error))
  else:
    digits = max(0, 2 - axes.exponent(value))
  sign = "+" if signed else ""
  text = f"{value:{sign}.{min(digits, 6)}f}"
  if one.stderr is not None:
    text += f" \N{PLUS-MINUS SIGN} {error:.{min(digits, 6)}f}"
  if signed and suffix:
    suffix = " points"
  return text + suffix


def change(one: Change, unit: str, is_goal: bool = True) -> Html:
  """Returns the first and last values and their coloured difference."""
  difference = one.difference
  return Html(
    f"<span>{estimate(one.first, unit)} \N{RIGHTWARDS ARROW} "
    f"{estimate(one.last, unit)}</span> "
    f"{difference_of(difference, unit, is_goal).text}"
  )


def difference_of(
  one: Estimate, unit: str, is_goal: bool = True, against: str = ""
) -> Html:
  """Returns a difference in bold, coloured beyond two standard errors.

  Args:
    one: the difference.
    unit: the unit of the quantity.
    is_goal: whether higher is better. Otherwise the colour is neutral.
    against: a note on what the difference is relative to.
  """
  kind = one.direction() if is_goal else one.direction() and "neutral"
  words = f" <small>{html.escape(against)}</small>" if against else ""
  return Html(
    f'<b class="change {kind}">{estimate(one, unit, signed=True)}</b>{words}'
  )
