r"""Runs a command of azr_jax on a rented TPU slice, from a laptop.

  python launch/tpu_vm.py up --name=azr --project=P --zone=us-west4-a \
      --accelerator=v5litepod-64 --spot --bucket=B -- azr_jax.train \
      --config=configs/azr.py:qwen2.5-7b --workdir=gs://B/runs/azr

| command | what it does |
| --- | --- |
| `up` | check, create, copy and run until the run is done, also on new slices
  after preemptions |
| `check` | checks account, accelerator, software, quota and bucket |
| `create` | checks, requests the slice, and waits until it exists |
| `copy` | copies the files of this repository to all workers, installs them |
| `run` | starts the run on all workers and returns |
| `logs` | follows the log of the first worker, or of `--worker=N` |
| `status` | prints the state of the slice, and of the run on each worker |
| `delete` | deletes the slice, which costs until then |

`--dry_run` prints the commands without running them. The same command resumes
a run that was stopped or preempted from the last checkpoint in its workdir.
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import gcloud
import source_archive
import tpu_worker
from absl import flags

from azr_jax.cli import front
from azr_jax.cli.errors import UsageError

NAME = flags.DEFINE_string("name", "azr", "Name of the slice.")
PROJECT = flags.DEFINE_string("project", "", "Google Cloud project that pays.")
ZONE = flags.DEFINE_string("zone", "us-west4-a", "Zone of the slice.")
ACCELERATOR = flags.DEFINE_string(
  "accelerator", "v5litepod-64", "v5litepod-N, v5p-N, v6e-N or v4-N."
)
SPOT = flags.DEFINE_bool(
  "spot", False, "Rent a spot slice: cheaper, but it may be preempted."
)
RUNTIME = flags.DEFINE_string(
  "runtime", "", 'Software version; "": the accelerator\'s usual one.'
)
SERVICE_ACCOUNT = flags.DEFINE_string(
  "service_account", "", "Service account of the machines."
)
NETWORK = flags.DEFINE_string("network", "", "Network of the machines.")
BUCKET = flags.DEFINE_string(
  "bucket", "", "Bucket of the workdir, without gs://."
)
WORKER = flags.DEFINE_integer("worker", 0, "Worker whose log `logs` follows.")
RESTARTS = flags.DEFINE_integer(
  "restarts", 3, "How often `up` restarts a run that fails."
)
POLL_S = flags.DEFINE_float("poll_s", 60.0, "Seconds between two checks.")
DRY_RUN = flags.DEFINE_bool(
  "dry_run", False, "Print the commands without running them."
)

ROOT = pathlib.Path(__file__).parents[1]
MAX_ERRORS = 10  # errors of gcloud in succession, after which `up` gives up
# States of a request that cannot become ACTIVE any more.
DEAD_STATES = ("SUSPENDING", "SUSPENDED", "FAILED", "DELETING")


class CommandError(RuntimeError):
  """A gcloud command failed, or would fail; the message says why."""


def main(argv: list[str]) -> None:
  """Runs the command that the first argument names."""
  commands: dict[str, Callable[[gcloud.Slice, list[str]], None]] = {
    "up": up,
    "check": check,
    "create": create,
    "copy": copy,
    "run": run,
    "logs": logs,
    "status": status,
    "delete": delete,
  }
  if len(argv) < 2 or argv[1] not in commands:
    raise UsageError(f"expected one of {', '.join(commands)}")
  if argv[1] in ("up", "run") and len(argv) < 3:
    raise UsageError("expected a module and its flags after --")
  tpu = gcloud.Slice(
    NAME.value,
    PROJECT.value,
    ZONE.value,
    ACCELERATOR.value,
    SPOT.value,
    RUNTIME.value,
    SERVICE_ACCOUNT.value,
    NETWORK.value,
  )
  try:
    tpu.check()
    commands[argv[1]](tpu, argv[2:])
  except ValueError as error:
    raise UsageError(str(error)) from None
  except CommandError as error:
    sys.exit(str(error))


def up(tpu: gcloud.Slice, job: list[str]) -> None:
  """Runs the job to its end, on as many slices as it takes.

  An error of gcloud, such as a worker that is lost during the installation, is
  retried up to `MAX_ERRORS` times in succession.
  """
  check(tpu, job)
  failures = errors = 0
  while True:
    try:
      outcome = _run_once(tpu, job)
      errors = 0
    except CommandError as error:
      errors += 1
      if errors > MAX_ERRORS:
        raise
      print(f"{error}\ntrying again", file=sys.stderr, flush=True)
      time.sleep(POLL_S.value)
      continue
    if DRY_RUN.value:
      status(tpu, job)
      return
    if outcome == "done":
      print("the run is done; the slice costs until `delete` deletes it")
      return
    if outcome == "preempted":
      print("the slice was preempted; requesting another", flush=True)
    if outcome == "failed":
      failures += 1
      if failures > RESTARTS.value:
        raise SystemExit(f"the run failed {failures} times; its log is above")


def _run_once(tpu: gcloud.Slice, job: list[str]) -> str:
  """Ensures that the job runs on a slice, and waits until it does not.

  Returns:
    The result of `_progress` that is not `running`.
  """
  if _ensure_slice(tpu) or _progress(tpu) != "running":
    copy(tpu, job)
    run(tpu, job)
  if DRY_RUN.value:
    return ""
  while (outcome := _progress(tpu)) == "running":
    time.sleep(POLL_S.value)
  if outcome == "failed":
    print(_execute(gcloud.ssh(tpu, f"tail -n 30 {tpu_worker.LOG}")), flush=True)
  return outcome


def check(tpu: gcloud.Slice, job: list[str]) -> None:
  """Checks what would otherwise fail later; creates nothing.

  Raises:
    ValueError: the workdir is not in the bucket.
    CommandError: something is missing in Google Cloud.
  """
  workdir = _workdir(job)
  if job and BUCKET.value and not workdir.startswith(f"gs://{BUCKET.value}/"):
    raise ValueError(
      f"--workdir={workdir}: expected a folder of gs://{BUCKET.value}/, which "
      "all workers can access and which outlives the slice"
    )
  if job and not workdir.startswith("gs://"):
    raise ValueError(
      f"--workdir={workdir}: expected a folder of a bucket, gs://BUCKET/..., "
      "which all workers can access and which outlives the slice"
    )
  if not _execute(gcloud.account()) and not DRY_RUN.value:
    raise CommandError("no account is logged in: expected `gcloud auth login`")
  _execute(gcloud.accelerator(tpu))
  _execute(gcloud.runtime(tpu))
  if tpu.quota:
    _check_quota(tpu, _execute(gcloud.quota(tpu)))
  if workdir:
    bucket = workdir.removeprefix("gs://").split("/")[0]
    location = _execute(gcloud.bucket(bucket))
    if location and not tpu.region.startswith(location.lower()):
      print(
        f"the bucket is in {location}, the slice in {tpu.region}: transfers "
        "between regions are slow and cost money",
        flush=True,
      )


def _check_quota(tpu: gcloud.Slice, text: str) -> None:
  """Raises CommandError if a quota, as JSON, is smaller than the slice."""
  if not text:
    return
  limits = [
    int(quota["details"]["value"])
    for quota in json.loads(text).get("dimensionsInfos", [])
    if tpu.zone in quota.get("applicableLocations", [])
    or quota.get("dimensions", {}).get("zone") == tpu.zone
  ]
  limit = max(limits, default=0)
  if 0 <= limit < tpu.size:
    raise CommandError(
      f"the quota {tpu.quota} allows {limit} in {tpu.zone}, and "
      f"{tpu.accelerator} needs {tpu.size}: expected a larger quota (Google "
      "Cloud console, IAM, Quotas), another zone, or a smaller slice"
    )


def _workdir(job: list[str]) -> str:
  """Returns the job's --workdir; "" if there is no job."""
  workdirs = [flag for flag in job if flag.startswith("--workdir=")]
  if job and not workdirs:
    raise ValueError("expected --workdir=gs://... among the flags after --")
  return workdirs[-1].removeprefix("--workdir=") if workdirs else ""


