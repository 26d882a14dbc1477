"""The executor on a Ray cluster: one actor per node, each with its own pool.

The life of a job:
1. `Pending.submit` queues it and wakes the cluster's thread;
2. the thread sends it, in a batch, to the actor with the fewest jobs. Each
   actor takes a bounded number; the other jobs wait here;
3. the actor's pool decides the verdict, as on one machine. Only jobs and
   verdicts are sent between nodes;
4. the jobs of an actor that died, or whose node died, go to another actor.

This is the only module that imports Ray, and it does so only when a cluster is
asked for.
"""

import asyncio
import collections
import dataclasses
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from azr_jax.executor import verdict
from azr_jax.executor.job import Job, Result
from azr_jax.executor.pending import Pending, ResultFuture, Task
from azr_jax.executor.settings import ExecutorSettings

BATCH_JOBS = 16
# Jobs in flight per worker: bounded, so that endless loops do not pile up on
# one actor.
MAX_JOBS_PER_WORKER = 128
MAX_TRIES = 3
MAX_FALSE_STARTS = 5  # Actors in a row that die before they have started.
START_S = 120.0  # An actor may have to wait for a new node to start.
GRACE_S = 60.0  # Added to the time that an actor's jobs may take.
CHECK_S = 5.0  # Between two looks for actors that do not answer.


class NodeExecutor(Protocol):
  """What an actor needs of the executor of its node."""

  def submit(self, job: Job) -> ResultFuture:
    """Queues a job and returns the future of its result."""
    ...

  def layers(self) -> dict[str, bool]:
    """Returns which sandbox layers are active on the node."""
    ...


class _NodePool:
  """The Ray actor: a local executor behind remote calls."""

  def __init__(self, make_executor: Callable[[], NodeExecutor]):
    self._executor = make_executor()

  async def layers(self) -> tuple[int, dict[str, bool]]:
    """Returns the actor's process id and its node's sandbox layers."""
    return os.getpid(), self._executor.layers()

  async def run(self, jobs: list[Job]) -> list[Result]:
    """Runs a batch; calls for other batches may run at the same time."""
    futures = [self._executor.submit(job) for job in jobs]
    return await asyncio.gather(*map(asyncio.wrap_future, futures))


@dataclasses.dataclass(eq=False)
class _Node:
  """An actor as the cluster sees it.

  Attributes:
    actor: the handle for remote calls.
    pid: its process id on its node, 0 until it has started.
    layers: the sandbox layers of its node, None until it has started.
    busy: the tasks sent to it and not yet answered.
    last_heard: when it last answered, or when it was last given work after
      being idle, on the monotonic clock.
  """

  actor: Any
  pid: int = 0
  layers: dict[str, bool] | None = None
  busy: set[Task] = dataclasses.field(default_factory=set)
  last_heard: float = dataclasses.field(default_factory=time.monotonic)


