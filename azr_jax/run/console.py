"""Prints the state of a run to a terminal or a log."""

import shutil
import sys
import textwrap
import time

import tqdm

# How many lines of a sampled text are shown.
_SHOWN_LINES = 6
# Columns per line without a terminal.
_LOG_WIDTH = 160


def print_status(text: str) -> None:
  """Prints lines to standard error, above the progress bar if there is one."""
  tqdm.tqdm.write(text, file=sys.stderr)
  sys.stderr.flush()


def _width() -> int:
  """Returns the maximum number of columns per line."""
  if not sys.stderr.isatty():
    return _LOG_WIDTH
  return max(shutil.get_terminal_size().columns - 1, 20)


def show_text(title: str, text: str) -> None:
  """Prints the first lines of a text, indented and wrapped to the terminal."""
  width = _width()
  lines = [
    part
    for line in text.strip().splitlines()
    for part in textwrap.wrap(line, width - 4) or [""]
  ]
  if len(lines) > _SHOWN_LINES:
    lines = [*lines[:_SHOWN_LINES], "..."]
  print_status("\n".join([title, *(f"  | {line}" for line in lines)]))


class Progress:
  """Prints a line per step with rate and ETA, and a bar on a terminal."""

  def __init__(self, first_step: int, last_step: int, unit: str = "step"):
    self._first, self._last, self._unit = first_step, last_step, unit
    self._start = time.monotonic()
    self._bar = tqdm.tqdm(
      total=last_step,
      initial=first_step - 1,
      unit=unit,
      dynamic_ncols=True,
      leave=False,
      file=sys.stderr,
      disable=not sys.stderr.isatty(),
    )

  def show(self, step: int, text: str) -> None:
    """Reports that `step` is done."""
    done = step - self._first + 1
    seconds = (time.monotonic() - self._start) / done
    left = (self._last - step) * seconds
    line = (
      f"{self._unit} {step}/{self._last}  {seconds:.2f} s/{self._unit}  "
      f"ETA {int(left) // 60}:{int(left) % 60:02d}  {text}"
    )
    print_status(line[: _width()].rstrip())
    self._bar.update(step - self._bar.n)

  def close(self) -> None:
    """Removes the bar from the terminal."""
    self._bar.close()
