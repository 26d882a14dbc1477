"""Runs coroutines while a device decodes for them.

`System.collect` is a coroutine that awaits completions and verdicts. The loop
repeats these steps:
1. fetch the tokens of the last call of the decode loop;
2. collect the verdicts of finished jobs;
3. fill free slots, send the next decode call and deliver completions;
4. resume every coroutine whose future is done, while the device decodes.

Everything runs in the caller's thread. The loop is not asyncio's, so it also
works in a notebook. Every host of a run sees the same completions and verdicts
after the same call. All coroutines share one stream.
"""

import collections
from collections.abc import (
  AsyncIterable,
  AsyncIterator,
  Callable,
  Coroutine,
  Generator,
  Iterable,
  Iterator,
)
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.stream import Stream
from azr_jax.rollout.weights import Weights

Out = TypeVar("Out")


class Jobs(Protocol):
  """Jobs that run while the device decodes, such as `SharedJobs`."""

  @property
  def pending(self) -> int:
    """Number of jobs without a verdict."""
    ...

  def poll(self, wait: bool) -> Any:
    """Completes the futures of finished jobs."""
    ...


class Awaited(Generic[Out]):
  """A future that a coroutine can await.

  Attributes:
    future: a future that is completed in the loop's thread.
    jobs: the jobs whose `poll` completes it; None if the device does.
  """

  def __init__(self, future: "Future[Out]", jobs: Jobs | None = None):
    self.future, self.jobs = future, jobs

  def __await__(self) -> "Generator[Awaited[Out], None, Out]":
    while not self.future.done():
      yield self
    return self.future.result()


async def as_completed(
  futures: "Iterable[Future[Out]]",
) -> "AsyncIterator[Future[Out]]":
  """Yields futures as they complete."""
  done: collections.deque[Future[Out]] = collections.deque()
  waiting: list[Future[None]] = []

  def arrive(future: "Future[Out]") -> None:
    done.append(future)
    if waiting:
      waiting.pop().set_result(None)

  every = list(futures)
  for future in every:
    future.add_done_callback(arrive)
  for _ in every:
    if not done:
      waiting.append(Future())
      await Awaited(waiting[0])
    yield done.popleft()


