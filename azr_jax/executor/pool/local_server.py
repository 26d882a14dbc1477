"""The dispatcher's side of a server process on this machine.

The process is started by exec, without JAX, in a session of its own that the
terminal's Ctrl-C does not reach. It exits when this process closes the socket
or dies.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from azr_jax.config import settings as settings_lib
from azr_jax.executor.job import Result
from azr_jax.executor.pool import messages, worker
from azr_jax.executor.pool.channel import Channel, Closed
from azr_jax.executor.pool.dispatcher import ServerLost
from azr_jax.executor.pool.pending import PoolTask
from azr_jax.executor.settings import ExecutorSettings

# Jobs fail after this many lost server processes with no verdict in between.
MAX_LOSSES = 3
# Seconds without a message after which the server counts as lost.
HEARTBEAT_TIMEOUT_S = 60.0
# Seconds that the server has to end its zygotes before it is killed.
SHUTDOWN_TIMEOUT_S = 10.0
# The package's parent folder; an editable install may not put it on `sys.path`.
_ROOT = pathlib.Path(__file__).parents[3]


class LocalServer:
  """A server process; implements `dispatcher.Server`."""

  def __init__(
    self, settings: ExecutorSettings, library_names: Sequence[str] = ()
  ):
    """Starts the process, without waiting for it.

    Args:
      settings: settings of the server's pool.
      library_names: libraries that programs may use.
    """
    self.workers = settings.workers
    self.in_flight: dict[int, PoolTask] = {}
    self._settings = settings
    self._libraries = tuple(library_names)
    self._losses = 0
    self._start()

  def _start(self) -> None:
    self.layers: dict[str, bool] | None = None
    self.processes: list[int] = []
    self._failure: str | None = None
    self._last_message_at = time.monotonic()
    self._socket, server_end = socket.socketpair()
    with server_end:
      self._process = subprocess.Popen(
        worker.python_command("-m", "azr_jax.executor.pool.server"),
        stdin=server_end.fileno(),
        stdout=subprocess.DEVNULL,
        env=worker.ENVIRONMENT | {"PYTHONPATH": str(_ROOT)},
        cwd="/",
        start_new_session=True,
      )
    self.descriptor: int | None = self._socket.fileno()
    self._channel = Channel(self._socket.fileno(), self._socket.fileno())
    paths = tuple(os.path.abspath(path) for path in (*sys.path, _ROOT))
    content = settings_lib.as_dict(self._settings), self._libraries, paths
    self._write(messages.START, content)

  @property
  def pid(self) -> int:
    """The server's process id."""
    return self._process.pid

  def _write(self, kind: str, content: object) -> None:
    self._channel.write(messages.pack(kind, content))

  def send(self, tasks: Sequence[PoolTask]) -> None:
    """Sends tasks, without waiting."""
    jobs = [(task.number, messages.job_fields(task.job)) for task in tasks]
    self._write(messages.JOBS, jobs)

  def cancel(self, numbers: Sequence[int]) -> None:
    """Tells the server to drop these tasks, without waiting."""
    self._write(messages.CANCEL, list(numbers))

  def has_unsent(self) -> bool:
    """Returns whether to call `flush` when the socket accepts bytes."""
    return self._channel.has_unsent()

  def flush(self) -> None:
    """Sends buffered bytes."""
    self._channel.flush()

  def receive(self) -> list[tuple[int, Result]]:
    """Returns the numbers and verdicts of tasks that have ended.

    Raises:
      ServerLost: the process exited.
    """
    try:
      self._channel.read()
    except Closed:
      raise ServerLost(self._describe_end()) from None
    self._last_message_at = time.monotonic()
    verdicts: list[tuple[int, Result]] = []
    for kind, content in messages.take(self._channel.incoming):
      if kind == messages.VERDICTS:
        self._losses = 0
        verdicts += [
          (number, Result(self._id(number), *fields))
          for number, fields in content
        ]
      elif kind == messages.PROCESSES:
        self.processes = content
      elif kind == messages.STARTED:
        self.layers = content
      elif kind == messages.FAILED:
        self._failure = content
    return verdicts

  def _id(self, number: int) -> str:
    """Returns the id of a task's job; empty if the task was cancelled."""
    return self.in_flight[number].job.id if number in self.in_flight else ""

  def _describe_end(self) -> str:
    """Reaps the process and describes how it ended."""
    name = f"the executor's server process {self.pid}"
    self._reap()
    code = self._process.returncode
    if self._failure is not None:
      return f"{name} gave up: {self._failure}"
    if code < 0:
      return f"{name} was killed by {signal.Signals(-code).name}"
    return f"{name} exited with code {code}"

  def check(self) -> None:
    """Kills the process if it has been silent for too long.

    Raises:
      ServerLost: the process has been silent for too long.
    """
    if time.monotonic() - self._last_message_at > HEARTBEAT_TIMEOUT_S:
      self._process.kill()
      raise ServerLost(
        f"{self._describe_end()} after {HEARTBEAT_TIMEOUT_S:.0f} s of silence"
      )

  def restart(self, error: ServerLost) -> None:
    """Starts a new process in place of the lost one.

    Raises:
      ServerLost: `error`, if a new process would not help.
    """
    self._losses += 1
    if self._failure is not None or self._losses >= MAX_LOSSES:
      raise error
    self._socket.close()
    self._start()

  def end(self) -> None:
    """Ends the process and its zygotes."""
    self._socket.close()
    self._reap()

  def _reap(self) -> None:
    """Waits until the process has exited; kills it after a timeout."""
    try:
      self._process.wait(SHUTDOWN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