def create(tpu: gcloud.Slice, job: list[str]) -> None:
  """Checks, requests the slice, and waits until it exists."""
  check(tpu, job)
  _ensure_slice(tpu)


def _ensure_slice(tpu: gcloud.Slice) -> bool:
  """Waits until the slice exists; requests it if that has not been done.

  Returns:
    Whether the slice may be new, with nothing installed on it.
  """
  is_new = False
  printed = ""
  while (state := _state(tpu)) != "ACTIVE":
    if state in DEAD_STATES:
      _execute(gcloud.delete(tpu))
      state = ""
    if not state:
      _execute(gcloud.create(tpu))
      is_new = True
      if DRY_RUN.value:
        break
    elif state != printed:
      print(f"{tpu.accelerator} in {tpu.zone}: {state}", flush=True)
      printed = state
    time.sleep(POLL_S.value)
    # A slice that becomes active from now on is new, even if an earlier
    # command requested it.
    is_new = True
  return is_new


def _state(tpu: gcloud.Slice) -> str:
  """Returns the state of the slice's request; "" if there is none."""
  try:
    return _execute(gcloud.state(tpu), quiet=True)
  except CommandError as error:
    if "NOT_FOUND" in str(error) or "not found" in str(error):
      return ""
    raise


def copy(tpu: gcloud.Slice, job: list[str]) -> None:
  """Copies all files that git does not ignore to all workers; installs them."""
  del job
  with tempfile.TemporaryDirectory() as folder:
    archive = os.path.join(folder, tpu_worker.ARCHIVE)
    if not DRY_RUN.value:
      source_archive.write(ROOT, archive)
    _execute(gcloud.copy(tpu, [archive], tpu_worker.ARCHIVE))
  _execute(gcloud.ssh(tpu, tpu_worker.INSTALL))


