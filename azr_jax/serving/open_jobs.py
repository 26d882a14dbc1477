"""The jobs that a worker has accepted, counted for its threads."""

import dataclasses
import threading
from collections.abc import Sequence

from azr_jax.serving import errors
from azr_jax.serving.errors import ApiError
from azr_jax.serving.jobs import SamplingJob


@dataclasses.dataclass(frozen=True)
class Status:
  """Counters of a worker.

  Attributes:
    running: choices that have a slot.
    waiting: choices that wait for a slot or for new weights.
    answered: jobs that were answered in full.
    cancelled: jobs cancelled by their client or by the server's shutdown.
    tokens: number of tokens sampled in finished choices.
    step: the step of the weights.
    free_pages: free pages of the KV cache.
  """

  running: int
  waiting: int
  answered: int
  cancelled: int
  tokens: int
  step: int
  free_pages: int


class OpenJobs:
  """Accepts jobs up to a limit. Every method is thread-safe.

  Attributes:
    lock: held by every method. It is reentrant because a signal handler may
      call `status` in the thread that holds it.
    step: the step of the weights.
    refusal: the error for all new jobs. None while jobs are accepted.
    num_decoding: choices that have a slot.
    free_pages: free pages of the KV cache.
  """

  def __init__(self, slots: int, max_waiting: int, step: int, free_pages: int):
    """Starts without jobs.

    Args:
      slots: number of choices that are sampled at the same time.
      max_waiting: maximum number of choices that wait for a slot.
      step: the step of the weights.
      free_pages: free pages of the KV cache.
    """
    self.lock = threading.RLock()
    self.step, self.free_pages = step, free_pages
    self.refusal: ApiError | None = None
    self.num_decoding = 0
    self._slots, self._max_waiting = slots, max_waiting
    self._missing: dict[SamplingJob, int] = {}
    self._answered = self._cancelled = self._tokens = 0

  def __bool__(self) -> bool:
    return bool(self._missing)

  def add(self, job: SamplingJob) -> None:
    """Accepts a job.

    Raises:
      ApiError: too many choices are waiting, or jobs are refused.
    """
    most = self._slots + self._max_waiting
    with self.lock:
      if self.refusal is not None:
        raise self.refusal
      if job.num_choices > most:
        raise ApiError(
          400,
          f"prompts x n={job.num_choices}: expected at most {most} choices in "
          "a request (rollout.slots + serve.max_waiting)",
          param="n",
        )
      choices = sum(self._missing.values())
      if choices + job.num_choices > most:
        raise errors.overloaded(
          f"the server is busy with {choices} completions: expected room for "
          f"{job.num_choices} among {self._slots} slots and "
          f"{self._max_waiting} waiting (serve.max_waiting); try again later"
        )
      self._missing[job] = job.num_choices

  def add_tokens(self, count: int) -> None:
    """Counts the tokens of a finished choice."""
    with self.lock:
      self._tokens += count

  def deliver_choice(self, job: SamplingJob) -> None:
    """Counts a choice whose client has its last tokens."""
    with self.lock:
      self._missing[job] -= 1

  def close(self, job: SamplingJob, is_answered: bool) -> None:
    """Removes a job that was answered or cancelled."""
    with self.lock:
      del self._missing[job]
      self._answered += is_answered
      self._cancelled += not is_answered

  def refuse(self, error: ApiError) -> None:
    """Refuses new jobs with an error, which replaces an earlier one."""
    with self.lock:
      self.refusal = error

  def cancel_all(self) -> Sequence[SamplingJob]:
    """Cancels all jobs, and returns them."""
    with self.lock:
      left = list(self._missing)
      self._cancelled += len(left)
      self._missing.clear()
    return left

  def status(self) -> Status:
    """Returns the counters."""
    with self.lock:
      choices = sum(self._missing.values())
      return Status(
        self.num_decoding,
        max(0, choices - self.num_decoding),
        self._answered,
        self._cancelled,
        self._tokens,
        self.step,
        self.free_pages,
      )
