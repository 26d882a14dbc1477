"""Keeps libraries from reporting, in hundreds of lines, what we report in one.

Orbax logs the error of each of its threads with a traceback, and raises it too.
A write of TensorStore that ends after Orbax has closed its event loop prints
another traceback, without raising. `--debug` shows all of them.
"""

import logging
import sys
import types


def hush() -> None:
  """Leaves these reports out, until the end of the process."""
  logging.getLogger("absl").addFilter(_is_wanted)
  shown = sys.excepthook

  def show(
    kind: type[BaseException],
    error: BaseException,
    trace: types.TracebackType | None,
  ) -> None:
    if not _is_late_write(error):
      shown(kind, error, trace)

  sys.excepthook = show


def _is_wanted(record: logging.LogRecord) -> bool:
  return not (record.exc_info and "/orbax/" in record.pathname)


def _is_late_write(error: BaseException) -> bool:
  """Returns whether a thread of TensorStore met a closed event loop."""
  last = error.__traceback__
  while last is not None and last.tb_next is not None:
    last = last.tb_next
  where = last.tb_frame.f_code.co_qualname if last is not None else ""
  return isinstance(error, RuntimeError) and where.endswith("._check_closed")
