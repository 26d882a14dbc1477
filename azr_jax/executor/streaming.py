"""Results in order as they come, and word of how far one is."""

import collections
import io
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

BACKLOG = 4096  # Results that may wait; beyond it, reading waits.
PROGRESS_S = 5.0
Out = TypeVar("Out")


def input_lines() -> Iterable[str]:
  """Standard input's lines; bytes that are no UTF-8 become a mark."""
  return io.TextIOWrapper(sys.stdin.buffer, "utf-8", errors="replace")


def in_order(
  pending: "Iterable[Future[Out]]", backlog: int = BACKLOG
) -> Iterator[Out]:
  """Yields the results of futures, each as soon as those before it are known.

  Args:
    pending: makes the futures as it is drawn from; while `backlog` of them
      wait, no more are drawn.
    backlog: how many futures may wait.

  Raises:
    Whatever a future or `pending` raises.
  """
  waiting: collections.deque[Future[Out]] = collections.deque()
  for future in pending:
    waiting.append(future)
    while waiting and (waiting[0].done() or len(waiting) > backlog):
      yield waiting.popleft().result()
  while waiting:
    yield waiting.popleft().result()


def counted(
  results: Iterable[Out], what: str, every_s: float = PROGRESS_S
) -> Iterator[Out]:
  """Yields results; tells their number on standard error now and at the end.

  Args:
    results: what to count.
    what: the word for them, plural.
    every_s: seconds between two lines.
  """
  start = told = time.monotonic()
  count = 0
  for count, result in enumerate(results, start=1):
    yield result
    if time.monotonic() - told > every_s:
      told = time.monotonic()
      _tell(count, what, told - start)
  _tell(count, what, time.monotonic() - start)


def _tell(count: int, what: str, seconds: float) -> None:
  rate = count / max(seconds, 1e-9)
  line = f"{count} {what} in {seconds:.1f} s, {rate:.0f} a second"
  sys.stderr.write(line + "\n")