class Cluster:
  """Pools on the nodes of a Ray cluster.

  Attributes:
    pending: the unfinished jobs.
  """

  def __init__(
    self,
    settings: ExecutorSettings,
    make_executor: Callable[[], NodeExecutor],
  ):
    """Connects to the cluster and waits for the first actor.

    Args:
      settings: `nodes` is the number of actors, 0 for one on each node with
        `workers` cores; `address` is the cluster's, if empty that of the
        cluster that this process is connected to, or else of a new one on
        this machine.
      make_executor: called on each node; Ray sends it there.

    Raises:
      RuntimeError: Ray is missing, no node has the cores, or no actor starts.
    """
    self._ray = _import_ray()
    self._settings = settings
    self._make_executor = make_executor
    self._awake = threading.Event()
    self.pending = Pending(self._awake.set)
    self._owns_cluster = not self._ray.is_initialized()
    if self._owns_cluster:
      self._ray.init(address=settings.address or None, log_to_driver=False)
    self._answers: collections.deque[tuple[_Node, list[Task], Any]] = (
      collections.deque()
    )
    self._tries: collections.Counter[Task] = collections.Counter()
    self._retries: collections.deque[Task] = collections.deque()
    self._false_starts = 0
    self._started = threading.Event()
    self._error: BaseException | None = None
    try:
      self._nodes = [
        self._new_node(strategy) for strategy in self._strategies()
      ]
    except BaseException:
      self._disconnect()
      raise
    self._thread = threading.Thread(
      target=self._work, name="executor-cluster", daemon=True
    )
    self._thread.start()
    self._started.wait(START_S)
    if not self._ready():
      self.close()
      raise RuntimeError(
        f"no executor actor started in {START_S:.0f} s; expected "
        f"{settings.workers} free cores on a node of the Ray cluster"
      ) from self._error

  def layers(self) -> dict[str, bool]:
    """Returns which sandbox layers are active on every node that started."""
    layers_of_nodes = [node.layers or {} for node in self._ready()]
    if not layers_of_nodes:
      return {}
    return {
      name: all(layers.get(name, False) for layers in layers_of_nodes)
      for name in layers_of_nodes[0]
    }

  def processes(self) -> list[int]:
    """Returns process ids of the actors, each as its own node counts them."""
    return [node.pid for node in self._ready()]

  def close(self) -> None:
    """Ends every actor; unfinished jobs are cancelled."""
    self.pending.close()
    self._thread.join()

  def _strategies(self) -> list[Any]:
    """Returns a Ray scheduling strategy for each actor.

    Raises:
      RuntimeError: no node has the cores.
    """
    if self._settings.nodes:
      return ["SPREAD"] * self._settings.nodes
    strategies = [
      self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        node["NodeID"], soft=False
      )
      for node in self._ray.nodes()
      if node["Alive"]
      and node["Resources"].get("CPU", 0) >= self._settings.workers
    ]
    if not strategies:
      raise RuntimeError(
        f"no node of the Ray cluster has {self._settings.workers} cores; "
        "expected executor.workers to fit on one"
      )
    return strategies

  def _new_node(self, strategy: Any) -> _Node:
    actor_class = self._ray.remote(_NodePool)
    actor = actor_class.options(
      num_cpus=self._settings.workers, scheduling_strategy=strategy
    ).remote(self._make_executor)
    node = _Node(actor)
    self._call(node, [], actor.layers.remote())
    return node

  def _call(self, node: _Node, tasks: list[Task], reference: Any) -> None:
    """Hands a remote call's answer to the cluster's thread.

    Ray calls back in a thread of its own, so the answer is queued.
    """

    def on_done(future: Any) -> None:
      self._answers.append((node, tasks, future))
      self._awake.set()

    reference.future().add_done_callback(on_done)

  def _ready(self) -> list[_Node]:
    return [node for node in self._nodes if node.layers is not None]

  def _work(self) -> None:
    """Runs in the cluster's thread until the executor is closed."""
    try:
      while not self.pending.closed:
        self._dispatch()
        self._awake.wait(CHECK_S)
        self._awake.clear()
        while self._answers:
          self._take_answer(*self._answers.popleft())
        for node in self._silent():
          self._replace(node, RuntimeError("an executor actor does not answer"))
    except Exception as error:  # noqa: BLE001 - the waiters must hear of it.
      self._error = error
    finally:
      self.pending.end(self._error)
      self._started.set()
      for node in self._nodes:
        self._ray.kill(node.actor)
      self._disconnect()

  def _disconnect(self) -> None:
    if self._owns_cluster:
      self._ray.shutdown()

  def _dispatch(self) -> None:
    """Sends waiting jobs to the actors that can take more, evenly."""
    max_jobs = MAX_JOBS_PER_WORKER * self._settings.workers
    while nodes := [n for n in self._ready() if len(n.busy) < max_jobs]:
      node = min(nodes, key=lambda node: len(node.busy))
      tasks = self._next_tasks(min(BATCH_JOBS, max_jobs - len(node.busy)))
      if not tasks:
        return
      if not node.busy:
        node.last_heard = time.monotonic()
      node.busy.update(tasks)
      jobs = [task.job for task in tasks]
      self._call(node, tasks, node.actor.run.remote(jobs))

  def _next_tasks(self, max_tasks: int) -> list[Task]:
    tasks: list[Task] = []
    while len(tasks) < max_tasks:
      task = self._retries.popleft() if self._retries else self.pending.take()
      if task is None:
        break
      tasks.append(task)
    return tasks

  def _take_answer(self, node: _Node, tasks: list[Task], future: Any) -> None:
    """Handles an answer, which ends a node's start or a batch of tasks."""
    if node not in self._nodes:
      return  # The node was replaced, and its jobs went to another.
    try:
      answer = future.result()
    except Exception as error:  # noqa: BLE001 - any failure loses the actor.
      self._replace(node, error)
      return
    node.last_heard = time.monotonic()
    if node.layers is None:
      node.pid, node.layers = answer
      self._false_starts = 0
      self._started.set()
      return
    node.busy.difference_update(tasks)
    for task, result in zip(tasks, answer, strict=True):
      self._tries.pop(task, None)
      self.pending.finish(task, result)

  def _silent(self) -> list[_Node]:
    """Returns actors that have owed an answer for too long."""
    now = time.monotonic()
    return [
      node for node in self._nodes if now - node.last_heard > _patience_s(node)
    ]

  def _replace(self, node: _Node, error: Exception) -> None:
    """Starts an actor in place of a lost one; the others get its jobs.

    Raises:
      Exception: `error`, after too many actors in a row did not start.
    """
    self._nodes.remove(node)
    self._ray.kill(node.actor)
    for task in node.busy:
      self._tries[task] += 1
      if self._tries[task] < MAX_TRIES:
        self._retries.append(task)
      else:
        del self._tries[task]
        lost = verdict.failure(task.job, "error", "WorkerDied")
        self.pending.finish(task, lost)
    self._false_starts += node.layers is None
    if self._false_starts > MAX_FALSE_STARTS:
      raise error
    self._nodes.append(self._new_node("SPREAD"))


def _patience_s(node: _Node) -> float:
  """Returns the seconds of silence after which an actor counts as dead."""
  if node.layers is None:
    return START_S
  if not node.busy:
    return math.inf
  return GRACE_S + sum(
    (task.limits.run_s + task.limits.sleep_s) * task.job.runs
    for task in node.busy
  )


def _import_ray() -> Any:
  try:
    import ray
    import ray.util.scheduling_strategies
  except ImportError:
    raise RuntimeError(
      "executor.backend is 'ray', but Ray is not installed: "
      "pip install 'azr_jax[ray]'"
    ) from None
  return ray
