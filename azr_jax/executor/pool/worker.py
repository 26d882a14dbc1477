"""The pool's side of a zygote process: starts it, writes, reads, ends it."""

import os
import pathlib
import subprocess
import sys
import time
from typing import Any

from azr_jax.executor.child import frames
from azr_jax.executor.child.libraries import ONE_THREAD
from azr_jax.executor.pool.channel import Channel, Closed

START_TIMEOUT_S = 30.0
START_TIMEOUT_WITH_LIBRARIES_S = (
  180.0  # All zygotes import the libraries at once, each for seconds.
)
_ZYGOTE = pathlib.Path(__file__).parents[1] / "child" / "zygote.py"


def python_command(*arguments: str) -> list[str]:
  """Returns a Python command line without site packages or user folders."""
  return [sys.executable, "-s", "-S", "-P", *arguments]


# The environment of every process in the pool; zygotes also get a hash seed.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def environment(seed: int) -> dict[str, str]:
  """Returns the complete environment of a zygote with a hash seed."""
  return ENVIRONMENT | {"PYTHONHASHSEED": str(seed)}


class WorkerGone(RuntimeError):
  """The zygote has died or closed its pipe."""


class Zygote:
  """A running zygote, with its unsent and unread bytes.

  Attributes:
    seed: the zygote's `PYTHONHASHSEED`.
    in_flight: the unfinished runs by request number; used only by the pool.
    layers: which sandbox layers are active; None until the zygote has started.
    started_at: when the process was created, on the monotonic clock.
    last_activity: when the zygote last wrote, or when it last got work after
      being idle.
    start_timeout_s: seconds that the zygote may take to start.
    read_fd, write_fd: descriptors to poll.
  """

  def __init__(
    self,
    seed: int,
    layers: frozenset[str],
    memory_mb: int,
    libraries: tuple[str, ...] = (),
    paths: tuple[str, ...] = (),
  ):
    """Starts the process, without waiting for it.

    Args:
      seed: the zygote's `PYTHONHASHSEED`.
      layers: names of the sandbox layers to activate.
      memory_mb: the address space that a program may allocate, in MiB.
      libraries: the libraries to load, from `libraries.LIBRARIES`.
      paths: folders to import the libraries from.
    """
    self.seed = seed
    self.in_flight: dict[int, Any] = {}
    self.layers: dict[str, bool] | None = None
    self.started_at = self.last_activity = time.monotonic()
    arguments = [str(_ZYGOTE), ",".join(layers), str(memory_mb)]
    self.start_timeout_s = (
      START_TIMEOUT_WITH_LIBRARIES_S if libraries else START_TIMEOUT_S
    )
    arguments += [" ".join(libraries), os.pathsep.join(paths)]
    self._process = subprocess.Popen(
      python_command(*arguments),
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      bufsize=0,
      env=environment(seed)
      | (dict.fromkeys(ONE_THREAD, "1") if libraries else {}),
      cwd="/",
      start_new_session=True,
    )
    assert self._process.stdin and self._process.stdout
    self.write_fd = self._process.stdin.fileno()
    self.read_fd = self._process.stdout.fileno()
    self._channel = Channel(self.read_fd, self.write_fd)

  @property
  def pid(self) -> int:
    """The zygote's process id."""
    return self._process.pid

  def send(self, frame: bytes) -> None:
    """Queues a frame and writes as many bytes as the pipe accepts."""
    self._channel.write(frame)

  def flush(self) -> None:
    """Writes what the pipe accepts; `receive` reports a broken pipe."""
    self._channel.flush()

  def has_unsent(self) -> bool:
    """Returns whether to call `flush` when the pipe accepts bytes again."""
    return self._channel.has_unsent()

  def receive(self) -> list[frames.Reply]:
    """Reads the available bytes and returns the complete replies.

    Raises:
      WorkerGone: the zygote closed its pipe.
    """
    try:
      self._channel.read()
    except Closed:
      raise WorkerGone("an executor zygote died") from None
    self.last_activity = time.monotonic()
    replies = list(frames.take_replies(self._channel.incoming))
    if self.layers is None and replies:
      self.layers = frames.unpack_hello(replies.pop(0)[-1])
    return [reply for reply in replies if reply[-2] != frames.HEARTBEAT]

  def end(self) -> None:
    """Kills and reaps the zygote; its children die with it."""
    assert self._process.stdin and self._process.stdout
    self._process.kill()
    self._process.wait()
    self._process.stdin.close()
    self._process.stdout.close()
