"""The one thread that samples for all clients.

The life of a job:
1. A server thread submits it. It is refused if too many are waiting.
2. Between two calls of the decode loop, its prompts enter the open stream. A
   job that asks for weights that are not loaded yet is held until they are.
3. After each call, the worker delivers the new tokens while the device runs the
   next call. Tokens of a scored job are delivered once they are scored.
4. The job ends with its last completion, or is cancelled, which frees its
   pages.

No other thread touches the device. Weights are swapped between two calls. A
server that also trains gives the thread tasks, of which it runs one between two
calls, and jobs that sample by snapshots (`verbs/residents.py`).
"""

import collections
import contextlib
import dataclasses
import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import UInt32

from azr_jax import types
from azr_jax.rollout.adapter_ref import AdapterRef
from azr_jax.rollout.adapter_table import AdapterTable
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.stream import SampleKey, Stream
from azr_jax.rollout.weights import Weights
from azr_jax.serving import errors
from azr_jax.serving.errors import ApiError
from azr_jax.serving.jobs import Deliver, NewTokens, SamplingJob, Update
from azr_jax.serving.open_jobs import OpenJobs, Status
from azr_jax.serving.scoring import Scorer
from azr_jax.serving.tasks import Tasks
from azr_jax.serving.unscored import Unscored
from azr_jax.verbs.residents import Residents

T = TypeVar("T")
# Tokens scored between two calls of the decode loop, without padding.
_MAX_SCORED = 1 << 14


@dataclasses.dataclass(eq=False)
class _Running:
  """A job in the stream.

  Attributes:
    requests: the stream's requests, one per prompt.
    sent: number of delivered tokens per choice.
    missing: number of unfinished choices.
    adapter: what samples and scores it.
  """

  requests: list[Request]
  sent: list[int]
  missing: int
  adapter: AdapterRef


class _Swap(NamedTuple):
  """New weights that wait to be loaded, and the event set once they are."""

  params: types.Params
  step: int
  is_done: threading.Event


