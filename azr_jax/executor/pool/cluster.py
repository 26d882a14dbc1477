"""The executor on a Ray cluster: one actor per node, each with its own pool.

An actor is a `Server` of the dispatcher, which sends it jobs. Verdicts come job
by job: one call after the other asks an actor for what has ended since, and it
answers as soon as there is something. Only jobs and verdicts are sent between
nodes.

The processes of a run share one set of actors, because an actor takes all the
cores that it was given. The first process starts them under names that its
`service` tells, and the others look them up. They end with the first process.

Ray starts an actor again that died or whose node died, on the same node or on
another with free cores, as soon as there is one. Meanwhile its jobs go to the
other actors.

This is the only module that imports Ray, and it is imported only when a
cluster is asked for.
"""

import asyncio
import collections
import contextlib
import functools
import os
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from azr_jax.config import extras
from azr_jax.executor.job import Job, Result
from azr_jax.executor.pool import messages
from azr_jax.executor.pool.dispatcher import Dispatcher, ServerLost
from azr_jax.executor.pool.pending import ResultFuture, Task
from azr_jax.executor.settings import ExecutorSettings

NAMESPACE = "azr_jax"
START_TIMEOUT_S = 120.0  # An actor may have to wait for a new node to start.
POLL_S = 5.0  # An actor answers after this time though no job has ended.
# An actor that has not answered for longer counts as lost.
HEARTBEAT_TIMEOUT_S = 60.0
RETRY_S = 1.0  # Between two tries to reach an actor that Ray starts again.


class NodeExecutor(Protocol):
  """What an actor needs of the executor of its node."""

  def submit(self, job: Job) -> ResultFuture:
    """Queues a job and returns the future of its result."""
    ...

  def layers(self) -> dict[str, bool]:
    """Returns which sandbox layers are active on the node."""
    ...


class _Outbox:
  """What an actor has for one client: numbers and outcomes of ended jobs."""

  def __init__(self) -> None:
    self._ended: list[tuple[int, tuple | str]] = []
    self._filled = asyncio.Event()
    self.unfinished: dict[int, ResultFuture] = {}

  def add(self, number: int, future: ResultFuture) -> None:
    """Adds a job that has ended."""
    if self.unfinished.pop(number, None) is None:
      return  # It was cancelled.
    self._ended.append((number, _outcome(future)))
    self._filled.set()

  async def take(self) -> list[tuple[int, tuple | str]]:
    """Waits for outcomes and returns them; there may be none yet."""
    with contextlib.suppress(TimeoutError):
      await asyncio.wait_for(self._filled.wait(), POLL_S)
    self._filled.clear()
    ended, self._ended = self._ended, []
    return ended


def _outcome(future: ResultFuture) -> tuple | str:
  """Returns the fields of a job's result, or why it could not be run."""
  error = future.exception()
  return (
    messages.result_fields(future.result()) if error is None else str(error)
  )


class _NodePool:
  """The Ray actor: a node's executor behind remote calls.

  A client is a process of the run; it gets a new id when it loses the actor.
  """

  def __init__(self, make_executor: Callable[[], NodeExecutor]):
    self._executor = make_executor()
    self._id = uuid.uuid4().hex
    self._outboxes: dict[str, _Outbox] = collections.defaultdict(_Outbox)

  async def hello(self) -> tuple[str, int, dict[str, bool]]:
    """Returns the actor's id, its process id, and its sandbox layers."""
    return self._id, os.getpid(), self._executor.layers()

  async def run(self, client: str, jobs: list[tuple[int, tuple]]) -> None:
    """Queues numbered jobs; does not wait for their end."""
    outbox = self._outboxes[client]
    loop = asyncio.get_running_loop()
    for number, fields in jobs:
      future = self._submit(Job(*fields))
      outbox.unfinished[number] = future
      future.add_done_callback(
        functools.partial(loop.call_soon_threadsafe, outbox.add, number)
      )

  def _submit(self, job: Job) -> ResultFuture:
    """Queues a job; one that this node cannot run fails alone."""
    try:
      return self._executor.submit(job)
    except ValueError as error:
      failed = ResultFuture()
      failed.set_exception(error)
      return failed

  async def cancel(self, client: str, numbers: list[int]) -> None:
    """Forgets jobs; those that have not begun never will."""
    for number in numbers:
      future = self._outboxes[client].unfinished.pop(number, None)
      if future is not None:
        future.cancel()

  async def verdicts(self, client: str) -> tuple[str, list]:
    """Waits for outcomes; returns the actor's id, and what has ended."""
    return self._id, await self._outboxes[client].take()


