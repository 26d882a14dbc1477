"""Reading lines, streaming results in order, and progress, for commands."""

import io
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

BACKLOG = 4096  # Reading pauses while this many results are unfinished.
PROGRESS_S = 5.0  # Seconds between two progress lines.
Out = TypeVar("Out")


def run_command(main: Callable[[], None]) -> None:
  """Runs a command that reads and writes lines.

  On a closed output pipe or Ctrl-C, exits without a traceback.
  """
  if sys.stdin is None or sys.stdout is None:
    sys.exit("standard input and output must be open")
  try:
    main()
  # sys.exit would flush into a closed pipe and wait for the thread that reads
  # standard input.
  except BrokenPipeError:
    os._exit(1)
  except KeyboardInterrupt:
    os._exit(130)


def input_lines() -> Iterable[str]:
  """Returns the lines of standard input; invalid UTF-8 becomes U+FFFD."""
  return io.TextIOWrapper(sys.stdin.buffer, "utf-8-sig", errors="replace")


def in_order(
  pending: "Iterable[Future[Out]]", backlog: int = BACKLOG
) -> Iterator[Out]:
  """Yields the results of futures in order, each as soon as it is known.

  A separate thread iterates over the futures, so a result is yielded even
  while the next line of input has yet to arrive.

  Args:
    pending: iterable that creates the futures.
    backlog: the number of unfinished futures at which iteration pauses.

  Raises:
    Exception: whatever a future or `pending` raises.
  """
  waiting: queue.Queue[Future[Out] | None] = queue.Queue(backlog)

  def read_all() -> None:
    try:
      for future in pending:
        waiting.put(future)
      waiting.put(None)
    except Exception as error:  # noqa: BLE001 - passed on to the reader.
      failed: Future[Out] = Future()
      failed.set_exception(error)
      waiting.put(failed)

  threading.Thread(target=read_all, name="in-order", daemon=True).start()
  while (future := waiting.get()) is not None:
    yield future.result()


def counted(
  results: Iterable[Out], what: str, every_s: float = PROGRESS_S
) -> Iterator[Out]:
  """Yields results and reports their count on standard error.

  Args:
    results: the results to count.
    what: a plural noun for the results, e.g. "jobs".
    every_s: seconds between two progress lines; a last one follows at the end.
  """
  start = last_line = time.monotonic()
  count = 0
  for count, result in enumerate(results, start=1):
    yield result
    if time.monotonic() - last_line > every_s:
      last_line = time.monotonic()
      _write_progress(count, what, last_line - start)
  _write_progress(count, what, time.monotonic() - start)


def _write_progress(count: int, what: str, seconds: float) -> None:
  rate = count / max(seconds, 1e-9)
  line = f"{count} {what} in {seconds:.1f} s, {rate:.0f} a second"
  sys.stderr.write(line + "\n")
