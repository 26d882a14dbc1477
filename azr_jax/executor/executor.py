"""The executor as its users see it: jobs in, verdicts out.

Behind it is a pool of zygotes on this machine (`pool.py`) or, on a Ray cluster,
such a pool on each node (`cluster.py`).
"""

from collections.abc import Iterable, Sequence

from azr_jax.executor.cluster import Cluster
from azr_jax.executor.job import Job, Result
from azr_jax.executor.pending import ResultFuture
from azr_jax.executor.pool import Pool
from azr_jax.executor.settings import Settings

BACKENDS = ("local", "ray")


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
    settings = Settings(workers, timeout_s, memory_mb, unsafe, tuple(without))
    settings.check()
    if backend not in BACKENDS:
      raise ValueError(f"backend is {backend!r}; expected one of {BACKENDS}")
    if nodes < 0:
      raise ValueError(f"nodes is {nodes}; expected at least 0")
    self._backend = (
      Pool(settings)
      if backend == "local"
      else Cluster(settings, nodes, address)
    )

  def __enter__(self) -> "Executor":
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()

  def submit(self, job: Job) -> ResultFuture:
    """Queues a job; the future holds its `Result`.

    While an identical job is under way, the two share its runs.

    Raises:
      TypeError, ValueError: a field of the job is not what it should be.
      RuntimeError: the executor is closed.
    """
    return self._backend.submit([job])[0]

  def map(self, jobs: Iterable[Job]) -> list[Result]:
    """Runs the jobs, identical ones once; results in order.

    Raises:
      TypeError, ValueError, RuntimeError: as `submit`.
    """
    return [future.result() for future in self._backend.submit(list(jobs))]

  def counters(self) -> dict[str, int]:
    """Verdicts by status since the start, and their sum as `programs`."""
    return self._backend.pending.counters()

  def layers(self) -> dict[str, bool]:
    """Which walls stand, and what the self-test saw denied."""
    return self._backend.layers()

  def processes(self) -> list[int]:
    """Process ids of the zygotes, or of the actors on a cluster."""
    return self._backend.processes()

  def close(self) -> None:
    """Ends every process; jobs under way are cancelled."""
    self._backend.close()
