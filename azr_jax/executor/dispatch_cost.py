"""Measures what a pool does for each run, beside any number of zygotes.

The zygotes are fakes that answer as soon as they are asked, so the CPU time
of this process is that of scheduling and of reading replies alone.
"""

import os
import time
from typing import Any

from azr_jax.executor import frames
from azr_jax.executor.channel import Channel
from azr_jax.executor.job import Job
from azr_jax.executor.pool import Pool
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.executor.worker import START_TIMEOUT_S, Zygote

RUNS = 20_000  # Measured jobs of one run each.
ALONE = 2_000  # Measured jobs that come one after the other.
_REPORT = b"1\ndone\n"


class FakeZygote(Zygote):
  """A zygote without a process, which answers every request at once."""

  def __init__(self, seed: int, **options: Any):
    """Opens a pipe and writes into it that the zygote has started."""
    del options
    self.seed, self.in_flight, self.layers = seed, {}, None
    self.started_at = self.last_activity = time.monotonic()
    self.start_timeout_s = START_TIMEOUT_S
    self.read_fd, self.write_fd = os.pipe()
    self._channel = Channel(self.read_fd, self.write_fd)
    self._channel.write(frames.pack_hello({}))

  @property
  def pid(self) -> int:
    """No process id."""
    return 0

  def send(self, frame: bytes) -> None:
    """Writes the reply to a request, where `receive` reads it."""
    _, number, *_ = frames.unpack_request(frame[: frames.REQUEST_BYTES])
    used = 0.0, 0.0, 0.0
    head = frames.pack_reply(number, *used, frames.REPORTED, len(_REPORT))
    self._channel.write(head + _REPORT)

  def end(self) -> None:
    """Closes the pipe."""
    os.close(self.read_fd)
    os.close(self.write_fd)


def measure(workers: int) -> dict[str, float]:
  """Returns CPU microseconds per run.

  Args:
    workers: pairs of zygotes of the one pool.

  Returns:
    `queued_us`: many runs wait, and all slots are used. `alone_us`: each run
    comes when the one before it has ended, so every reply is a wake-up.
  """
  # Fake zygotes deny nothing in the self-test, so seccomp must not be asked
  # for.
  settings = ExecutorSettings(workers=workers, unsafe=True)
  pool = Pool(settings, start_zygote=FakeZygote)
  try:
    while pool.layers is None:
      pool.step(1.0)
    _run(pool, RUNS // 10)
    start = time.process_time()
    _run(pool, RUNS)
    queued_s = time.process_time() - start
    start = time.process_time()
    for _ in range(ALONE):
      _run(pool, 1)
    alone_s = time.process_time() - start
  finally:
    pool.close()
  return {"queued_us": 1e6 * queued_s / RUNS, "alone_us": 1e6 * alone_s / ALONE}


def _run(pool: Pool, count: int) -> None:
  """Runs jobs until they have all ended."""
  for number in range(count):
    pool.submit(number, Job("", "", (str(number),)))
  while len(pool.verdicts) < count:
    pool.step(1.0)
  pool.verdicts.clear()
