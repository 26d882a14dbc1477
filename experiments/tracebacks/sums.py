"""The reward of the experiment, for the sandbox (`custom.where=executor`)."""

import linecache
import traceback

_FILE = "sum.py"
_CHECK = """\
def check(question, answer):
  if eval(question) != answer:
    raise AssertionError(f"{question} = {eval(question)}")
"""


def told(
  completion: str, question: str, answer: str
) -> float | dict[str, object]:
  """Returns 1 for the sum alone, else 0 and the traceback of a check."""
  text = completion.strip()
  if text == answer:
    return 1.0
  is_number = text.isdecimal() and text == str(int(text))
  return {
    "reward": 0.0,
    "feedback": _traceback(
      f"answer = {text if is_number else repr(text)}\n"
      f'check("{question}", answer)\n'
    ),
  }


def _traceback(program: str) -> str:
  """Runs a program that fails a check; returns its traceback.

  The frame inside of the check is left out.
  """
  names: dict[str, object] = {}
  exec(_CHECK, names)
  lines = program.splitlines(keepends=True)
  linecache.cache[_FILE] = (len(program), None, lines, _FILE)
  try:
    exec(compile(program, _FILE, "exec"), names)
  except AssertionError as error:
    frames = error.__traceback__
    assert frames is not None
    shown = error.with_traceback(frames.tb_next)
    return "".join(traceback.format_exception(shown, limit=1))
  raise ValueError(f"expected a check to fail in {program!r}")
