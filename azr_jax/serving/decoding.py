"""The one thread that samples for all clients.

The life of a job:
1. a thread of the server submits it, unless there are too many;
2. between two calls of the decode loop its prompts enter the open stream, or it
   is held until the weights that it wants are used;
3. after each call its new tokens are handed over, while the device runs the
   next call; those of a job that is scored, once they are;
4. it ends with its last completion, or is cancelled, which frees its pages.

Nothing else touches the device. Weights are swapped between two calls.
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
from typing import NamedTuple

import numpy as np

from azr_jax import types
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.stream import SampleKey, Stream
from azr_jax.rollout.weights import Weights
from azr_jax.serving import errors
from azr_jax.serving.errors import ApiError
from azr_jax.serving.jobs import Deliver, Job, Tokens, Update
from azr_jax.serving.scoring import Scorer

# Tokens that are scored between two calls of the decode loop, without padding.
_MAX_SCORED = 1 << 14


@dataclasses.dataclass(frozen=True)
class Status:
  """What a worker does and has done.

  Attributes:
    running: choices that have a slot.
    waiting: choices that wait for one, or for weights that do.
    answered: jobs that have ended with their last choice.
    cancelled: jobs that their client cancelled, or the end of the server.
    tokens: that were sampled for answered jobs.
    step: of the weights.
    free_pages: pages of the cache that nothing has.
  """

  running: int
  waiting: int
  answered: int
  cancelled: int
  tokens: int
  step: int
  free_pages: int


@dataclasses.dataclass(eq=False)
class _Running:
  """A job in the stream.

  Attributes:
    requests: of its prompts.
    sent: how many tokens of each choice were handed over.
    missing: choices that have not ended.
  """

  requests: list[Request]
  sent: list[int]
  missing: int


class _Swap(NamedTuple):
  """Weights that wait to be sampled with, and an event of their turn."""

  params: types.Params
  step: int
  is_done: threading.Event


class DecodeWorker:
  """Samples jobs of many threads in one."""

  def __init__(
    self,
    sampler: Sampler,
    weights: Weights,
    key_data: np.ndarray,
    step: int,
    max_waiting: int,
    scorer: Scorer | None = None,
  ):
    """Opens a stream; `run` serves it.

    Args:
      sampler: the sampling engine.
      weights: the parameters to sample with, until others take their place.
      key_data: uint32 [U], the data of the key that all samples fold their
        seed into.
      step: of the weights.
      max_waiting: choices that may wait for a slot.
      scorer: scores jobs that want it; None: there are none.
    """
    self._sampler, self._scorer = sampler, scorer
    self._stream: Stream = sampler.open(weights)
    self._key_data = key_data
    self._max_waiting = max_waiting
    self._slots = sampler.engine.slot_counts[0]
    self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    self._jobs: dict[Job, _Running] = {}
    self._by_request: dict[Request, tuple[Job, int]] = {}
    self._unscored: collections.deque[tuple[Job, Tokens]] = collections.deque()
    self._updates: list[tuple[Job, Update]] = []
    self._arrivals = 0
    self._swap: _Swap | None = None
    self._held: list[Job] = []  # They want the weights that wait.
    self._deliver: Deliver = lambda updates: None
    # The rest is read and written by all threads.
    # A signal's handler may ask for it in the thread that has it.
    self._lock = threading.RLock()
    self._step = step
    self._free_pages = self._stream.num_free_pages
    self._open_choices: dict[Job, int] = {}
    self._refusal: ApiError | None = None
    self._deadline: float | None = None
    self._num_decoding = self._answered = self._cancelled = self._tokens = 0

  @property
  def step(self) -> int:
    """The step of the weights."""
    return self._step

  @property
  def refusal(self) -> ApiError | None:
    """The error that all new jobs get; None: they are taken."""
    return self._refusal

  def warm_up(self) -> None:
    """Compiles all that it runs; call it before `run`."""
    self._sampler.warm_up(self._params)
    if self._scorer is not None:
      self._scorer.warm_up(self._params)

  @property
  def _params(self) -> types.Params:
    """The parameters that the next call samples with."""
    params = self._stream.weights.params
    assert params is not None
    return params

  def status(self) -> Status:
    """Returns what is done and has been done."""
    with self._lock:
      choices = sum(self._open_choices.values())
      return Status(
        self._num_decoding,
        max(0, choices - self._num_decoding),
        self._answered,
        self._cancelled,
        self._tokens,
        self._step,
        self._free_pages,
      )

  def submit(self, job: Job) -> None:
    """Takes on a job; may be called from any thread.

    Raises:
      ApiError: there are too many, or the worker ends. A job that wants other
        weights than those that are served hears of it as an update.
    """
    with self._lock:
      if self._refusal is not None:
        raise self._refusal
      if job.num_choices > self._slots + self._max_waiting:
        raise ApiError(
          400,
          f"prompts x n={job.num_choices}: expected at most "
          f"{self._slots + self._max_waiting} choices in a request "
          "(rollout.slots + serve.max_waiting)",
          param="n",
        )
      choices = sum(self._open_choices.values())
      if choices + job.num_choices > self._slots + self._max_waiting:
        raise errors.overloaded(
          f"{choices} completions run or wait: expected room for "
          f"{job.num_choices} among {self._slots} slots and "
          f"{self._max_waiting} places (serve.max_waiting); try again later"
        )
      self._open_choices[job] = job.num_choices
    self._commands.put(functools.partial(self._begin, job))

  def cancel(self, job: Job) -> None:
    """Gives up a job that may have ended; may be called from any thread."""
    self._commands.put(functools.partial(self._cancel, job))

  def swap(self, params: types.Params, step: int) -> threading.Event:
    """Samples with other weights from the next call on, from any thread.

    Jobs under way go on with them, save those that want their step alone: these
    end first.

    Args:
      params: training parameters. The caller must keep no reference.
      step: of them.

    Returns:
      An event that is set when the weights are in use.
    """
    swap = _Swap(params, step, threading.Event())
    self._commands.put(functools.partial(setattr, self, "_swap", swap))
    return swap.is_done

  def end(self, within_s: float) -> None:
    """Takes no more jobs, and lets `run` return; from any thread.

    Args:
      within_s: how long jobs under way may go on before they are cancelled.
    """
    with self._lock:
      self._refusal = self._refusal or errors.unavailable(
        "the server is ending", "server_ending"
      )
      deadline = time.monotonic() + within_s
      self._deadline = min(deadline, self._deadline or deadline)
    self._commands.put(lambda: None)

  def run(self, deliver: Deliver) -> None:
    """Serves jobs until `end`; call it in one thread.

    Args:
      deliver: is given what jobs hear, in this thread. It must not wait.
    """
    self._deliver = deliver
    with self._last_words():
      while not self._is_over():
        self._take_commands()
        self._swap_params()
        is_sent = self._stream.send()
        self._num_decoding = len(self._stream.decoding)
        self._free_pages = self._stream.num_free_pages
        self._collect_running()
        self._flush()
        self._score_ended(_MAX_SCORED)
        self._flush()
        if is_sent:
          self._stream.fetch()
        self._sampler.meter.take()  # It would grow for as long as this runs.

  @contextlib.contextmanager
  def _last_words(self) -> Iterator[None]:
    """Tells the jobs under way why they will have no end."""
    error = errors.unavailable("the server has ended", "server_ending")
    try:
      yield
    except BaseException:
      error = errors.unavailable("the server has failed", "server_failed")
      raise
    finally:
      with self._lock:
        self._refusal, left = error, list(self._open_choices)
        self._cancelled += len(left)
        self._open_choices.clear()
      self._updates += [(job, error) for job in left]
      self._flush()

  def _is_over(self) -> bool:
    """Returns whether `end` was called and nothing is left, or no time."""
    deadline = self._deadline
    if deadline is None:
      return False
    return not self._open_choices or time.monotonic() >= deadline

  def _take_commands(self) -> None:
    """Does what other threads asked for; waits for it if nothing is sampled."""
    with contextlib.suppress(queue.Empty):
      wait = self._stream.is_empty and self._swap is None and not self._unscored
      while True:
        self._commands.get(block=wait)()
        wait = False

  def _begin(self, job: Job) -> None:
    """Submits the prompts of a job, or tells it why not."""
    # Weights that wait would never have their turn, if jobs that want those
    # before came without a gap. So the newest alone can be asked for.
    newest = self._step if self._swap is None else self._swap.step
    if job.step is not None and job.step != newest:
      self._close(job, is_answered=False)
      self._updates.append((job, _not_served(job.step, newest)))
      return
    if job.step is not None and self._swap is not None:
      self._held.append(job)
      return
    try:
      self._submit(job)
    except ValueError as error:
      self._cancel(job)
      self._updates.append((job, ApiError(400, str(error))))

  def _submit(self, job: Job) -> None:
    """Submits the prompts of a job to the stream."""
    key = SampleKey(self._key_data, job.seed, job.temperature)
    running = _Running([], [0] * job.num_choices, job.num_choices)
    self._jobs[job] = running
    for index, prompt in enumerate(job.prompts):
      # Whoever came first is served first. A job that was held counts as coming
      # when its weights are used.
      self._arrivals += 1
      request, futures = self._stream.submit(
        prompt,
        job.n,
        key,
        job.max_new_tokens,
        priority=(self._arrivals,),
        stop_strings=job.stop_strings,
      )
      running.requests.append(request)
      self._by_request[request] = job, index * job.n
      for sample, future in enumerate(futures):
        choice = index * job.n + sample
        future.add_done_callback(functools.partial(self._end, job, choice))

  def _end(
    self, job: Job, choice: int, future: "Future[types.Completion]"
  ) -> None:
    """Hands over the rest of a choice that has ended, or lets it be scored."""
    if job not in self._jobs:
      return  # It was cancelled.
    done, sent = future.result(), self._jobs[job].sent[choice]
    assert done.versions is not None
    tokens = Tokens(
      choice,
      done.token_ids[sent:].tolist(),
      done.logprobs[sent:].tolist(),
      done.versions[sent:].tolist(),
      done.finish_reason,
    )
    with self._lock:
      self._tokens += len(done.token_ids)
    if job.is_scored:
      self._unscored.append((job, tokens))
    else:
      self._hand_over(job, tokens)

  def _score_ended(self, limit: int | None = None) -> None:
    """Hands over choices that have ended, with their scores.

    Args:
      limit: of how many tokens, so that others need not wait for long, but of
        one choice at least; None: all are.
    """
    unscored: list[tuple[Job, Tokens]] = []
    sequences: list[list[int]] = []
    firsts: list[int] = []
    total = 0
    while self._unscored:
      job, tokens = self._unscored[0]
      if job in self._jobs:  # It was not cancelled since its choice ended.
        prompt = job.prompts[tokens.choice // job.n].token_ids
        total += len(prompt) + len(tokens.token_ids)
        if unscored and limit is not None and total > limit:
          break
        unscored.append((job, tokens))
        sequences.append([*prompt, *tokens.token_ids])
        firsts.append(0 if job.scores_prompts else len(prompt))
      self._unscored.popleft()
    if not unscored:
      return
    assert self._scorer is not None
    scored = self._scorer.score(self._params, sequences, firsts)
    for (job, tokens), scores in zip(unscored, scored, strict=True):
      self._hand_over(job, tokens._replace(scores=scores))

  def _hand_over(self, job: Job, tokens: Tokens) -> None:
    """Hands over the last tokens of a choice."""
    running = self._jobs[job]
    self._updates.append((job, tokens))
    running.missing -= 1
    with self._lock:
      self._open_choices[job] -= 1
    if not running.missing:
      self._forget(job)
      self._close(job, is_answered=True)

  def _cancel(self, job: Job) -> None:
    """Takes a job out of the stream, which frees its pages."""
    if job in self._held:
      self._held.remove(job)
      self._close(job, is_answered=False)
    running = self._forget(job)
    if running is not None:
      self._stream.cancel(running.requests)
      self._close(job, is_answered=False)

  def _forget(self, job: Job) -> _Running | None:
    """Drops what is kept of a job in the stream."""
    running = self._jobs.pop(job, None)
    for request in () if running is None else running.requests:
      del self._by_request[request]
    return running

  def _close(self, job: Job, is_answered: bool) -> None:
    with self._lock:
      del self._open_choices[job]
      self._answered += is_answered
      self._cancelled += not is_answered

  def _collect_running(self) -> None:
    """Hands over the new tokens of streamed jobs whose choices go on."""
    for sequence in self._stream.decoding:
      job, first = self._by_request[sequence.request]
      choice = first + sequence.sample_index
      if job.is_streamed:
        self._collect(job, choice, sequence)

  def _collect(self, job: Job, choice: int, sequence: SequenceState) -> None:
    sent = self._jobs[job].sent
    start, sent[choice] = sent[choice], len(sequence.token_ids)
    if start == sent[choice]:
      return
    tokens = Tokens(
      choice,
      sequence.token_ids[start:],
      sequence.logprobs[start:],
      sequence.versions[start:],
      None,
    )
    self._updates.append((job, tokens))

  def _flush(self) -> None:
    """Delivers what was collected, in one go."""
    if self._updates:
      updates, self._updates = self._updates, []
      self._deliver(updates)

  def _swap_params(self) -> None:
    """Puts other weights in use, unless a job wants those that are."""
    if self._swap is None:
      return
    # Some may have ended in the last call.
    self._stream.deliver()
    pinned = collections.Counter(job.step for job in self._jobs)
    if pinned[self._step]:
      return
    # The weights that sampled the last tokens of choices score them.
    self._score_ended()
    swap, self._swap = self._swap, None
    # The weights before are freed before there are others.
    weights = self._stream.weights
    self._stream.suspend()
    weights.release()
    weights.restore(self._sampler.compute_params(swap.params), swap.step)
    with self._lock:
      self._step = swap.step
    swap.is_done.set()
    held, self._held = self._held, []
    for job in held:
      self._begin(job)


def _not_served(step: int, served: int) -> ApiError:
  """Returns the error of a job that wants the weights of another step."""
  return ApiError(
    404,
    f"the weights of step {step} are not served: expected step {served}, which "
    "is the newest",
    param="model",
    code="model_not_found",
  )
