"""Keeps a job running on a rented slice until it is done."""

import dataclasses
import sys
import time

import tpu_worker
from rental import Rental
from sdk import CommandError

MAX_ERRORS = 10  # consecutive gcloud errors after which `watch` gives up


@dataclasses.dataclass(frozen=True)
class Job:
  """A command of azr_jax, and the source of its weights.

  Attributes:
    words: the module and its flags.
    weights: hf:OWNER/NAME, which one worker copies to the store; "" for none.
    store: the bucket folder for the weights.
  """

  words: tuple[str, ...]
  weights: str = ""
  store: str = ""


def start(rental: Rental, job: Job) -> None:
  """Starts a job on all workers, after stopping an earlier one."""
  words = list(job.words)
  if job.weights:
    if not rental.sdk.dry_run:
      print(f"copying weights to {job.store}: minutes to an hour", flush=True)
    rental.shell_with_variables(
      tpu_worker.fetch_command(job.weights, job.store), "0"
    )
    words = tpu_worker.with_model(words, job.store)
  rental.shell_with_variables(tpu_worker.start_command(words))


@dataclasses.dataclass
class _ErrorBudget:
  """Counts consecutive errors."""

  rental: Rental
  errors: int = 0

  def count(self, error: CommandError) -> None:
    """Waits after an error, or raises it again if there were too many."""
    self.errors += 1
    if error.is_final or self.errors > MAX_ERRORS:
      raise error
    print(f"{error}\nretrying", file=sys.stderr, flush=True)
    time.sleep(self.rental.poll_s)


def watch(rental: Rental, job: Job, restarts: int) -> bool:
  """Runs a job until it is done, on as many slices as it takes.

  A gcloud error, such as a worker lost during installation, is retried up to
  `MAX_ERRORS` times in a row.

  Args:
    rental: the slice.
    job: the job to run.
    restarts: how often to restart a run that fails, or that no worker runs any
      more.

  Returns:
    Whether the job is done. False if it failed too often.

  Raises:
    CommandError: too many errors in a row, or one that would occur again.
  """
  error_budget, failures = _ErrorBudget(rental), 0
  while failures <= restarts:
    try:
      outcome = _run_once(rental, job, error_budget)
    except CommandError as error:
      error_budget.count(error)
      continue
    if outcome == "done":
      return True
    if outcome == "preempted":
      print("the slice was preempted; requesting another", flush=True)
    # "gone": all machines restarted, so no worker runs the job any more.
    failures += outcome in ("failed", "gone")
  return False


def _run_once(rental: Rental, job: Job, error_budget: _ErrorBudget) -> str:
  """Makes sure that the job runs on a slice, and waits until it stops.

  Returns:
    The result of `progress` that is not `running`; `done` in a dry run.
  """
  if rental.ensure() or progress(rental) != "running":
    rental.copy()
    start(rental, job)
  if rental.sdk.dry_run:
    return "done"
  while (outcome := progress(rental)) == "running":
    error_budget.errors = 0
    time.sleep(rental.poll_s)
  if outcome == "failed":
    print(rental.shell(tpu_worker.TAIL), flush=True)
  return outcome


def progress(rental: Rental) -> str:
  """Returns the combined state of the run on all workers.

  Returns:
    `running`, `done`, `failed`, `preempted` (the slice is lost), or `gone` (no
    worker runs the job).

  Raises:
    CommandError: the workers of an active slice do not answer.
  """
  if rental.refresh_state() != "ACTIVE":
    return "preempted"
  workers = rental.shell(tpu_worker.STATUS, quiet=True).split()
  # While one worker runs, the others' results are not final: after a failure,
  # the remaining workers end by themselves.
  if "running" in workers:
    return "running"
  if workers and set(workers) == {"0"}:
    return "done"
  return "gone" if set(workers) <= {"gone", "stopped", "0"} else "failed"
