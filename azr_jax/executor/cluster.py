"""The executor on a Ray cluster: an actor on each node, with a pool of its own.

The life of a job:
1. `submit` queues it and wakes the cluster's thread;
2. the thread sends it, with others, to the actor that has the fewest. An actor
   has a bounded number; the rest waits here;
3. the actor's pool decides the verdict, as on one machine; nothing but jobs and
   verdicts travels;
4. the jobs of an actor that died, or whose node did, go to another.

Ray is imported here and nowhere else, and only when a cluster is asked for.
"""

import asyncio
import collections
import dataclasses
import math
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from azr_jax.executor import verdict
from azr_jax.executor.job import Job, Result
from azr_jax.executor.pending import Pending, ResultFuture, Task
from azr_jax.executor.settings import ExecutorSettings

BATCH = 16  # Jobs that travel together.
JOBS_PER_WORKER = 128  # What an actor may have: batches with loops wait.
MAX_TRIES = 3
MAX_FALSE_STARTS = 5  # In a row.
START_S = 120.0  # For an actor; a new node may have to start first.
GRACE_S = 60.0  # Silence that counts as death, past what the jobs may take.
CHECK_S = 5.0


class _NodePool:
  """What runs on a node: an ordinary executor behind remote calls."""

  def __init__(self, settings: ExecutorSettings):
    from azr_jax.executor.executor import Executor

    self._executor = Executor(**dataclasses.asdict(settings))

  async def layers(self) -> tuple[int, dict[str, bool]]:
    """The actor's process id, and which walls stand on its node."""
    return os.getpid(), self._executor.layers()

  async def run(self, jobs: list[Job]) -> list[Result]:
    """Runs a batch; other batches may come in meanwhile."""
    futures = [self._executor.submit(job) for job in jobs]
    return await asyncio.gather(*map(asyncio.wrap_future, futures))


@dataclasses.dataclass(eq=False)
class _Node:
  """An actor as the cluster sees it; `layers` is None until it has started."""

  actor: Any
  pid: int = 0
  layers: dict[str, bool] | None = None
  busy: set[Task] = dataclasses.field(default_factory=set)
  heard: float = dataclasses.field(default_factory=time.monotonic)