class EventLoop:
  """Runs coroutines and the stream and jobs that they await."""

  def __init__(
    self, clock: DecodeClock | None = None, reads_experts: bool = True
  ) -> None:
    """Creates a loop without coroutines.

    Args:
      clock: the decode clock of the awaited jobs.
      reads_experts: see `Sampler.open`.
    """
    self._reads_experts = reads_experts
    self._clock = clock or DecodeClock()
    self._restored: list[SequenceState] = []
    self._stream: Stream | None = None
    self._ready: collections.deque[
      tuple[Coroutine[Any, Any, Any], Future[Any]]
    ] = collections.deque()
    self._jobs: dict[int, Jobs] = {}
    self._is_sent = False

  def stream(self, sampler: Sampler, weights: Weights) -> Stream:
    """Returns the open stream; the first call opens it with the arguments."""
    if self._stream is None:
      self._stream = sampler.open(weights, self._reads_experts)
      self._stream.restore(self._restored)
    return self._stream

  def spawn(self, coroutine: Coroutine[Any, Any, Out]) -> "Future[Out]":
    """Starts a coroutine concurrently; returns its future."""
    future: Future[Out] = Future()
    self._ready.append((coroutine, future))
    return future

  def run(self, coroutine: Coroutine[Any, Any, Out]) -> Out:
    """Runs a coroutine to completion, along with all spawned ones."""
    future = self.spawn(coroutine)
    self.run_until(future.done)
    return future.result()

  def iterate(self, items: AsyncIterable[Out]) -> Iterator[Out]:
    """Yields the items of an asynchronous iterable as they arrive."""
    iterator = aiter(items)
    end = object()

    async def following() -> Any:
      try:
        return await anext(iterator)
      except StopAsyncIteration:
        return end

    while (item := self.run(following())) is not end:
      yield item

  def run_once(self) -> bool:
    """Runs ready coroutines and one call of the decode loop.

    Returns:
      Whether every submitted sequence has been considered for a slot.
    """
    has_run = self._run_ready()
    self._go_round(has_run)
    return self._is_sent or self._is_empty

  def run_until_idle(self) -> None:
    """Runs coroutines without decoding until nothing more can happen.

    Delivers completions and waits for pending verdicts and tool outputs.
    """
    self._fetch()
    is_moving = True
    while is_moving:
      is_moving = False
      if self._stream is not None:
        is_moving = self._stream.deliver()
        if self._stream.awaits_tools:
          self._stream.wait_for_tools()
          is_moving = True
      is_moving |= any(jobs.pending for jobs in self._jobs.values())
      self._poll(wait=True)
      is_moving |= self._run_ready()

  def suspend(self) -> None:
    """Frees slots and cache; call it after `run_until_idle`.

    Sequences resume as described in `Stream.suspend`.
    """
    if self._stream is not None:
      self._stream.suspend()

  @property
  def suspended(self) -> list[SequenceState]:
    """The sequences of the suspended stream."""
    return [] if self._stream is None else self._stream.suspended

  @property
  def num_free(self) -> int:
    """Number of slots left after all live and waiting sequences have one."""
    return 0 if self._stream is None else self._stream.num_free

  def restore(self, known: Iterable[SequenceState]) -> None:
    """Registers sequences for the stream to resume.

    Args:
      known: sequences of an earlier step or of a killed run.
    """
    self._restored = list(known)
    if self._stream is not None:
      self._stream.restore(self._restored)

  def close(self) -> None:
    """Drops the stream and frees its device memory."""
    if self._stream is not None:
      self._stream.close()
    self._stream = None
    self._is_sent = False

  def run_until(self, condition: Callable[[], bool]) -> None:
    """Runs until a condition holds.

    Raises:
      RuntimeError: deadlock: no coroutine, job or sequence is left to run.
    """
    self._run_ready()
    while not condition():
      self._go_round()

  def _go_round(self, has_progress: bool = False) -> None:
    """Runs the module docstring's steps once; blocks if there is nothing to do.

    Args:
      has_progress: whether a coroutine has just run, possibly the last one.

    Raises:
      RuntimeError: there is nothing left to do or to wait for.
    """
    self._clock.calls += 1
    self._fetch()
    self._poll(wait=False)
    has_run = self._run_ready()
    had_something = not self._is_empty
    self._is_sent = self._stream is not None and self._stream.send()
    has_run |= self._run_ready()
    if self._is_sent or has_run:
      return
    if self._stream is not None and not self._stream.is_empty:
      self._stream.wait_for_tools()
    elif any(jobs.pending for jobs in self._jobs.values()):
      self._poll(wait=True)
      self._run_ready()
    elif not (had_something or has_progress):
      raise RuntimeError(
        "deadlock: a coroutine awaits a future that no job or sequence will "
        "complete"
      )

  @property
  def _is_empty(self) -> bool:
    """Whether the stream has nothing left to sample or deliver."""
    return self._stream is None or self._stream.is_empty

  def _fetch(self) -> None:
    """Fetches the tokens of the decode call in flight, if any."""
    if self._is_sent and self._stream is not None:
      self._stream.fetch()
    self._is_sent = False

  def _poll(self, wait: bool) -> None:
    """Collects the verdicts of finished jobs.

    Args:
      wait: whether to block until one finishes, if any is pending.
    """
    pending = [jobs for jobs in self._jobs.values() if jobs.pending]
    for jobs in pending:
      jobs.poll(wait)
    self._jobs = {id(jobs): jobs for jobs in pending if jobs.pending}

  def _run_ready(self) -> bool:
    """Runs each ready coroutine to its next await; returns whether any ran."""
    ran = bool(self._ready)
    while self._ready:
      coroutine, future = self._ready.popleft()
      try:
        awaited = coroutine.send(None)
      except StopIteration as end:
        future.set_result(end.value)
      except Exception as error:  # noqa: BLE001 - raised where it is awaited.
        future.set_exception(error)
      else:
        self._wait(awaited, coroutine, future)
    return ran

  def _wait(
    self,
    awaited: Awaited[Any],
    coroutine: Coroutine[Any, Any, Any],
    future: "Future[Any]",
  ) -> None:
    """Resumes the coroutine once its awaited future is done."""
    if awaited.jobs is not None:
      self._jobs[id(awaited.jobs)] = awaited.jobs
    awaited.future.add_done_callback(
      lambda _: self._ready.append((coroutine, future))
    )
