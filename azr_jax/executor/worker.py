"""A zygote process as the pool sees it: started, fed, read, ended.

Both pipes are non-blocking: a zygote that stops reading cannot hold up the
pool.
"""

import os
import pathlib
import select
import subprocess
import sys
import time
from typing import Any

from azr_jax.executor import frames

Reply = tuple[int, float, int, bytes]

START_S = 30.0
START_WITH_LIBRARIES_S = 180.0  # Imports of seconds, all at once.
_ZYGOTE = pathlib.Path(__file__).with_name("zygote.py")


def python_command(*arguments: str) -> list[str]:
  """A bare Python: no site packages, nothing from the user's folders."""
  return [sys.executable, "-s", "-S", "-P", *arguments]


# Or libraries wait for threads that a forked child does not have.
_ONE_THREAD = dict.fromkeys(
  ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)


def environment(seed: int) -> dict[str, str]:
  """All that a zygote knows of its surroundings."""
  return {
    "PYTHONHASHSEED": str(seed),
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
  }


class WorkerGone(RuntimeError):
  """The zygote has died or closed its pipe."""


class Zygote:
  """A running zygote, its unsent and unread bytes, and what it works on.

  Attributes:
    seed: its `PYTHONHASHSEED`.
    busy: runs under way by request number; the pool's own book-keeping.
    layers: which of its walls stand; None until it has started.
    born: when its process was made, on the monotonic clock.
    start_s: seconds that it may take to start.
    reading, writing: descriptors to poll.
  """

  def __init__(
    self,
    seed: int,
    walls: frozenset[str],
    memory_mb: int,
    libraries: tuple[str, ...] = (),
  ):
    self.seed = seed
    self.busy: dict[int, Any] = {}
    self.layers: dict[str, bool] | None = None
    self.born = time.monotonic()
    self._incoming, self._outgoing = bytearray(), bytearray()
    arguments = [str(_ZYGOTE), ",".join(walls), str(memory_mb)]
    self.start_s = START_WITH_LIBRARIES_S if libraries else START_S
    paths = [os.path.abspath(path) for path in sys.path] if libraries else []
    arguments += [" ".join(libraries), os.pathsep.join(paths)]
    self._process = subprocess.Popen(
      python_command(*arguments),
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      bufsize=0,
      env=environment(seed) | (_ONE_THREAD if libraries else {}),
      cwd="/",
      start_new_session=True,
    )
    assert self._process.stdin and self._process.stdout
    self.writing = self._process.stdin.fileno()
    self.reading = self._process.stdout.fileno()
    os.set_blocking(self.writing, False)
    os.set_blocking(self.reading, False)

  @property
  def pid(self) -> int:
    """The zygote's process id."""
    return self._process.pid

  def wait_for_start(self) -> dict[str, bool]:
    """Waits until it has started; returns which walls stand.

    Raises:
      WorkerGone: it died, or took too long.
    """
    while self.layers is None:
      wait = self.born + self.start_s - time.monotonic()
      if wait <= 0 or not select.select([self.reading], [], [], wait)[0]:
        raise WorkerGone("an executor zygote did not start")
      self.receive()
    return self.layers

  def send(self, frame: bytes) -> None:
    """Queues a frame and writes what the pipe takes."""
    self._outgoing += frame
    self.flush()

  def flush(self) -> None:
    """Writes what the pipe takes; a broken pipe shows when reading."""
    try:
      while self._outgoing:
        del self._outgoing[: os.write(self.writing, self._outgoing)]
    except BlockingIOError:
      return
    except BrokenPipeError:
      self._outgoing.clear()

  def has_unsent(self) -> bool:
    """Whether `flush` should be called when the pipe has room."""
    return bool(self._outgoing)

  def receive(self) -> list[Reply]:
    """Reads what is there; returns the replies that are complete.

    Raises:
      WorkerGone: the zygote closed its pipe.
    """
    try:
      data = os.read(self.reading, 1 << 16)
    except BlockingIOError:
      return []
    if not data:
      raise WorkerGone("an executor zygote died")
    self._incoming += data
    replies = list(frames.take_replies(self._incoming))
    if self.layers is None and replies:
      self.layers = frames.unpack_hello(replies.pop(0)[-1])
    return replies

  def end(self) -> None:
    """Kills the zygote, whose children die with it, and reaps it."""
    assert self._process.stdin and self._process.stdout
    self._process.kill()
    self._process.wait()
    self._process.stdin.close()
    self._process.stdout.close()
