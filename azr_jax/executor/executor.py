"""The executor's interface: jobs go in, futures of results come out.

The programs run in a pool of zygotes on this machine (`pool.py`) or, on a Ray
cluster, in one such pool per node (`cluster.py`). Jobs that need a library run
in a separate pool, which the first of them starts.
"""

import collections
import functools
import threading
from collections.abc import Iterable, Iterator, Sequence

from azr_jax.executor.cluster import Cluster
from azr_jax.executor.job import Job, Result
from azr_jax.executor.limits import Limits
from azr_jax.executor.pending import ResultFuture
from azr_jax.executor.pool import Pool
from azr_jax.executor.settings import ExecutorSettings

# Jobs that one pool runs within the same limits.
_Batch = tuple[tuple[str, ...], Limits]


class Executor:
  """Runs untrusted Python programs; see executor/README.md.

  Thread-safe; a context manager. No process is left after it is closed.
  """

  def __init__(
    self,
    workers: int,
    timeout_s: float,
    memory_mb: int,
    unsafe: bool = False,
    without: Sequence[str] = (),
    backend: str = "local",
    nodes: int = 0,
    address: str = "",
    **factors: float,
  ):
    """Starts the zygotes and tests that their sandbox holds.

    Args:
      workers: pairs of zygotes per machine, about the number of spare cores.
      timeout_s: CPU seconds per call of a program.
      memory_mb: address space per program, in MiB.
      unsafe: run without seccomp, on a kernel that lacks it.
      without: other sandbox layers to leave out, to see what each catches.
      backend: `local`, or `ray` for a cluster.
      nodes: with `ray`, the number of actors; 0 starts one on each node that
        has `workers` cores.
      address: with `ray`, the cluster's address; if empty, the cluster that
        this process is connected to, or else a new one on this machine.
      **factors: `job_factor`, `sleep_factor` and `validation_fraction` of
        `ExecutorSettings`.

    Raises:
      ValueError: an argument is out of range.
      RuntimeError: a zygote does not start, a sandbox layer does not hold, or
        Ray is missing.
    """
    settings = ExecutorSettings(
      backend=backend,
      nodes=nodes,
      address=address,
      workers=workers,
      timeout_s=timeout_s,
      memory_mb=memory_mb,
      unsafe=unsafe,
      without=tuple(without),
      **factors,
    )
    self._settings = settings
    self._lock = threading.Lock()
    self._closed = False
    # On a cluster, the executor of each node starts the pools of libraries.
    make_local = functools.partial(
      Executor,
      workers,
      timeout_s,
      memory_mb,
      unsafe,
      settings.without,
      **factors,
    )
    self._cluster = Cluster(settings, make_local) if backend == "ray" else None
    self._main = self._cluster or Pool(settings)
    self._library_pools: dict[tuple[str, ...], Pool] = {}

  def _pool(self, libraries: Sequence[str]) -> Pool | Cluster:
    """Returns what runs jobs that need these libraries; starts it if needed."""
    if self._cluster or not libraries:
      return self._main
    names = tuple(sorted(set(libraries)))
    with self._lock:
      if names not in self._library_pools:
        if self._closed:
          raise RuntimeError("the executor is closed")
        self._library_pools[names] = Pool(self._settings, names)
      return self._library_pools[names]

  def _pools(self) -> list[Pool | Cluster]:
    return [self._main, *self._library_pools.values()]

  def __enter__(self) -> "Executor":
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()

  def submit(self, job: Job) -> ResultFuture:
    """Queues a job and returns the future of its `Result`.

    A job that is identical to one in progress shares its runs.

    Raises:
      TypeError, ValueError: a field of the job is invalid, or it needs a
        library that is not installed.
      RuntimeError: the executor is closed.
    """
    job.check()  # Before the pool's thread, which serves all jobs, sees it.
    pending = self._pool(job.libraries).pending
    return pending.submit([job], self._settings.limits(job))[0]

  def map(self, jobs: Iterable[Job]) -> list[Result]:
    """Runs the jobs, identical ones once; returns results in order.

    Raises:
      TypeError, ValueError, RuntimeError: as `submit`.
    """
    jobs = list(jobs)
    batches: dict[_Batch, list[Job]] = collections.defaultdict(list)
    for job in jobs:
      job.check()
      batches[self._batch(job)].append(job)
    futures: dict[_Batch, Iterator[ResultFuture]] = {}
    for (libraries, limits), batch in batches.items():
      # Identical jobs share runs only if they are submitted together.
      pending = self._pool(libraries).pending
      futures[libraries, limits] = iter(pending.submit(batch, limits))
    return [next(futures[self._batch(job)]).result() for job in jobs]

  def _batch(self, job: Job) -> _Batch:
    return tuple(job.libraries), self._settings.limits(job)

  def counters(self) -> dict[str, int]:
    """Returns verdicts by status since the start, and their sum `programs`."""
    counts: collections.Counter[str] = collections.Counter()
    for pool in self._pools():
      counts.update(pool.pending.counters())
    return dict(counts)

  def layers(self) -> dict[str, bool]:
    """Returns which sandbox layers are active and what the self-test denied."""
    return self._main.layers()

  def processes(self) -> list[int]:
    """Returns process ids of the zygotes, or of the actors on a cluster."""
    return [pid for pool in self._pools() for pid in pool.processes()]

  def close(self) -> None:
    """Ends every process; unfinished jobs are cancelled."""
    with self._lock:
      self._closed = True
    for pool in self._pools():
      pool.close()
