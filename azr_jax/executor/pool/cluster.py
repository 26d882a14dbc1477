"""The executor on a Ray cluster: one actor per node, each with its own pool.

To the dispatcher, an actor is a `Server`. Verdicts arrive job by job: the
client long-polls each actor for jobs that have ended, and the actor answers as
soon as there are some. Only jobs and verdicts travel between nodes.

The processes of a run share one set of actors, because an actor occupies all
the cores of its reservation. The first process starts the actors and publishes
their names in `service`; the others look them up. The actors end with the first
process.

If an actor or its node dies, Ray restarts the actor as soon as a node has
enough free cores. Meanwhile its jobs go to the other actors.

This is the only module that imports Ray, and it is imported only for
`backend="ray"`.
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
from azr_jax.executor.pool.pending import PoolTask, ResultFuture
from azr_jax.executor.settings import ExecutorSettings

NAMESPACE = "azr_jax"
START_TIMEOUT_S = 120.0  # An actor may have to wait for a new node to boot.
POLL_S = 5.0  # An actor answers after this long even if no job has ended.
# An actor that has not answered for this long counts as lost.
HEARTBEAT_TIMEOUT_S = 60.0
RETRY_S = 1.0  # Delay between attempts to reach an actor that Ray restarts.


class NodeExecutor(Protocol):
  """The executor methods that a Ray actor calls."""

  def submit(self, job: Job) -> ResultFuture:
    """Queues a job and returns its future."""
    ...

  def layers(self) -> dict[str, bool]:
    """Returns which sandbox layers are active on the node."""
    ...


class _Outbox:
  """An actor's finished and unfinished jobs for one client, by number."""

  def __init__(self) -> None:
    self._ended: list[tuple[int, tuple | str]] = []
    self._filled = asyncio.Event()
    self.unfinished: dict[int, ResultFuture] = {}

  def add(self, number: int, future: ResultFuture) -> None:
    """Adds the outcome of a job that has ended."""
    if self.unfinished.pop(number, None) is None:
      return  # The job was cancelled.
    self._ended.append((number, _outcome(future)))
    self._filled.set()

  async def take(self) -> list[tuple[int, tuple | str]]:
    """Waits up to `POLL_S` for outcomes; returns them, perhaps none."""
    with contextlib.suppress(TimeoutError):
      await asyncio.wait_for(self._filled.wait(), POLL_S)
    self._filled.clear()
    ended, self._ended = self._ended, []
    return ended


def _outcome(future: ResultFuture) -> tuple | str:
  """Returns the fields of a job's result, or an error message."""
  error = future.exception()
  return (
    messages.result_fields(future.result()) if error is None else str(error)
  )


class _NodePool:
  """The Ray actor: a node's executor behind remote calls.

  A client is a process of the run. It takes a new id when it loses the actor.
  """

  def __init__(self, make_executor: Callable[[], NodeExecutor]):
    self._executor = make_executor()
    self._id = uuid.uuid4().hex
    self._outboxes: dict[str, _Outbox] = collections.defaultdict(_Outbox)

  async def hello(self) -> tuple[str, int, dict[str, bool]]:
    """Returns the actor's id, process id and sandbox layers."""
    return self._id, os.getpid(), self._executor.layers()

  async def run(self, client: str, jobs: list[tuple[int, tuple]]) -> None:
    """Queues numbered jobs, without waiting for their results."""
    outbox = self._outboxes[client]
    loop = asyncio.get_running_loop()
    for number, fields in jobs:
      future = self._submit(Job(*fields))
      outbox.unfinished[number] = future
      future.add_done_callback(
        functools.partial(loop.call_soon_threadsafe, outbox.add, number)
      )

  def _submit(self, job: Job) -> ResultFuture:
    """Queues a job; if this node cannot run it, only this job fails."""
    try:
      return self._executor.submit(job)
    except ValueError as error:
      failed = ResultFuture()
      failed.set_exception(error)
      return failed

  async def cancel(self, client: str, numbers: list[int]) -> None:
    """Drops jobs; those that have not started never will."""
    for number in numbers:
      future = self._outboxes[client].unfinished.pop(number, None)
      if future is not None:
        future.cancel()

  async def verdicts(self, client: str) -> tuple[str, list]:
    """Waits for outcomes; returns the actor's id and the outcomes."""
    return self._id, await self._outboxes[client].take()


