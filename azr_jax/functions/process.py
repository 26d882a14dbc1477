"""A worker process as the pool sees it: starts it, writes, reads, ends it."""

import contextlib
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from azr_jax.executor.channel import Channel, Closed
from azr_jax.functions import worker
from azr_jax.functions.spec import Function, Signature

# The package's parent folder, which an editable install leaves off `sys.path`.
_ROOT = pathlib.Path(__file__).parents[2]


class Process:
  """A running worker.

  Attributes:
    in_flight: its unfinished calls by number; only the pool uses it.
    signatures: of the functions; None until they are loaded.
    started_at: on the monotonic clock.
    read_fd, write_fd: descriptors to poll.
  """

  def __init__(self, functions: Sequence[Function]):
    """Starts the process, without waiting for it.

    It has a session of its own, so that Ctrl-C does not reach it and what it
    starts ends with it. JAX computes on CPUs there, because the trainer holds
    the accelerators.
    """
    self.in_flight: dict[int, Any] = {}
    self.signatures: list[Signature] | None = None
    self.started_at = time.monotonic()
    paths = [os.path.abspath(path) for path in sys.path]
    search = os.pathsep.join(
      filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", "")))
    )
    self._process = subprocess.Popen(
      [sys.executable, "-m", "azr_jax.functions.worker"],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      bufsize=0,
      env=os.environ | {"PYTHONPATH": search, "JAX_PLATFORMS": "cpu"},
      start_new_session=True,
    )
    assert self._process.stdin and self._process.stdout
    self.write_fd = self._process.stdin.fileno()
    self.read_fd = self._process.stdout.fileno()
    self._channel = Channel(self.read_fd, self.write_fd)
    self._send((list(functions), paths))

  @property
  def pid(self) -> int:
    """The process id."""
    return self._process.pid

  def call(self, number: int, index: int, arguments: dict[str, Any]) -> None:
    """Sends a call of a function, without waiting."""
    self._send((number, index, arguments))

  def _send(self, value: Any) -> None:
    payload = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    self._channel.write(worker.frame(payload))

  def flush(self) -> None:
    """Writes as much as the pipe accepts."""
    self._channel.flush()

  def has_unsent(self) -> bool:
    """Returns whether to call `flush` when the pipe accepts bytes again."""
    return self._channel.has_unsent()

  def receive(self) -> list[dict[str, Any]]:
    """Returns the replies that have come.

    Raises:
      Closed: the process has ended.
    """
    self._channel.read()
    buffer, replies = self._channel.incoming, []
    while len(buffer) >= worker.LENGTH.size:
      (length,) = worker.LENGTH.unpack_from(buffer)
      end = worker.LENGTH.size + length
      if len(buffer) < end:
        break
      replies.append(json.loads(bytes(buffer[worker.LENGTH.size : end])))
      del buffer[:end]
    return replies

  def end(self) -> int:
    """Kills the process and what it has started; returns its exit status."""
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self.pid, signal.SIGKILL)
    status = self._process.wait()
    assert self._process.stdin and self._process.stdout
    self._process.stdin.close()
    self._process.stdout.close()
    return status


__all__ = ["Closed", "Process"]
