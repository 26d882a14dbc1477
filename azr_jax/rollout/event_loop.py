"""Runs coroutines while a device decodes for them.

`System.collect` is a coroutine that awaits completions and verdicts. The loop
runs in rounds:
1. the tokens of the last call of the decode loop are fetched;
2. verdicts of jobs that are done are taken;
3. free slots are filled, the next call is sent, and completions are delivered;
4. every coroutine whose future is done resumes, while the device decodes.

All of it runs in the caller's thread, and the loop is not asyncio's, so it
works in a notebook too. Every host of a run sees the same completions and
verdicts in the same round.

Each temperature has a stream of its own. The device has memory for the slots of
one of them, so a stream waits until the other's sequences have ended.
"""

import collections
import itertools
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

from azr_jax import types
from azr_jax.parallel.rounds import RoundClock
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.stream import Stream

Out = TypeVar("Out")
ParamsOf = Callable[[Sampler], types.Params]


class Jobs(Protocol):
  """Jobs that run beside the device, such as `SharedJobs`."""

  @property
  def pending(self) -> int:
    """How many jobs have no outcome yet."""
    ...

  def poll(self, wait: bool) -> Any:
    """Completes futures of jobs that are done."""
    ...


class Awaited(Generic[Out]):
  """A future that a coroutine can await.

  Attributes:
    future: completed in the loop's thread.
    jobs: those whose `poll` completes it; None: the device does.
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
  """Coroutines, and the streams and jobs that they await."""

  def __init__(self, rounds: RoundClock | None = None) -> None:
    """Makes a loop without coroutines.

    Args:
      rounds: the clock of the jobs that coroutines await.
    """
    self._rounds = rounds or RoundClock()
    self._version = 0
    self._restored: list[SequenceState] = []
    # Numbers of requests, which streams share, as they share environments.
    self._numbers = itertools.count()
    self._streams: dict[int, tuple[Sampler, Stream]] = {}
    self._ready: collections.deque[
      tuple[Coroutine[Any, Any, Any], Future[Any]]
    ] = collections.deque()
    self._jobs: dict[int, Jobs] = {}
    self._sent: list[Stream] = []

  def stream(self, sampler: Sampler, params: types.Params | None) -> Stream:
    """Returns the open stream of a sampler."""
    key = id(sampler)
    if key not in self._streams:
      stream = sampler.open(params, self._numbers, self._version)
      stream.restore(self._restored)
      self._streams[key] = sampler, stream
    return self._streams[key][1]

  def spawn(self, coroutine: Coroutine[Any, Any, Out]) -> "Future[Out]":
    """Starts a coroutine beside the others; returns its future."""
    future: Future[Out] = Future()
    self._ready.append((coroutine, future))
    return future

  def run(self, coroutine: Coroutine[Any, Any, Out]) -> Out:
    """Runs a coroutine to its end, and others beside it."""
    future = self.spawn(coroutine)
    self.run_until(future.done)
    return future.result()

  def iterate(self, items: AsyncIterable[Out]) -> Iterator[Out]:
    """Yields what an asynchronous iterable yields, as it comes."""
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
      Whether all that was submitted had its chance of a slot.
    """
    self._run_ready()
    self._run_once()
    streams = [stream for _, stream in self._streams.values()]
    return bool(self._sent) or all(stream.is_empty for stream in streams)

  def run_until_idle(self) -> None:
    """Runs coroutines without decoding until nothing more happens.

    Completions are delivered, and verdicts and tool outputs are waited for.
    """
    for stream in self._sent:
      stream.fetch()
    self._sent = []
    is_moving = True
    while is_moving:
      streams = [stream for _, stream in self._streams.values()]
      is_moving = any([stream.deliver() for stream in streams])
      for stream in streams:
        if stream.awaits_tools:
          stream.wait_for_tools()
          is_moving = True
      is_moving |= any(jobs.pending for jobs in self._jobs.values())
      self._poll(wait=True)
      is_moving |= self._run_ready()

  def suspend(self) -> None:
    """Frees the memory of the device, between `run_until_idle` and `resume`."""
    for _, stream in self._streams.values():
      stream.suspend()

  def resume(self, params_of: ParamsOf, version: int) -> None:
    """Resumes with other parameters.

    Args:
      params_of: sampler -> parameters to sample with.
      version: of the parameters.
    """
    self._version = version
    for sampler, stream in self._streams.values():
      stream.resume(params_of(sampler), version)

  @property
  def suspended(self) -> list[SequenceState]:
    """The sequences of the suspended streams."""
    return [s for _, stream in self._streams.values() for s in stream.suspended]

  @property
  def num_free(self) -> int:
    """How many slots no sequence has or waits for."""
    streams = [stream for _, stream in self._streams.values()]
    return min((stream.num_free for stream in streams), default=0)

  def restore(self, known: Iterable[SequenceState]) -> None:
    """Gives streams the sequences of a run that was killed, to continue."""
    self._restored = list(known)
    for _, stream in self._streams.values():
      stream.restore(self._restored)

  def close(self) -> None:
    """Drops all streams, and what they hold on the device."""
    self._streams.clear()
    self._sent = []

  def run_until(self, condition: Callable[[], bool]) -> None:
    """Runs rounds until a condition holds.

    Raises:
      RuntimeError: nothing is left that could make it hold.
    """
    self._run_ready()
    while not condition():
      self._run_once()

  def _run_once(self) -> None:
    """Does what the module's docstring lists."""
    self._rounds.now += 1
    for stream in self._sent:
      stream.fetch()
    self._sent = []
    self._poll(wait=False)
    has_run = self._run_ready()
    streams = [stream for _, stream in self._streams.values()]
    had_something = any(not stream.is_empty for stream in streams)
    for stream in streams:
      others = any(one.has_slots for one in streams if one is not stream)
      if stream.send(may_make_slots=not others):
        self._sent.append(stream)
    has_run |= self._run_ready()
    if self._sent or has_run:
      return
    if any(not stream.is_empty for stream in streams):
      for stream in streams:
        stream.wait_for_tools()
    elif any(jobs.pending for jobs in self._jobs.values()):
      self._poll(wait=True)
      self._run_ready()
    elif not had_something:
      raise RuntimeError(
        "a coroutine awaits a future that nothing will complete"
      )

  def _poll(self, wait: bool) -> None:
    """Takes the outcomes of jobs that are done.

    Args:
      wait: whether to wait for one, if any is pending.
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
    """Resumes a coroutine when what it awaits is done."""
    if awaited.jobs is not None:
      self._jobs[id(awaited.jobs)] = awaited.jobs
    awaited.future.add_done_callback(
      lambda _: self._ready.append((coroutine, future))
    )
