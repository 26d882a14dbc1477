"""The executor's interface: jobs go in, futures of results come out.

Programs run in pools of zygotes (`pool.py`). On this machine, each pool has a
process of its own (`server.py`); on a Ray cluster, each node has a local
executor (`cluster.py`). Jobs that need libraries run in separate pools, which
are started by the first such job.
"""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import math
import threading
from collections.abc import Iterable, Sequence

from azr_jax.executor.child import libraries
from azr_jax.executor.job import Job, Result
from azr_jax.executor.pool.dispatcher import Dispatcher
from azr_jax.executor.pool.local_server import LocalServer
from azr_jax.executor.pool.pending import ResultFuture
from azr_jax.executor.settings import ExecutorSettings

# Pairs of zygotes per server process. With short programs, scheduling this many
# about fills one core.
WORKERS_PER_SERVER = 32

_DEFAULTS = ExecutorSettings()


class Executor:
  """Runs untrusted Python programs; see executor/README.md.

  Thread-safe, and a context manager. Closing it ends every process.

  Attributes:
    service: on a Ray cluster, the string with which other processes of the run
      find the same actors; otherwise empty.
  """

  def __init__(
    self,
    workers: int,
    timeout_s: float,
    memory_mb: int,
    unsafe: bool = _DEFAULTS.unsafe,
    disabled_layers: Sequence[str] = _DEFAULTS.disabled_layers,
    backend: str = _DEFAULTS.backend,
    nodes: int = _DEFAULTS.nodes,
    address: str = _DEFAULTS.address,
    service: str = "",
    *,
    profile: str = _DEFAULTS.profile,
    job_factor: float = _DEFAULTS.job_factor,
    sleep_factor: float = _DEFAULTS.sleep_factor,
    validation_fraction: float = _DEFAULTS.validation_fraction,
    libraries: Sequence[str] = _DEFAULTS.libraries,
  ):
    """Starts the zygotes and tests that the sandbox holds.

    Args:
      workers: the number of zygote pairs per machine, about the number of spare
        cores.
      timeout_s: CPU seconds per call of a program.
      memory_mb: the address space that a program may allocate, in MiB.
      unsafe: run without seccomp, on a kernel that lacks it.
      disabled_layers: other sandbox layers to leave out, to measure what each
        one stops.
      backend: `local`, or `ray` for a cluster.
      nodes: with `ray`, the number of actors; 0 starts one on each node that
        has `workers` cores.
      address: with `ray`, the cluster's address; if empty, the cluster that
        this process is connected to, or else a new one on this machine.
      service: with `ray`, the `service` attribute of another process's
        executor, to share its actors; if empty, new actors are started.
      profile: a sandbox profile, which the other arguments must follow.
      job_factor: CPU time of a job, in units of `timeout_s`.
      sleep_factor: time that a program may sleep, in units of `timeout_s`.
      validation_fraction: fraction of the limits that applies in validation.
      libraries: libraries that scripts may import.

    Raises:
      ValueError: an argument is out of range.
      RuntimeError: a zygote did not start, a sandbox layer does not hold, or
        Ray is not installed.
    """
    self._settings = ExecutorSettings(
      backend=backend,
      nodes=nodes,
      address=address,
      workers=workers,
      timeout_s=timeout_s,
      memory_mb=memory_mb,
      unsafe=unsafe,
      disabled_layers=tuple(disabled_layers),
      profile=profile,
      job_factor=job_factor,
      sleep_factor=sleep_factor,
      validation_fraction=validation_fraction,
      libraries=tuple(libraries),
    )
    self._lock = threading.Lock()
    self._closed = False
    self.service = ""
    self._library_pools: dict[tuple[str, ...], Dispatcher] = {}
    if backend == "ray":
      from azr_jax.executor.pool import cluster

      # Each node's executor starts library pools itself.
      local = dataclasses.replace(
        self._settings, backend="local", nodes=0, address=""
      )
      make_local = functools.partial(Executor, **vars(local))
      self._main, self.service = cluster.connect(
        self._settings, make_local, service
      )
    else:
      self._main = _start_local(self._settings)
    self._main.wait_for_start()

  def _pool(self, library_names: Sequence[str]) -> Dispatcher:
    """Returns the pool for jobs with these libraries; starts it if needed.

    Raises:
      ValueError: a library is unknown or not installed.
      RuntimeError: the executor is closed.
    """
    if not library_names or self._settings.backend == "ray":
      return self._main
    names = tuple(sorted(set(library_names)))
    with self._lock:
      if names not in self._library_pools:
        if self._closed:
          raise RuntimeError("the executor is closed")
        libraries.check(names)
        self._library_pools[names] = _start_local(self._settings, names)
      return self._library_pools[names]

  def _pools(self) -> list[Dispatcher]:
    return [self._main, *self._library_pools.values()]

  @property
  def libraries(self) -> tuple[str, ...]:
    """Libraries that untrusted programs may import, from the settings."""
    return self._settings.libraries

  @property
  def timeout_s(self) -> float:
    """CPU seconds per call of a program."""
    return self._settings.timeout_s

  def __enter__(self) -> "Executor":
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()

  def submit(self, job: Job) -> ResultFuture:
    """Queues a job and returns the future of its `Result`.

    A job that is identical to one in flight shares its runs. The first job with
    some set of libraries starts their zygotes, without waiting for them. If the
    zygotes do not start, the futures of these jobs raise RuntimeError.

    Raises:
      TypeError, ValueError: a field of the job is invalid, or the job needs a
        library that is not installed.
      RuntimeError: the executor is closed, or cannot run any more jobs; the
        message says why.
    """
    job.check()  # An invalid job must not reach the thread that serves all.
    return self._pool(job.libraries).pending.submit([job])[0]

  def map(self, jobs: Iterable[Job]) -> list[Result]:
    """Runs jobs, identical ones once, and returns their results in order.

    Raises:
      TypeError, ValueError, RuntimeError: as for `submit`.
    """
    jobs = list(jobs)
    batches: dict[tuple[str, ...], list[Job]] = collections.defaultdict(list)
    for job in jobs:
      job.check()
      batches[tuple(job.libraries)].append(job)
    # Identical jobs share runs only if they are submitted together.
    futures = {
      names: self._pool(names).pending.submit(batch)
      for names, batch in batches.items()
    }
    # This wakes once; waiting for each future in turn would wake every time.
    concurrent.futures.wait(
      itertools.chain(*futures.values()),
      return_when=concurrent.futures.FIRST_EXCEPTION,
    )
    in_order = {names: iter(batch) for names, batch in futures.items()}
    return [next(in_order[tuple(job.libraries)]).result() for job in jobs]

  def counters(self) -> dict[str, int]:
    """Returns verdict counts by status, and their sum as `programs`."""
    counts: collections.Counter[str] = collections.Counter()
    for pool in self._pools():
      counts.update(pool.pending.counters())
    return dict(counts)

  def layers(self) -> dict[str, bool]:
    """Returns the active sandbox layers and what the self-test denied."""
    return self._main.layers()

  def processes(self) -> list[int]:
    """Returns the process ids of the zygotes, or of the actors on a cluster."""
    return [pid for pool in self._pools() for pid in pool.processes()]

  def close(self) -> None:
    """Ends every process; unfinished jobs are cancelled."""
    with self._lock:
      self._closed = True
    for pool in self._pools():
      pool.close()


def _start_local(
  settings: ExecutorSettings, library_names: Sequence[str] = ()
) -> Dispatcher:
  """Starts server processes and divides the workers evenly among them."""
  count = -(-settings.workers // WORKERS_PER_SERVER)
  servers = []
  for index in range(count):
    workers = len(range(index, settings.workers, count))
    its_settings = dataclasses.replace(settings, workers=workers)
    servers.append(LocalServer(its_settings, library_names))
  dispatcher = Dispatcher("executor")
  # No timeout: a server whose zygotes do not start reports it.
  dispatcher.start(servers, needed=count, start_timeout_s=math.inf)
  return dispatcher