def run(tpu: gcloud.Slice, job: list[str]) -> None:
  """Starts the job on all workers, after stopping an earlier one."""
  _execute(gcloud.ssh(tpu, tpu_worker.start_command(job)))


def logs(tpu: gcloud.Slice, job: list[str]) -> None:
  """Follows a worker's log until interrupted."""
  del job
  follow = f"tail -n 100 -F {tpu_worker.LOG}"
  command = gcloud.ssh(tpu, follow, str(WORKER.value))
  print(shlex.join(command), flush=True)
  if not DRY_RUN.value:
    subprocess.run(command, check=False)


def status(tpu: gcloud.Slice, job: list[str]) -> None:
  """Prints the state of the slice, and of the run on each worker."""
  del job
  print(_state(tpu) or "there is no such slice", flush=True)
  print(_execute(gcloud.ssh(tpu, tpu_worker.STATUS)), flush=True)


def _progress(tpu: gcloud.Slice) -> str:
  """Returns the state of the run on all workers together.

  Returns:
    `running`, `done`, `failed`, `preempted` (the slice is lost), or `gone` (no
    worker runs the job).

  Raises:
    CommandError: the workers of an active slice do not answer.
  """
  if _state(tpu) != "ACTIVE":
    return "preempted"
  workers = _execute(gcloud.ssh(tpu, tpu_worker.STATUS), quiet=True).split()
  # While one worker runs, the others' results are not final: after a failure
  # the remaining workers end by themselves.
  if "running" in workers:
    return "running"
  if workers and set(workers) == {"0"}:
    return "done"
  return "gone" if set(workers) <= {"gone", "stopped", "0"} else "failed"


def delete(tpu: gcloud.Slice, job: list[str]) -> None:
  """Deletes the slice."""
  del job
  _execute(gcloud.delete(tpu))


def _execute(command: gcloud.Command, quiet: bool = False) -> str:
  """Prints a command, runs it, and returns its output.

  Args:
    command: a command of `gcloud.py`.
    quiet: print it only in a dry run, because it is repeated every minute.

  Raises:
    CommandError: the command failed.
  """
  if DRY_RUN.value or not quiet:
    print(shlex.join(command), flush=True)
  if DRY_RUN.value:
    return ""
  try:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
  except FileNotFoundError:
    raise CommandError(
      "gcloud is not installed: see cloud.google.com/sdk"
    ) from None
  if done.returncode:
    raise CommandError(f"{shlex.join(command)}\n{done.stderr.strip()[-2000:]}")
  return done.stdout.strip()


if __name__ == "__main__":
  front.run(__doc__, main, takes_words=True)