class Cluster:
  """Pools on the nodes of a Ray cluster.

  Attributes:
    pending: the jobs under way.
  """

  def __init__(self, settings: ExecutorSettings, nodes: int, address: str):
    """Connects to the cluster and waits for the first actor.

    Args:
      settings: of the pool on each node.
      nodes: actors; 0 is one for each node with `settings.workers` cores.
      address: of the cluster; empty is the one that this process is connected
        to, or else a new one on this machine.

    Raises:
      RuntimeError: Ray is missing, no node has the cores, or no actor starts.
    """
    self._ray = _import_ray()
    self._settings = settings
    self._awake = threading.Event()
    self.pending = Pending(self._awake.set)
    self._own_cluster = not self._ray.is_initialized()
    if self._own_cluster:
      self._ray.init(address=address or None, log_to_driver=False)
    self._answers: collections.deque[tuple[_Node, list[Task], Any]] = (
      collections.deque()
    )
    self._tries: collections.Counter[Task] = collections.Counter()
    self._again: collections.deque[Task] = collections.deque()
    self._false_starts = 0
    self._started = threading.Event()
    self._error: BaseException | None = None
    try:
      self._nodes = [self._new_node(place) for place in self._places(nodes)]
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

  def submit(self, jobs: Sequence[Job]) -> list[ResultFuture]:
    """Queues jobs; their futures in order. Raises as `Pending.submit`."""
    return self.pending.submit(jobs, self._settings.timeout_s)

  def layers(self) -> dict[str, bool]:
    """Which walls stand on every node that has started."""
    found = [node.layers or {} for node in self._ready()]
    if not found:
      return {}
    return {
      name: all(layers.get(name, False) for layers in found)
      for name in found[0]
    }

  def processes(self) -> list[int]:
    """Process ids of the actors, each on its own node."""
    return [node.pid for node in self._ready()]

  def close(self) -> None:
    """Ends every actor; jobs under way are cancelled."""
    self.pending.close()
    self._thread.join()

  def _places(self, nodes: int) -> list[Any]:
    """Returns a scheduling strategy for each actor."""
    if nodes:
      return ["SPREAD"] * nodes
    places = [
      self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        node["NodeID"], soft=False
      )
      for node in self._ray.nodes()
      if node["Alive"]
      and node["Resources"].get("CPU", 0) >= self._settings.workers
    ]
    if not places:
      raise RuntimeError(
        f"no node of the Ray cluster has {self._settings.workers} cores; "
        "expected executor.workers to fit on one"
      )
    return places

  def _new_node(self, place: Any) -> _Node:
    actor_class = self._ray.remote(_NodePool)
    actor = actor_class.options(
      num_cpus=self._settings.workers, scheduling_strategy=place
    ).remote(self._settings)
    node = _Node(actor)
    self._call(node, [], actor.layers.remote())
    return node

  def _call(self, node: _Node, tasks: list[Task], reference: Any) -> None:
    """Lets the thread hear of an answer; Ray calls back in its own."""

    def answered(future: Any) -> None:
      self._answers.append((node, tasks, future))
      self._awake.set()

    reference.future().add_done_callback(answered)

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
          self._take(*self._answers.popleft())
        for node in self._silent():
          self._lose(node, RuntimeError("an executor actor does not answer"))
    except Exception as error:  # noqa: BLE001 - whoever waits must hear of it.
      self._error = error
    finally:
      self.pending.end(self._error)
      self._started.set()
      for node in self._nodes:
        self._ray.kill(node.actor)
      self._disconnect()

  def _disconnect(self) -> None:
    if self._own_cluster:
      self._ray.shutdown()

  def _dispatch(self) -> None:
    """Sends waiting jobs to the actors that have room, evenly."""
    most = JOBS_PER_WORKER * self._settings.workers
    while nodes := [node for node in self._ready() if len(node.busy) < most]:
      node = min(nodes, key=lambda node: len(node.busy))
      tasks = self._next_tasks(min(BATCH, most - len(node.busy)))
      if not tasks:
        return
      if not node.busy:
        node.heard = time.monotonic()
      node.busy.update(tasks)
      jobs = [task.job for task in tasks]
      self._call(node, tasks, node.actor.run.remote(jobs))

  def _next_tasks(self, most: int) -> list[Task]:
    tasks: list[Task] = []
    while len(tasks) < most:
      task = self._again.popleft() if self._again else self.pending.take()
      if task is None:
        break
      tasks.append(task)
    return tasks

  def _take(self, node: _Node, tasks: list[Task], future: Any) -> None:
    """Handles an answer: of a node that has started, or to a batch."""
    if node not in self._nodes:
      return  # It was given up, and its jobs went to another.
    try:
      answer = future.result()
    except Exception as error:  # noqa: BLE001 - any failure loses the actor.
      self._lose(node, error)
      return
    node.heard = time.monotonic()
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
    """Actors that owe an answer for longer than it can take them."""
    now = time.monotonic()
    return [
      node for node in self._nodes if now - node.heard > _patience_s(node)
    ]

  def _lose(self, node: _Node, error: Exception) -> None:
    """Gives an actor's jobs to the others, and starts one in its place."""
    self._nodes.remove(node)
    self._ray.kill(node.actor)
    for task in node.busy:
      self._tries[task] += 1
      if self._tries[task] < MAX_TRIES:
        self._again.append(task)
      else:
        del self._tries[task]
        lost = verdict.failure(task.job, "error", "WorkerDied")
        self.pending.finish(task, lost)
    self._false_starts += node.layers is None
    if self._false_starts > MAX_FALSE_STARTS:
      raise error
    self._nodes.append(self._new_node("SPREAD"))


def _patience_s(node: _Node) -> float:
  """Seconds after which an actor's silence counts as its death."""
  if node.layers is None:
    return START_S
  if not node.busy:
    return math.inf
  return GRACE_S + sum(
    task.timeout_s * max(1, len(task.job.inputs)) * task.job.runs
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
