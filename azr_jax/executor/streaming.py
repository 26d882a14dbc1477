"""Results in order as they come, and word of how far one is."""

import io
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

BACKLOG = 4096  # Results that may wait; beyond it, reading waits.
PROGRESS_S = 5.0
Out = TypeVar("Out")


def run_command(main: Callable[[], None]) -> None:
  """Runs a command that reads lines and writes lines; ends the process.

  A reader that has gone and Ctrl-C are ordinary ends, not errors to explain.
  """
  if sys.stdin is None or sys.stdout is None:
    sys.exit("standard input and output must be open")
  try:
    main()
  # Not by sys.exit: it would flush to nobody, and wait for the thread that
  # reads standard input.
  except BrokenPipeError:
    os._exit(1)
  except KeyboardInterrupt:
    os._exit(130)


def input_lines() -> Iterable[str]:
  """Standard input's lines; bytes that are no UTF-8 become a mark."""
  return io.TextIOWrapper(sys.stdin.buffer, "utf-8", errors="replace")


def in_order(
  pending: "Iterable[Future[Out]]", backlog: int = BACKLOG
) -> Iterator[Out]:
  """Yields the results of futures, each as soon as those before it are known.

  The futures are drawn in a thread of their own, so a result does not wait for
  the line after it.

  Args:
    pending: makes the futures as it is drawn from; while `backlog` of them
      wait, no more are drawn.
    backlog: how many futures may wait.

  Raises:
    Whatever a future or `pending` raises.
  """
  waiting: queue.Queue[Future[Out] | None] = queue.Queue(backlog)

  def draw() -> None:
    try:
      for future in pending:
        waiting.put(future)
      waiting.put(None)
    except Exception as error:  # noqa: BLE001 - the reader must hear of it.
      failed: Future[Out] = Future()
      failed.set_exception(error)
      waiting.put(failed)

  threading.Thread(target=draw, name="in-order", daemon=True).start()
  while (future := waiting.get()) is not None:
    yield future.result()


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
