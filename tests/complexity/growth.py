"""Measures how a reader's time grows with the length of a text.

Each reader runs in its own process, which the kernel kills if one text takes
longer than `CAP_S`. So a pattern that takes exponential time becomes a line of
the report instead of stopping the measurement. Times are CPU seconds, which
other load on the machine hardly changes.
"""

import dataclasses
import gc
import math
import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.complexity.table import READERS, Reader

CAP_S = 8.0  # CPU seconds for one text.
# Times below this are measured again.
_SHORT_S = 0.002
_TICK_S = 0.01  # Resolution of the CPU clock.
_REPEATS = 3
# If the length grows by a factor, the time may grow by `MAX_RATIO` times that
# factor, plus `SLACK_S`. Between the tested lengths, quadratic time grows 16
# times as much.
MAX_RATIO = 4.0
SLACK_S = 0.1


@dataclasses.dataclass(frozen=True)
class Growth:
  """The times of a reader on one text of several lengths.

  Attributes:
    reader, text: names of the reader and the text.
    seconds: characters -> CPU seconds; infinite if a length took longer than
      `CAP_S`, in which case longer ones are not tried.
    error: an exception that the reader must not raise; "" if there was none.
  """

  reader: str
  text: str
  seconds: dict[int, float]
  error: str = ""

  @property
  def fault(self) -> str:
    """A description of what is wrong with the reader; "" if nothing is."""
    if self.error:
      return self.error
    points = list(self.seconds.items())
    for (length, before), (longer, after) in zip(
      points, points[1:], strict=False
    ):
      if after > MAX_RATIO * longer / length * before + SLACK_S:
        return f"{before:.4f} s at {length} characters, {after:.4f} at {longer}"
    return f"over {CAP_S} s" if math.inf in self.seconds.values() else ""


def lengths(reader: Reader, sizes: Sequence[int]) -> list[int]:
  """Returns the lengths to measure a reader at.

  A reader that rejects long texts unread is also measured at its limit.
  """
  limit = reader.max_chars
  if limit is None or limit >= sizes[-1]:
    return list(sizes)
  return sorted({*sizes, limit, limit // 16})


def measure(names: Sequence[str], sizes: Sequence[int]) -> Iterator[Growth]:
  """Yields the times of readers on each of their texts.

  Args:
    names: names in `READERS`.
    sizes: text lengths in characters, ascending.
  """
  fork = multiprocessing.get_context("fork")
  for name in names:
    texts = list(READERS[name].texts)
    while texts:
      receiver, sender = fork.Pipe(duplex=False)
      child = fork.Process(target=_serve, args=(name, texts, sizes, sender))
      child.start()
      sender.close()
      for growth in _received(name, texts, receiver):
        del texts[0]
        yield growth
      child.join()


def _received(
  name: str, texts: Sequence[str], receiver: Any
) -> Iterator[Growth]:
  """Yields what a process measures. A slow text may kill it."""
  for text in list(texts):
    seconds: dict[int, float] = {}
    try:
      while (message := receiver.recv())[0] is not None:
        seconds[message[0]] = message[1]
    except EOFError:
      yield Growth(name, text, seconds)
      return
    yield Growth(name, text, seconds, message[1])


def _serve(
  name: str, texts: Sequence[str], sizes: Sequence[int], sender: Any
) -> None:
  """Sends (length, seconds) for each length, and (None, error) per text."""
  reader = READERS[name]
  gc.freeze()  # Else the collector would scan all modules during a text.
  for text in texts:
    error = ""
    for length in lengths(reader, sizes):
      written = reader.texts[text](length)
      # This result remains if the process is killed.
      sender.send((length, math.inf))
      signal.setitimer(signal.ITIMER_PROF, CAP_S)
      seconds, error = _time(reader, written)
      signal.setitimer(signal.ITIMER_PROF, 0)
      sender.send((length, seconds))
      if error:
        break
    sender.send((None, error))


def _time(reader: Reader, text: str) -> tuple[float, str]:
  """Returns the CPU seconds of a reader, and an unexpected exception.

  The CPU clock is coarse. So short times are the minimum of several runs, by
  whichever clock gives less.
  """
  least, error = math.inf, ""
  for repeat in range(_REPEATS):
    # Readers may cache texts, so each repeat differs.
    written = (text + " " * repeat).join(reader.frame)
    start, cpu_start = time.perf_counter(), time.process_time()
    try:
      reader.read(written)
    except reader.errors:
      pass
    except Exception as raised:  # noqa: BLE001 - an error is a result.
      error = f"{type(raised).__name__}: {raised!s:.60}"
    cpu_s = time.process_time() - cpu_start
    least = min(least, cpu_s + _TICK_S, time.perf_counter() - start)
    if least > _SHORT_S:
      break
  return least, error
