r"""Runs a command of azr_jax on a rented TPU slice, from a laptop.

  python launch/tpu_vm.py up --name=azr --project=P --zone=us-west4-a \
      --accelerator=v5litepod-64 --spot --bucket=B -- azr_jax.train \
      --config=configs/azr.py:qwen2.5-7b --workdir=gs://B/runs/azr

| command | what it does |
| --- | --- |
| `up` | checks, creates, copies and runs until the run is done, on new slices
  after preemptions |
| `check` | checks the run's flags, account, accelerator, software, quota and
  bucket |
| `create` | checks, requests the slice, and waits until it exists |
| `copy` | copies the files of this repository to all workers, installs them |
| `run` | starts the run on all workers and returns |
| `logs` | follows the log of the first worker, or of `--worker=N` |
| `status` | prints the state of the slice, and of the run on each worker |
| `delete` | deletes the slice, which is billed until then |

`--dry_run` prints the commands without running them. The same command resumes a
stopped or preempted run from the last checkpoint in its workdir. However a
command ends, it says what is still billed, and how to stop that.
"""

import atexit
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable

import costs
import gcloud
import tpu_checks
import tpu_flags
import tpu_worker
import variables
import watch
from absl import flags
from rental import Rental
from sdk import CommandError, Sdk
from watch import Job

from azr_jax.cli import errors, front
from azr_jax.cli.errors import UsageError

flags.adopt_module_key_flags(tpu_flags)  # shows them in --help
# Signals that silently end a process unless it handles them.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def main(argv: list[str]) -> None:
  """Runs the command that the first argument names."""
  commands: dict[str, Callable[[Rental, Job], None]] = {
    "up": up,
    "check": check,
    "create": create,
    "copy": lambda rental, job: rental.copy(),
    "run": watch.start,
    "logs": logs,
    "status": status,
    "delete": lambda rental, job: rental.delete(),
  }
  if len(argv) < 2 or argv[1] not in commands:
    raise UsageError(f"expected one of {', '.join(commands)}")
  starts = argv[1] in ("up", "run")
  if starts and len(argv) < 3:
    raise UsageError("expected a module and its flags after --")
  names = tpu_flags.PASS_ENV.value if starts else []
  try:
    rental = Rental(
      tpu_flags.read_slice(),
      Sdk(tpu_flags.DRY_RUN.value),
      tpu_flags.POLL_S.value,
      variables.read(names),
    )
    job = _job(argv[2:])
    if not rental.sdk.dry_run:
      _tell_costs(rental, knows_size=argv[1] in ("up", "create"))
    commands[argv[1]](rental, job)
  except ValueError as error:
    raise UsageError(str(error)) from None
  except CommandError as error:
    sys.exit(f"error: {error}")
  except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(errors.INTERRUPTED)


def _tell_costs(rental: Rental, knows_size: bool) -> None:
  """Makes the process report costs at exit, however it ends.

  Args:
    rental: the slice.
    knows_size: whether the flags describe the slice. For commands on an
      existing slice they may not.
  """

  def tell() -> None:
    print(costs.notice(rental.tpu, rental.state, knows_size), file=sys.stderr)

  atexit.register(tell)
  for number in _SIGNALS:
    signal.signal(number, lambda number, _: sys.exit(128 + number))


def _job(words: list[str]) -> Job:
  """Returns the job of the command line.

  Raises:
    UsageError: `--weights` is not a model on the hub, or `--bucket` is missing.
  """
  weights, bucket = tpu_flags.WEIGHTS.value, tpu_flags.BUCKET.value
  if not weights:
    return Job(tuple(words))
  kind, _, name = weights.partition(":")
  if kind != "hf" or name.count("/") != 1 or not bucket:
    raise UsageError(
      f"--weights={weights}: expected hf:OWNER/NAME, and --bucket=BUCKET to "
      "store them in"
    )
  return Job(tuple(words), weights, f"gs://{bucket}/weights/{name}")


def up(rental: Rental, job: Job) -> None:
  """Runs the job to its end, then deletes the slice if requested."""
  check(rental, job)
  delete_when, restarts = tpu_flags.DELETE.value, tpu_flags.RESTARTS.value
  try:
    is_done = watch.watch(rental, job, restarts)
  except CommandError as error:
    print(f"gave up: {error}", file=sys.stderr, flush=True)
    if delete_when == tpu_flags.ENDED:
      rental.delete()
    sys.exit(1)
  if rental.sdk.dry_run:
    status(rental, job)
  elif is_done:
    print("the run is done", flush=True)
  else:
    print(
      f"the run failed {restarts + 1} times; its log is above",
      file=sys.stderr,
      flush=True,
    )
  if delete_when == tpu_flags.ENDED or (
    is_done and delete_when == tpu_flags.DONE
  ):
    rental.delete()
  if not is_done:
    sys.exit(1)


def check(rental: Rental, job: Job) -> None:
  """Checks the job, the account and the slice. Creates nothing."""
  if tpu_flags.CHECK_JOB.value:
    words = list(job.words)
    if job.weights:
      words = tpu_worker.with_model(words, job.store)
    tpu_checks.check_job(words, rental.sdk.dry_run)
  tpu_checks.check(
    rental.sdk, rental.tpu, tpu_flags.BUCKET.value, list(job.words)
  )


def create(rental: Rental, job: Job) -> None:
  """Checks, requests the slice, and waits until it exists."""
  check(rental, job)
  rental.ensure()


def logs(rental: Rental, job: Job) -> None:
  """Follows a worker's log until interrupted."""
  del job
  follow = gcloud.ssh(
    rental.tpu, tpu_worker.FOLLOW, str(tpu_flags.WORKER.value)
  )
  argv = rental.sdk.argv(follow)
  print(shlex.join(argv), flush=True)
  if not rental.sdk.dry_run:
    code = subprocess.run(argv, check=False).returncode
    rental.state = costs.UNKNOWN if code else "ACTIVE"
    sys.exit(code)


def status(rental: Rental, job: Job) -> None:
  """Prints the state of the slice, and of the run on each worker."""
  del job
  state = rental.refresh_state()
  if rental.sdk.dry_run:
    rental.shell(tpu_worker.STATUS)
    return
  print(state or "there is no such slice", flush=True)
  if state == "ACTIVE":
    print(rental.shell(tpu_worker.STATUS), flush=True)


if __name__ == "__main__":
  front.run(__doc__, main, takes_arguments=True)