class ActorServer:
  """An actor; see `dispatcher.Server`."""

  descriptor: int | None = None

  def __init__(
    self,
    ray: Any,
    actor: Any,
    name: str,
    workers: int,
    is_owner: bool,
    notify: Callable[["ActorServer"], None],
  ):
    """Asks the actor whether it has started, without waiting.

    Args:
      ray: the module.
      actor: the handle for remote calls.
      name: for messages.
      workers: pairs of zygotes of its pool.
      is_owner: whether this process has started the actor.
      notify: called by any thread when `receive` has something to do.
    """
    self.workers = workers
    self.in_flight: dict[int, Task] = {}
    self._ray, self._actor, self._name = ray, actor, name
    self._is_owner = is_owner
    self._notify = notify
    # Answers to calls made before the actor was last lost are ignored.
    self._epoch = 0
    self._answers: collections.deque[tuple[int, str, Any]] = collections.deque()
    self._handshake()

  def _handshake(self) -> None:
    self._epoch += 1
    self._client = uuid.uuid4().hex
    self._id = ""
    self.layers: dict[str, bool] | None = None
    self.processes: list[int] = []
    self._retry_at = 0.0
    self._last_message_at = time.monotonic()
    self._call("hello", self._actor.hello.remote())

  def _call(self, method: str, reference: Any) -> None:
    """Hands a remote call's answer to `receive`.

    Ray calls back in a thread of its own, so the answer is queued.
    """
    epoch = self._epoch

    def on_done(future: Any) -> None:
      self._answers.append((epoch, method, future))
      self._notify(self)

    reference.future().add_done_callback(on_done)

  def _request_verdicts(self) -> None:
    self._call("verdicts", self._actor.verdicts.remote(self._client))

  def send(self, tasks: Sequence[Task]) -> None:
    """Sends tasks, without waiting."""
    jobs = [(task.number, messages.job_fields(task.job)) for task in tasks]
    self._call("run", self._actor.run.remote(self._client, jobs))

  def cancel(self, numbers: Sequence[int]) -> None:
    """Says that nobody awaits these tasks any more, without waiting."""
    call = self._actor.cancel.remote(self._client, list(numbers))
    self._call("cancel", call)

  def has_unsent(self) -> bool:
    """Returns False, because Ray sends by itself."""
    return False

  def flush(self) -> None:
    """Does nothing, because Ray sends by itself."""

  def receive(self) -> list[tuple[int, Result | Exception]]:
    """Returns the numbers and verdicts of tasks that have ended.

    Raises:
      ServerLost: a call failed, or Ray has started the actor again.
    """
    results: list[tuple[int, Result | Exception]] = []
    while self._answers:
      epoch, method, future = self._answers.popleft()
      if epoch != self._epoch:
        continue
      try:
        answer = future.result()
      except Exception as error:
        if isinstance(error, self._ray.exceptions.RayTaskError):
          self._kill()  # The actor lives, but its executor does not.
        reason = str(error).partition("\n")[0]
        raise ServerLost(f"{self._name}: {reason}") from error
      self._last_message_at = time.monotonic()
      if method == "hello":
        self._id, pid, self.layers = answer
        self.processes = [pid]
        self._request_verdicts()
      elif method == "verdicts":
        actor_id, ended = answer
        if actor_id != self._id:
          raise ServerLost(f"{self._name} was started again")
        results += [(number, self._read(outcome)) for number, outcome in ended]
        self._request_verdicts()
    return results

  def _read(self, outcome: tuple | str) -> Result | Exception:
    if isinstance(outcome, str):
      return RuntimeError(f"{self._name}: {outcome}")
    return Result("", *outcome)

  def _kill(self) -> None:
    """Has Ray start the actor again, if that is this process's business."""
    if self._is_owner:
      self._ray.kill(self._actor, no_restart=False)

  def check(self) -> None:
    """Retries a lost actor, and detects one that does not answer.

    Raises:
      ServerLost: the actor has not answered for too long.
    """
    now = time.monotonic()
    if self._retry_at:
      if now > self._retry_at:
        self._handshake()
      return
    heartbeat_timeout_s = (
      START_TIMEOUT_S if self.layers is None else HEARTBEAT_TIMEOUT_S
    )
    if now - self._last_message_at > heartbeat_timeout_s:
      if self.layers is not None:
        self._kill()
      raise ServerLost(
        f"{self._name} has not answered for {heartbeat_timeout_s:.0f} s"
      )

  def restart(self, error: ServerLost) -> None:
    """Waits for Ray to start the actor again, which `check` finds out.

    Raises:
      ServerLost: `error`, if Ray will not.
    """
    if isinstance(error.__cause__, self._ray.exceptions.ActorDiedError):
      raise error
    self.layers = None
    self._epoch += 1
    self._retry_at = time.monotonic() + RETRY_S

  def end(self) -> None:
    """Ends the actor if this process has started it."""
    if self._is_owner:
      self._ray.kill(self._actor)