class ActorServer:
  """A client's view of an actor; implements `dispatcher.Server`."""

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
    """Sends the actor a handshake, without waiting for the answer.

    Args:
      ray: the `ray` module.
      actor: the handle for remote calls.
      name: the actor's name, for messages.
      workers: the number of zygote pairs in the actor's pool.
      is_owner: whether this process started the actor.
      notify: called from any thread when `receive` has something to process.
    """
    self.workers = workers
    self.in_flight: dict[int, PoolTask] = {}
    self._ray, self._actor, self._name = ray, actor, name
    self._is_owner = is_owner
    self._notify = notify
    # Identifies calls made before the actor was last lost, to ignore their
    # answers.
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
    """Queues a remote call's answer for `receive`, when it arrives.

    Ray runs the callback in a thread of its own.
    """
    epoch = self._epoch

    def on_done(future: Any) -> None:
      self._answers.append((epoch, method, future))
      self._notify(self)

    reference.future().add_done_callback(on_done)

  def _request_verdicts(self) -> None:
    self._call("verdicts", self._actor.verdicts.remote(self._client))

  def send(self, tasks: Sequence[PoolTask]) -> None:
    """Sends tasks, without waiting."""
    jobs = [(task.number, messages.job_fields(task.job)) for task in tasks]
    self._call("run", self._actor.run.remote(self._client, jobs))

  def cancel(self, numbers: Sequence[int]) -> None:
    """Tells the actor to drop these tasks, without waiting."""
    call = self._actor.cancel.remote(self._client, list(numbers))
    self._call("cancel", call)

  def has_unsent(self) -> bool:
    """Returns False, because Ray buffers and sends messages itself."""
    return False

  def flush(self) -> None:
    """Does nothing, because Ray buffers and sends messages itself."""

  def receive(self) -> list[tuple[int, Result | Exception]]:
    """Returns the numbers and verdicts of tasks that have ended.

    Raises:
      ServerLost: a call failed, or Ray has restarted the actor.
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
          self._kill()  # The actor is alive, but its executor is not.
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
          raise ServerLost(f"{self._name} was restarted")
        results += [(number, self._read(outcome)) for number, outcome in ended]
        self._request_verdicts()
    return results

  def _read(self, outcome: tuple | str) -> Result | Exception:
    if isinstance(outcome, str):
      return RuntimeError(f"{self._name}: {outcome}")
    return Result("", *outcome)

  def _kill(self) -> None:
    """Makes Ray restart the actor, if this process owns it."""
    if self._is_owner:
      self._ray.kill(self._actor, no_restart=False)

  def check(self) -> None:
    """Tries to reach a lost actor again, and detects a silent one.

    Raises:
      ServerLost: the actor has been silent for too long.
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
    """Schedules a handshake with the actor that Ray restarts; see `check`.

    Raises:
      ServerLost: `error`, if Ray will not restart the actor.
    """
    if isinstance(error.__cause__, self._ray.exceptions.ActorDiedError):
      raise error
    self.layers = None
    self._epoch += 1
    self._retry_at = time.monotonic() + RETRY_S

  def end(self) -> None:
    """Ends the actor if this process started it."""
    if self._is_owner:
      self._ray.kill(self._actor)


def connect(
  settings: ExecutorSettings,
  make_executor: Callable[[], NodeExecutor],
  service: str,
) -> tuple[Dispatcher, str]:
  """Connects to the cluster and starts its actors, or finds existing ones.

  Args:
    settings: `nodes` is the number of actors, 0 for one on each node with
      `workers` cores. `address` is the cluster's address; if empty, the cluster
      that this process is connected to, or else a new one on this machine.
    make_executor: creates the executor of a node; Ray calls it there.
    service: the service that `connect` returned in another process, or empty to
      start the actors.

  Returns:
    The dispatcher, whose servers are still starting, and the service.

  Raises:
    RuntimeError: Ray is not installed, no node has enough cores, or the cluster
      does not have the service.
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
  """Returns the string with which other processes find the actors."""
  address = ray.get_runtime_context().gcs_address
  return f"{address} {','.join(actors)}"


def _find(ray: Any, names: str) -> dict[str, Any]:
  """Returns the actors of a service by name.

  Raises:
    RuntimeError: an actor does not exist.
  """
  try:
    return {
      name: ray.get_actor(name, namespace=NAMESPACE)
      for name in names.split(",")
    }
  except ValueError as error:
    raise RuntimeError(
      f"the run's executor was not found on this host's Ray cluster ({error}); "
      "expected executor.address to name the same cluster on all hosts"
    ) from None


def _start(
  ray: Any, settings: ExecutorSettings, make_executor: Callable
) -> dict[str, Any]:
  """Starts the actors, without waiting for them; returns them by name.

  Raises:
    RuntimeError: no node has enough cores.
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
    RuntimeError: no node has enough cores.
  """
  if settings.nodes:
    return ["SPREAD"] * settings.nodes
  affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
  strategies = [
    # Soft affinity, so an actor whose node died may restart on another.
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