class DecodeWorker:
  """Samples the jobs of many threads in one thread."""

  def __init__(
    self,
    sampler: Sampler,
    weights: Weights,
    key_data: UInt32[np.ndarray, " U"],
    step: int,
    max_waiting: int,
    scorer: Scorer | None = None,
    snapshots: bool = False,
  ):
    """Opens a stream; `run` serves it.

    Args:
      sampler: the sampling engine.
      weights: the initial parameters; `swap` replaces them.
      key_data: the data of the random key; every sample folds its seed into
        this key.
      step: the step of the weights.
      max_waiting: maximum number of choices that wait for a slot.
      scorer: scores the jobs that ask for it. None if no job may.
      snapshots: whether jobs name snapshots, for which the sampler has a stack.
    """
    self._sampler, self._scorer = sampler, scorer
    self._stream: Stream = sampler.open(weights)
    self.residents: Residents | None = None
    if snapshots:
      table = AdapterTable(sampler.engine, weights)
      self.residents = Residents(
        self._stream, table, sampler.engine.param_shardings
      )
    self._key_data = key_data
    self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    self._jobs: dict[SamplingJob, _Running] = {}
    self._by_request: dict[Request, tuple[SamplingJob, int]] = {}
    self._unscored = Unscored(scorer)
    self._updates: list[tuple[SamplingJob, Update]] = []
    self._arrivals = 0
    self._swap: _Swap | None = None
    self._held: list[SamplingJob] = []  # They wait for the weights of `_swap`.
    # They wait for the place of a snapshot.
    self._queued: collections.deque[SamplingJob] = collections.deque()
    self._tasks = Tasks()
    self._deliver: Deliver = lambda updates: None
    # All threads read and write these.
    self._open = OpenJobs(
      sampler.engine.shapes.slot_counts[0],
      max_waiting,
      step,
      self._stream.num_free_pages,
    )
    self._deadline: float | None = None

  @property
  def step(self) -> int:
    """The training step of the weights."""
    return self._open.step

  @property
  def refusal(self) -> ApiError | None:
    """The error for all new jobs. None while jobs are accepted."""
    return self._open.refusal

  def warm_up(self) -> None:
    """Compiles every program that it runs. Call it before `run`."""
    self._sampler.warm_up(self._params)
    if self._scorer is not None:
      self._scorer.warm_up(self._params)

  @property
  def _params(self) -> types.Params:
    """The parameters of the next call."""
    params = self._stream.weights.params
    assert params is not None
    return params

  def status(self) -> Status:
    """Returns the counters."""
    return self._open.status()

  @property
  def task_s(self) -> float:
    """Seconds that tasks of `call` have run, while jobs waited."""
    return self._tasks.busy_s

  def submit(self, job: SamplingJob) -> None:
    """Accepts a job. Thread-safe.

    A job that asks for weights other than the served ones is accepted, and
    receives its error as an update.

    Raises:
      ApiError: too many choices are waiting, or the worker is shutting down.
    """
    self._open.add(job)
    self._commands.put(functools.partial(self._begin, job))

  def cancel(self, job: SamplingJob) -> None:
    """Cancels a job, which may have ended already. Thread-safe."""
    self._commands.put(functools.partial(self._cancel, job))

  def call(self, task: Callable[[], T]) -> "Future[T]":
    """Runs a task in the worker's thread, between two calls. Thread-safe.

    Tasks run in the order of their calls.
    """
    future: Future[T] = Future()
    with self._open.lock:
      if self._open.refusal is not None:
        future.set_exception(self._open.refusal)
        return future
      self._commands.put(lambda: self._tasks.add(task, future))
    return future

  def swap(self, params: types.Params, step: int) -> threading.Event:
    """Switches to other weights before the next call. Thread-safe.

    Jobs in flight continue with the new weights. Jobs that are pinned to the
    old step finish first.

    Args:
      params: training parameters. The caller must keep no reference.
      step: the step of the parameters.

    Returns:
      An event that is set once the weights are in use.
    """
    swap = _Swap(params, step, threading.Event())
    self._commands.put(functools.partial(setattr, self, "_swap", swap))
    return swap.is_done

  def end(self, within_s: float) -> None:
    """Stops accepting jobs and makes `run` return. Thread-safe.

    Args:
      within_s: seconds until jobs in flight are cancelled.
    """
    with self._open.lock:
      self._open.refusal = self._open.refusal or errors.unavailable(
        "the server is shutting down", "server_ending"
      )
      deadline = time.monotonic() + within_s
      self._deadline = min(deadline, self._deadline or deadline)
    self._commands.put(lambda: None)

  def run(self, deliver: Deliver) -> None:
    """Serves jobs until `end`. Call it from one thread only.

    Args:
      deliver: receives the updates of jobs, in this thread. It must not block.
    """
    self._deliver = deliver
    with self._last_words():
      while not self._is_over():
        self._take_commands()
        self._swap_params()
        self._tasks.run_next()
        self._start_queued()
        is_sent = self._stream.send()
        self._open.num_decoding = len(self._stream.decoding)
        self._open.free_pages = self._stream.num_free_pages
        self._collect_running()
        self._flush()
        self._score_ended(_MAX_SCORED)
        self._flush()
        if is_sent:
          self._stream.fetch()
        self._sampler.meter.take()  # Otherwise the meter grows forever.

  @contextlib.contextmanager
  def _last_words(self) -> Iterator[None]:
    """Sends every job in flight an error when the worker stops or fails."""
    error = errors.unavailable("the server has ended", "server_ending")
    try:
      yield
    except BaseException:
      error = errors.unavailable("the server has failed", "server_failed")
      raise
    finally:
      self._open.refuse(error)
      # No command comes after these, because all are refused.
      with contextlib.suppress(queue.Empty):
        while True:
          self._commands.get(block=False)()
      self._updates += [(job, error) for job in self._open.cancel_all()]
      self._flush()
      self._tasks.fail_all(error)

  def _is_over(self) -> bool:
    """Returns whether `end` was called and all jobs ended or time ran out."""
    deadline = self._deadline
    if deadline is None:
      return False
    is_idle = not (self._open or self._tasks)
    return is_idle or time.monotonic() >= deadline

  def _take_commands(self) -> None:
    """Runs the commands of other threads; blocks if there is nothing to do."""
    with contextlib.suppress(queue.Empty):
      wait = self._stream.is_empty and self._swap is None
      wait = wait and not (self._unscored or self._tasks or self._queued)
      while True:
        self._commands.get(block=wait)()
        wait = False

  def _begin(self, job: SamplingJob) -> None:
    """Submits the prompts of a job, or sends it an error."""
    # Jobs may pin the newest weights only. A steady flow of jobs that pin the
    # old ones would block the swap forever.
    newest = self.step if self._swap is None else self._swap.step
    if job.step is not None and job.step != newest:
      self._open.close(job, is_answered=False)
      self._updates.append((job, _not_served(job.step, newest)))
      return
    if job.step is not None and self._swap is not None:
      self._held.append(job)
      return
    self._queued.append(job)

  def _start_queued(self) -> None:
    """Starts the jobs whose weights are in place, in their order."""
    while self._queued:
      job = self._queued[0]
      try:
        adapter = self._adapter_for(job)
        if adapter is None:
          return
        self._queued.popleft()
        self._submit(job, adapter)
      except (ValueError, RuntimeError) as error:
        # XLA raises a RuntimeError where a device has no room for an adapter.
        self._cancel(job)
        self._updates.append((job, ApiError(400, str(error))))

  def _adapter_for(self, job: SamplingJob) -> AdapterRef | None:
    """Returns what samples a job; None if it must wait.

    Raises:
      ValueError: its adapter does not fit into the sampler.
    """
    if self.residents is None:
      return job.adapter
    return self.residents.acquire(job.snapshot or self.residents.base)

  def _submit(self, job: SamplingJob, adapter: AdapterRef) -> None:
    """Submits the prompts of a job to the stream."""
    key = SampleKey(self._key_data, job.seed, job.temperature)
    running = _Running([], [0] * job.num_choices, job.num_choices, adapter)
    self._jobs[job] = running
    for index, prompt in enumerate(job.prompts):
      # First come, first served. A held job counts as arriving when its weights
      # are loaded.
      self._arrivals += 1
      request, futures = self._stream.submit(
        prompt,
        job.n,
        key,
        job.max_new_tokens,
        priority=(self._arrivals,),
        stop_strings=job.stop_strings,
        stop_ids=job.stop_ids,
        ignores_ends=job.ignores_ends,
        adapter=adapter,
      )
      running.requests.append(request)
      self._by_request[request] = job, index * job.n
      for sample, future in enumerate(futures):
        choice = index * job.n + sample
        future.add_done_callback(functools.partial(self._end, job, choice))

  def _end(
    self, job: SamplingJob, choice: int, future: "Future[types.Completion]"
  ) -> None:
    """Delivers the rest of a finished choice, or queues it for scoring."""
    if job not in self._jobs:
      return  # The job was cancelled.
    done, sent = future.result(), self._jobs[job].sent[choice]
    assert done.versions is not None
    tokens = NewTokens(
      choice,
      done.token_ids[sent:].tolist(),
      done.logprobs[sent:].tolist(),
      done.versions[sent:].tolist(),
      done.finish_reason,
    )
    self._open.add_tokens(len(done.token_ids))
    if job.is_scored:
      self._unscored.add(job, tokens, self._jobs[job].adapter.index)
    else:
      self._hand_over(job, tokens)

  def _score_ended(self, limit: int | None = None) -> None:
    """Scores and delivers finished choices; see `Unscored.score`."""
    scored = self._unscored.score(self._params, self._jobs.__contains__, limit)
    for job, tokens in scored:
      self._hand_over(job, tokens)

  def _hand_over(self, job: SamplingJob, tokens: NewTokens) -> None:
    """Delivers the last tokens of a choice."""
    running = self._jobs[job]
    self._updates.append((job, tokens))
    running.missing -= 1
    self._open.deliver_choice(job)
    if not running.missing:
      self._forget(job)
      self._open.close(job, is_answered=True)

  def _cancel(self, job: SamplingJob) -> None:
    """Removes a job from the stream, which frees its pages."""
    for waiting in (self._held, self._queued):
      if job in waiting:
        waiting.remove(job)
        self._open.close(job, is_answered=False)
    running = self._forget(job)
    if running is not None:
      self._stream.cancel(running.requests)
      self._open.close(job, is_answered=False)

  def _forget(self, job: SamplingJob) -> _Running | None:
    """Removes the bookkeeping of a job in the stream."""
    running = self._jobs.pop(job, None)
    if running is None:
      return None
    for request in running.requests:
      del self._by_request[request]
    if self.residents is not None:
      self.residents.release(job.snapshot or self.residents.base)
    return running

  def _collect_running(self) -> None:
    """Collects the new tokens of streamed jobs' unfinished choices."""
    for sequence in self._stream.decoding:
      job, first = self._by_request[sequence.request]
      choice = first + sequence.sample_index
      if job.is_streamed:
        self._collect(job, choice, sequence)

  def _collect(
    self, job: SamplingJob, choice: int, sequence: SequenceState
  ) -> None:
    sent = self._jobs[job].sent
    new = sequence.tokens
    start, sent[choice] = sent[choice], len(new.ids)
    if start == sent[choice]:
      return
    tokens = NewTokens(
      choice,
      new.ids[start:].tolist(),
      new.logprobs[start:].tolist(),
      new.versions[start:].tolist(),
      None,
    )
    self._updates.append((job, tokens))

  def _flush(self) -> None:
    """Delivers the collected updates in one call."""
    if self._updates:
      updates, self._updates = self._updates, []
      self._deliver(updates)

  def _swap_params(self) -> None:
    """Loads the new weights, unless a job is pinned to the current ones."""
    if self._swap is None:
      return
    # Choices may have finished in the last call.
    self._stream.deliver()
    begun = (*self._jobs, *self._queued)
    pinned = collections.Counter(job.step for job in begun)
    if pinned[self.step]:
      return
    # A choice is scored by the weights that sampled its last tokens.
    self._score_ended()
    swap, self._swap = self._swap, None
    # Free the old weights first, so that two copies never share the device.
    weights = self._stream.weights
    self._stream.suspend()
    weights.release()
    weights.restore(self._sampler.compute_params(swap.params), swap.step)
    self._open.step = swap.step
    swap.is_done.set()
    held, self._held = self._held, []
    for job in held:
      self._begin(job)


def _not_served(step: int, served: int) -> ApiError:
  """Returns the error for a job that is pinned to another step."""
  return ApiError(
    404,
    f"the weights of step {step} are not served: expected step {served}, the "
    "newest",
    param="model",
    code="model_not_found",
  )
