"""A worker process, as the pool sees it: start, write, read, end."""

import json
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from azr_jax.executor.pool.channel import Channel, Closed
from azr_jax.functions import worker
from azr_jax.functions.spec import Function, Signature

# The package's parent folder. Editable installs leave it off `sys.path`.
_ROOT = pathlib.Path(__file__).parents[2]


class Process:
  """A running worker.

  Attributes:
    in_flight: unfinished calls by number. Only the pool uses it.
    signatures: the functions' signatures; None until they are loaded.
    pid: the process id; the keeper's until the functions are loaded.
    read_fd, write_fd: file descriptors to poll.
  """

  def __init__(self, functions: Sequence[Function], memory_gib: float):
    """Starts the process below a keeper, without waiting for it.

    It has its own session, so that Ctrl-C does not reach it. Its JAX runs on
    the CPU, because the trainer holds the accelerators.

    Args:
      functions: the functions to load.
      memory_gib: the memory limit of the process and its children, in GiB; 0
        for no limit.
    """
    self.in_flight: dict[int, Any] = {}
    self.signatures: list[Signature] | None = None
    paths = [os.path.abspath(path) for path in sys.path]
    search = os.pathsep.join(
      filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", "")))
    )
    self._process = subprocess.Popen(
      [
        sys.executable,
        "-m",
        "azr_jax.functions.keeper",
        str(int(memory_gib * 2**30)),
      ],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      bufsize=0,
      env=os.environ | {"PYTHONPATH": search, "JAX_PLATFORMS": "cpu"},
      start_new_session=True,
    )
    assert self._process.stdin and self._process.stdout
    self.write_fd = self._process.stdin.fileno()
    self.read_fd = self._process.stdout.fileno()
    self.pid = self._process.pid
    self._channel = Channel(self.read_fd, self.write_fd)
    self._send((list(functions), paths))

  def call(self, number: int, index: int, arguments: dict[str, Any]) -> None:
    """Sends a function call without waiting for the reply."""
    self._send((number, index, arguments))

  def _send(self, value: Any) -> None:
    payload = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    self._channel.write(worker.frame(payload))

  def flush(self) -> None:
    """Writes as much as the pipe accepts."""
    self._channel.flush()

  def has_unsent(self) -> bool:
    """Returns whether to call `flush` once the pipe accepts bytes again."""
    return self._channel.has_unsent()

  def receive(self) -> list[dict[str, Any]]:
    """Returns the replies that have arrived.

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
    """Makes the keeper kill the process and everything that it started.

    Returns:
      The keeper's exit status: the status of a process that ended by itself,
      `keeper.TOO_MUCH`, or 0 if this call ended the process.
    """
    assert self._process.stdin and self._process.stdout
    self._process.stdin.close()
    status = self._process.wait()
    self._process.stdout.close()
    return status


__all__ = ["Closed", "Process"]