def connect(
  settings: ExecutorSettings,
  make_executor: Callable[[], NodeExecutor],
  service: str,
) -> tuple[Dispatcher, str]:
  """Connects to the cluster, starts actors or finds those of a service.

  Args:
    settings: `nodes` is the number of actors, 0 for one on each node with
      `workers` cores; `address` is the cluster's, if empty that of the cluster
      that this process is connected to, or else of a new one on this machine.
    make_executor: called on each node; Ray sends it there.
    service: what `connect` of another process has returned; if empty, this
      process starts the actors.

  Returns:
    The dispatcher, whose servers are starting, and the service.

  Raises:
    RuntimeError: Ray is missing, no node has the cores, or the cluster does
      not have the service.
  """
  ray = _import_ray()
  address, _, name = service.partition(" ")
  owns_connection = not ray.is_initialized()
  if owns_connection:
    address = settings.address or address or None
    ray.init(address=address, log_to_driver=False)
  try:
    actors = _find(ray, name) if name else _start(ray, settings, make_executor)
  except BaseException:
    if owns_connection:
      ray.shutdown()
    raise
  dispatcher = Dispatcher("executor-cluster")
  servers = [
    ActorServer(
      ray, actor, actor_name, settings.workers, not name, dispatcher.notify
    )
    for actor_name, actor in actors.items()
  ]
  dispatcher.start(
    servers,
    needed=1,
    start_timeout_s=START_TIMEOUT_S,
    expected=f"; expected {settings.workers} free cores on a node of the Ray "
    "cluster, which another run may have",
    on_end=ray.shutdown if owns_connection else lambda: None,
  )
  return dispatcher, service or _service(ray, actors)


def _service(ray: Any, actors: dict[str, Any]) -> str:
  """Returns the text by which other processes find the actors."""
  address = ray.get_runtime_context().gcs_address
  return f"{address} {','.join(actors)}"


def _find(ray: Any, names: str) -> dict[str, Any]:
  """Returns the actors of a service, by name.

  Raises:
    RuntimeError: there is none of that name.
  """
  try:
    return {
      name: ray.get_actor(name, namespace=NAMESPACE)
      for name in names.split(",")
    }
  except ValueError as error:
    raise RuntimeError(
      f"this host's Ray cluster has not the run's executor ({error}); "
      "expected executor.address to be the same cluster on all hosts"
    ) from None


def _start(
  ray: Any, settings: ExecutorSettings, make_executor: Callable
) -> dict[str, Any]:
  """Starts actors, without waiting for them; returns them by name.

  Raises:
    RuntimeError: no node has the cores.
  """
  run = uuid.uuid4().hex[:8]
  actors: dict[str, Any] = {}
  for index, strategy in enumerate(_strategies(ray, settings)):
    name = f"executor-{run}-{index}"
    options = ray.remote(_NodePool).options(
      name=name,
      namespace=NAMESPACE,
      num_cpus=settings.workers,
      max_restarts=-1,
      max_concurrency=1000,
      scheduling_strategy=strategy,
    )
    actors[name] = options.remote(make_executor)
  return actors


def _strategies(ray: Any, settings: ExecutorSettings) -> list[Any]:
  """Returns a Ray scheduling strategy for each actor.

  Raises:
    RuntimeError: no node has the cores.
  """
  if settings.nodes:
    return ["SPREAD"] * settings.nodes
  affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
  strategies = [
    # A soft one, because an actor whose node died may start on another.
    affinity(node["NodeID"], soft=True)
    for node in ray.nodes()
    if node["Alive"] and node["Resources"].get("CPU", 0) >= settings.workers
  ]
  if not strategies:
    raise RuntimeError(
      f"no node of the Ray cluster has {settings.workers} cores; expected "
      "executor.workers to fit on one"
    )
  return strategies


def _import_ray() -> Any:
  try:
    import ray
    import ray.util.scheduling_strategies
  except ImportError:
    raise RuntimeError(
      f"executor.backend='ray': {extras.missing('ray')}"
    ) from None
  return ray
