"""Silences library reports that repeat our one-line errors in many lines.

Orbax logs every thread's error with a traceback, and raises it too. A
TensorStore write that ends after Orbax has closed its event loop makes Python
print another traceback, because no caller is left to raise it. transformers
warns that PyTorch is missing, although no command here needs it. `--debug`
shows all of these.
"""

import logging
import os
import sys
from typing import Any


def silence() -> None:
  """Silences these reports until the process ends."""
  logging.getLogger("absl").addFilter(_is_wanted)
  os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
  shown = sys.unraisablehook

  def show(report: Any) -> None:
    if not _is_late_write(report.exc_value):
      shown(report)

  sys.unraisablehook = show


def _is_wanted(record: logging.LogRecord) -> bool:
  return not (record.exc_info and "/orbax/" in record.pathname)


def _is_late_write(error: BaseException | None) -> bool:
  """Returns whether a TensorStore thread found a closed event loop."""
  last = error.__traceback__ if error is not None else None
  while last is not None and last.tb_next is not None:
    last = last.tb_next
  where = last.tb_frame.f_code.co_qualname if last is not None else ""
  return isinstance(error, RuntimeError) and where.endswith("._check_closed")
