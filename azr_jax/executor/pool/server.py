"""A server process: runs a pool outside the trainer's interpreter.

`local_server.py` starts it by exec, so it holds no JAX. It exchanges the
messages of `messages.py` over one socket, its standard input. It exits, after
its zygotes, when the trainer closes the socket or dies. It ignores signals that
a terminal or a job scheduler sends to all processes of a run, because the
trainer may still need verdicts before it saves.
"""

import os
import select
import signal
import time

from azr_jax.executor.job import Job
from azr_jax.executor.pool import messages
from azr_jax.executor.pool.channel import Channel, Closed
from azr_jax.executor.pool.pool import ZygotePool
from azr_jax.executor.settings import ExecutorSettings

# Seconds between heartbeats, and between checks that the trainer is alive: a
# fork of the trainer may keep the socket open after the trainer's death.
HEARTBEAT_S = 2.0
# Minimum seconds between two messages with verdicts while jobs are unfinished:
# each message wakes the trainer's interpreter.
BATCH_DELAY_S = 0.005


class _Server:
  """A pool and the socket that connects it to the trainer."""

  def __init__(self, channel: Channel, pool: ZygotePool):
    self._channel = channel
    self._pool = pool
    self._sent_layers = False
    self._sent_replaced = -1
    self._watched = select.EPOLLIN
    self._last_sent = 0.0
    self._batch_until = 0.0
    pool.watch(channel.read_fd, self._watched)

  def serve(self) -> None:
    """Serves until the trainer closes the socket or dies.

    Raises:
      RuntimeError: the pool cannot continue.
    """
    trainer = os.getppid()
    while os.getppid() == trainer:
      wait_s = HEARTBEAT_S
      if self._pool.verdicts:
        wait_s = max(0.0, self._batch_until - time.monotonic())
      if self._channel.read_fd in self._pool.step(wait_s):
        self._channel.flush()
        try:
          self._channel.read()
        except Closed:
          return
        for kind, content in messages.take(self._channel.incoming):
          self._handle(kind, content)
      self._report_state()

  def _handle(self, kind: str, content: list) -> None:
    if kind == messages.JOBS:
      for number, fields in content:
        self._pool.submit(number, Job(*fields))
    elif kind == messages.CANCEL:
      for number in content:
        self._pool.cancel(number)

  def _report_state(self) -> None:
    """Sends the trainer what has changed, or a heartbeat."""
    pool, now = self._pool, time.monotonic()
    if pool.replaced != self._sent_replaced:
      self._sent_replaced = pool.replaced
      self._write(messages.PROCESSES, pool.processes())
    if pool.layers is not None and not self._sent_layers:
      self._sent_layers = True
      self._write(messages.STARTED, pool.layers)
    is_last = not pool.unfinished()
    if pool.verdicts and (is_last or now >= self._batch_until):
      verdicts = [
        (number, messages.result_fields(result))
        for number, result in pool.verdicts
      ]
      pool.verdicts.clear()
      self._write(messages.VERDICTS, verdicts)
      self._batch_until = now + BATCH_DELAY_S
    if now - self._last_sent > HEARTBEAT_S / 2:
      self._write(messages.HEARTBEAT, None)
    events = select.EPOLLIN
    if self._channel.has_unsent():
      events |= select.EPOLLOUT
    if events != self._watched:
      self._watched = events
      pool.change_watch(self._channel.read_fd, events)

  def _write(self, kind: str, content: object) -> None:
    self._last_sent = time.monotonic()
    self._channel.write(messages.pack(kind, content))


def _first_message(channel: Channel) -> tuple:
  """Waits for the trainer's first message and returns its content."""
  while True:
    select.select([channel.read_fd], [], [])
    channel.read()
    for _, content in messages.take(channel.incoming):
      return content


def main() -> None:
  """Starts the pool described by the first message, and serves it."""
  for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
  socket = os.dup(0)
  null = os.open(os.devnull, os.O_RDWR)
  for standard in (0, 1):
    os.dup2(null, standard)
  os.close(null)
  channel = Channel(socket, socket)
  settings, libraries, paths = _first_message(channel)
  c = ExecutorSettings(**settings)
  pool = ZygotePool(
    c.workers, c.limits, c.memory_mb, c.layers(), libraries, paths
  )
  try:
    _Server(channel, pool).serve()
  except RuntimeError as error:
    os.set_blocking(socket, True)
    channel.write(messages.pack(messages.FAILED, str(error)))
  finally:
    pool.close()


if __name__ == "__main__":
  main()
