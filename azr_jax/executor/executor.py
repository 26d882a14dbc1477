"""The executor as its users see it: jobs in, verdicts out.

Behind it is a pool of zygotes on this machine (`pool.py`) or, on a Ray cluster,
such a pool on each node (`cluster.py`). Jobs that need a library have a pool of
their own, which the first of them starts.
"""

import collections
import threading
from collections.abc import Iterable, Sequence

from azr_jax.executor.cluster import Cluster
from azr_jax.executor.job import Job, Result
from azr_jax.executor.pending import ResultFuture
from azr_jax.executor.pool import Pool
from azr_jax.executor.settings import ExecutorSettings


class Executor:
  """Runs untrusted Python programs; see executor/README.md.

  Thread-safe; a context manager. Closing it leaves no process.
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
  ):
    """Starts the zygotes and proves their walls.

    Args:
      workers: pairs of zygotes on a machine, about the cores to spare.
      timeout_s: wall-clock seconds per call of a program.
      memory_mb: address space per program.
      unsafe: run without seccomp, where the kernel has none.
      without: other walls to leave out, to see what each catches.
      backend: `local`, or `ray` for a cluster.
      nodes: with `ray`, the number of actors; 0 is one for each node that has
        `workers` cores.
      address: with `ray`, the cluster's address; empty is the one that this
        process is connected to, or else a new one on this machine.

    Raises:
      ValueError: an argument is out of range.
      RuntimeError: a zygote does not start, a wall does not stand, or Ray is
        missing.
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
    )
    self._settings = settings
    self._starting = threading.Lock()
    self._closed = False
    # A cluster's nodes each have an executor, which sees to its libraries.
    self._cluster = (
      Cluster(settings, nodes, address) if backend == "ray" else None
    )
    self._main = self._cluster or Pool(settings)
    self._library_pools: dict[tuple[str, ...], Pool] = {}

  def _pool(self, libraries: Sequence[str]) -> Pool | Cluster:
    if self._cluster or not libraries:
      return self._main
    names = tuple(sorted(set(libraries)))
    with self._starting:
      if names not in self._library_pools:
        if self._closed:
          raise RuntimeError("the executor is closed")
        self._library_pools[names] = Pool(self._settings, names)
      return self._library_pools[names]

  def _all(self) -> list[Pool | Cluster]:
    return [self._main, *self._library_pools.values()]

  def __enter__(self) -> "Executor":
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()

  def submit(self, job: Job) -> ResultFuture:
    """Queues a job; the future holds its `Result`.

    While an identical job is under way, the two share its runs.

    Raises:
      TypeError, ValueError: a field of the job is not what it should be, or
        it needs a library that is not installed.
      RuntimeError: the executor is closed.
    """
    return self._submit([job])[0]

  def _submit(self, jobs: list[Job]) -> list[ResultFuture]:
    futures: list[ResultFuture | None] = [None] * len(jobs)
    places: dict[tuple[str, ...], list[int]] = collections.defaultdict(list)
    for place, job in enumerate(jobs):
      job.check()
      places[tuple(job.libraries)].append(place)
    for libraries, own in places.items():
      found = self._pool(libraries).submit([jobs[place] for place in own])
      for place, future in zip(own, found, strict=True):
        futures[place] = future
    return [future for future in futures if future is not None]

  def map(self, jobs: Iterable[Job]) -> list[Result]:
    """Runs the jobs, identical ones once; results in order.

    Raises:
      TypeError, ValueError, RuntimeError: as `submit`.
    """
    return [future.result() for future in self._submit(list(jobs))]

  def counters(self) -> dict[str, int]:
    """Verdicts by status since the start, and their sum as `programs`."""
    counts: collections.Counter[str] = collections.Counter()
    for backend in self._all():
      counts.update(backend.pending.counters())
    return dict(counts)

  def layers(self) -> dict[str, bool]:
    """Which walls stand, and what the self-test saw denied."""
    return self._main.layers()

  def processes(self) -> list[int]:
    """Process ids of the zygotes, or of the actors on a cluster."""
    return [
      process for backend in self._all() for process in backend.processes()
    ]

  def close(self) -> None:
    """Ends every process; jobs under way are cancelled."""
    with self._starting:
      self._closed = True
    for backend in self._all():
      backend.close()
