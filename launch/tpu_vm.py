r"""Runs an entry point on a rented TPU slice, from a laptop.

  python launch/tpu_vm.py up --name=azr --project=P --zone=us-west4-a \
      --accelerator=v5litepod-64 --spot --bucket=B -- azr_jax.train \
      --config=configs/azr.py:qwen2.5-7b --workdir=gs://B/runs/azr

| command | what it does |
| --- | --- |
| `up` | all of the below until the run is done, also after preemptions |
| `check` | account, accelerator, software, quota and bucket; creates nothing |
| `create` | checks, then asks for the slice and waits until it is there |
| `copy` | this folder's files, as git sees them, and installs them |
| `run` | starts the run on all workers and returns |
| `logs` | follows the first worker's log; `--worker=N`: another's |
| `status` | of the request, and of the run on each worker |
| `delete` | gives the slice back: until then it costs |

`--dry_run` prints the commands and runs none. What is stopped or preempted goes
on by the same command, from the last checkpoint in the workdir.
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
from absl import app, flags

NAME = flags.DEFINE_string("name", "azr", "Of the slice.")
PROJECT = flags.DEFINE_string("project", "", "The project that pays.")
ZONE = flags.DEFINE_string("zone", "us-west4-a", "Where.")
ACCELERATOR = flags.DEFINE_string(
  "accelerator", "v5litepod-64", "v5litepod-N, v5p-N, v6e-N or v4-N."
)
SPOT = flags.DEFINE_bool("spot", False, "Cheaper, and may be taken away.")
RUNTIME = flags.DEFINE_string(
  "runtime", "", 'Software version; "": what fits the accelerator.'
)
SERVICE_ACCOUNT = flags.DEFINE_string(
  "service_account", "", "That the machines act as."
)
NETWORK = flags.DEFINE_string("network", "", "That they are in.")
BUCKET = flags.DEFINE_string("bucket", "", "Of the workdir, without gs://.")
WORKER = flags.DEFINE_integer("worker", 0, "Whose log is followed.")
RESTARTS = flags.DEFINE_integer(
  "restarts", 3, "Of a run that fails on a slice that is still there."
)
POLL_S = flags.DEFINE_float("poll_s", 60.0, "Seconds between two looks.")
DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the commands, run none.")

ROOT = pathlib.Path(__file__).parents[1]
# On every worker.
CODE, ENVIRONMENT = "azr_jax_code", "azr_jax_environment"
LOG, EXIT, PID = "azr_jax.log", "azr_jax.exit", "azr_jax.pid"
ARCHIVE = "azr_jax.tar.gz"
# What `azr_jax.train` says when SIGTERM ended it.
STOPPED = "stopped before its last step"
STOP_S = 600
PATIENCE = 10  # Troubles one after another.
# States of a request that will not become ACTIVE any more.
GONE = ("SUSPENDING", "SUSPENDED", "FAILED", "DELETING")
# The images' Python is older than ours; uv brings one along.
INSTALL = (
  f"rm -rf {CODE} && mkdir {CODE} && tar -xzf {ARCHIVE} -C {CODE} && "
  "(command -v ~/.local/bin/uv >/dev/null || "
  "curl -LsSf https://astral.sh/uv/install.sh | sh) && "
  f"([ -d {ENVIRONMENT} ] || "
  f"~/.local/bin/uv venv --python 3.12 {ENVIRONMENT}) && "
  f"~/.local/bin/uv pip install --python {ENVIRONMENT} -e '{CODE}[tpu]'"
)
STATUS = (
  f"cat {EXIT} 2>/dev/null || "
  f"(kill -0 -- -$(cat {PID}) 2>/dev/null && echo running || echo gone)"
)


class Failed(RuntimeError):
  """A command of gcloud's failed; says which, and what it said."""


def main(argv: list[str]) -> None:
  """Does what the first argument names."""
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
    raise app.UsageError(f"expected one of {', '.join(commands)}")
  if argv[1] in ("up", "run") and len(argv) < 3:
    raise app.UsageError("expected a module and its flags after --")
  own = gcloud.Slice(
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
    own.check()
    commands[argv[1]](own, argv[2:])
  except ValueError as error:
    raise app.UsageError(str(error)) from None
  except Failed as error:
    sys.exit(str(error))


def up(own: gcloud.Slice, job: list[str]) -> None:
  """Runs the job to its end, on as many slices as it takes.

  What fails on the way, as a machine that is lost in the middle of its
  installation, is tried again; only what goes on failing ends this.
  """
  check(own, job)
  failures = troubles = 0
  while True:
    try:
      found = _round(own, job)
      troubles = 0
    except Failed as error:
      troubles += 1
      if troubles > PATIENCE:
        raise
      print(f"{error}\ntrying again", file=sys.stderr, flush=True)
      time.sleep(POLL_S.value)
      continue
    if DRY_RUN.value:
      status(own, job)
      return
    if found == "done":
      print("the run is done; the slice costs until `delete` gives it back")
      return
    if found == "preempted":
      print("the slice was taken away; asking for another", flush=True)
    if found == "failed":
      failures += 1
      if failures > RESTARTS.value:
        raise SystemExit(f"the run failed {failures} times; its log is above")


def _round(own: gcloud.Slice, job: list[str]) -> str:
  """Has the run going on a slice, and waits for what becomes of it."""
  if _ensure(own) or _progress(own) != "running":
    copy(own, job)
    run(own, job)
  if DRY_RUN.value:
    return ""
  while (found := _progress(own)) == "running":
    time.sleep(POLL_S.value)
  if found == "failed":
    print(_ask(gcloud.ssh(own, f"tail -n 30 {LOG}")), flush=True)
  return found


def check(own: gcloud.Slice, job: list[str]) -> None:
  """Says at once what would fail in an hour.

  Raises:
    Failed: something is missing, and what to do.
  """
  workdir = _workdir(job)
  if job and BUCKET.value and not workdir.startswith(f"gs://{BUCKET.value}/"):
    raise ValueError(
      f"--workdir={workdir}: expected a folder of gs://{BUCKET.value}/, which "
      "all workers see and which outlives the slice"
    )
  if job and not workdir.startswith("gs://"):
    raise ValueError(
      f"--workdir={workdir}: expected a folder of a bucket, gs://BUCKET/..., "
      "which all workers see and which outlives the slice"
    )
  if not _ask(gcloud.account()) and not DRY_RUN.value:
    raise Failed("nobody is logged in: expected `gcloud auth login` before")
  _ask(gcloud.accelerator(own))
  _ask(gcloud.runtime(own))
  if own.quota:
    _check_quota(own, _ask(gcloud.quota(own)))
  if workdir:
    place = _ask(gcloud.bucket(workdir.removeprefix("gs://").split("/")[0]))
    if place and not own.region.startswith(place.lower()):
      print(
        f"the bucket is in {place}, the slice in {own.region}: what crosses "
        "regions is slow and costs",
        flush=True,
      )


def _check_quota(own: gcloud.Slice, text: str) -> None:
  if not text:
    return
  limits = [
    int(one["details"]["value"])
    for one in json.loads(text).get("dimensionsInfos", [])
    if own.zone in one.get("applicableLocations", [])
    or one.get("dimensions", {}).get("zone") == own.zone
  ]
  limit = max(limits, default=0)
  if 0 <= limit < own.size:
    raise Failed(
      f"the quota {own.quota} allows {limit} in {own.zone}, and "
      f"{own.accelerator} needs {own.size}: expected a larger quota (Google "
      "Cloud console, IAM, Quotas), another zone, or a smaller slice"
    )


def _workdir(job: list[str]) -> str:
  found = [flag for flag in job if flag.startswith("--workdir=")]
  if job and not found:
    raise ValueError("expected --workdir=gs://... among the flags after --")
  return found[-1].removeprefix("--workdir=") if found else ""


def create(own: gcloud.Slice, job: list[str]) -> None:
  """Checks, asks for the slice, and waits for it."""
  check(own, job)
  _ensure(own)


def _ensure(own: gcloud.Slice) -> bool:
  """Has the slice there; returns whether it is a new one."""
  new = False
  said = ""
  while (found := _state(own)) != "ACTIVE":
    if found in GONE:
      _ask(gcloud.delete(own))
      found = ""
    if not found:
      _ask(gcloud.create(own))
      new = True
      if DRY_RUN.value:
        break
    elif found != said:
      print(f"{own.accelerator} in {own.zone}: {found}", flush=True)
      said = found
    time.sleep(POLL_S.value)
    # A slice that comes while this waits has nothing on it, whoever asked.
    new = True
  return new


def _state(own: gcloud.Slice) -> str:
  """Of the request; "": there is none."""
  try:
    return _ask(gcloud.state(own), quiet=True)
  except Failed as error:
    if "NOT_FOUND" in str(error) or "not found" in str(error):
      return ""
    raise


def copy(own: gcloud.Slice, job: list[str]) -> None:
  """Copies the files that git sees to all workers, and installs them."""
  del job
  listed = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT,
    check=True,
    capture_output=True,
    text=True,
  ).stdout
  files = [name for name in listed.splitlines() if (ROOT / name).is_file()]
  with tempfile.TemporaryDirectory() as folder:
    archive = os.path.join(folder, ARCHIVE)
    if not DRY_RUN.value:
      subprocess.run(
        ["tar", "-czf", archive, "-T", "-"],
        cwd=ROOT,
        check=True,
        input="\n".join(files),
        text=True,
      )
    _ask(gcloud.copy(own, [archive], ARCHIVE))
  _ask(gcloud.ssh(own, INSTALL))


def run(own: gcloud.Slice, job: list[str]) -> None:
  """Starts the job on all workers; an earlier one is ended, and waited for."""
  _ask(gcloud.ssh(own, start_command(job)))


def start_command(job: list[str]) -> str:
  """What starts a job on a worker, as a line of shell.

  An earlier one gets SIGTERM, and `STOP_S` seconds to end its step and save. A
  run that was stopped before its last step is not done, though it ends well.
  """
  command = shlex.join(["-m", *job, "--distributed"])
  inner = (
    f"$HOME/{ENVIRONMENT}/bin/python {command} > $HOME/{LOG} 2>&1; code=$?; "
    f'grep -q "{STOPPED}" $HOME/{LOG} && code=stopped; '
    f"echo $code > $HOME/{EXIT}"
  )
  return (
    f"if [ -f {PID} ]; then group=$(cat {PID}); "
    "kill -TERM -- -$group 2>/dev/null; "
    f"for second in $(seq {STOP_S}); do "
    "kill -0 -- -$group 2>/dev/null || break; sleep 1; done; "
    "kill -KILL -- -$group 2>/dev/null; fi; "
    f"rm -f {EXIT} {PID}; cd {CODE} || exit 1; "
    f"nohup setsid bash -c {shlex.quote(inner)} </dev/null >/dev/null 2>&1 & "
    f"echo $! > $HOME/{PID}"
  )


def logs(own: gcloud.Slice, job: list[str]) -> None:
  """Follows a worker's log until interrupted."""
  del job
  command = gcloud.ssh(own, f"tail -n 100 -F {LOG}", str(WORKER.value))
  print(shlex.join(command), flush=True)
  if not DRY_RUN.value:
    subprocess.run(command, check=False)


def status(own: gcloud.Slice, job: list[str]) -> None:
  """Prints the request's state, and each worker's."""
  del job
  print(_state(own) or "there is no such slice", flush=True)
  print(_ask(gcloud.ssh(own, STATUS)), flush=True)


def _progress(own: gcloud.Slice) -> str:
  """What the run does, on all workers together.

  Returns:
    `running`, `done`, `failed`, `preempted`, or `gone`: nothing runs.

  Raises:
    Failed: the slice is there, and cannot be asked.
  """
  if _state(own) != "ACTIVE":
    return "preempted"
  workers = _ask(gcloud.ssh(own, STATUS), quiet=True).split()
  if "running" in workers:  # The others of a failed one end by themselves.
    return "running"
  if workers and set(workers) == {"0"}:
    return "done"
  return "gone" if set(workers) <= {"gone", "stopped", "0"} else "failed"


def delete(own: gcloud.Slice, job: list[str]) -> None:
  """Gives the slice back."""
  del job
  _ask(gcloud.delete(own))


def _ask(command: gcloud.Command, quiet: bool = False) -> str:
  """Prints a command, runs it, and returns what it said.

  Args:
    command: of `gcloud.py`.
    quiet: not printed, for those that come every minute.

  Raises:
    Failed: it failed.
  """
  if DRY_RUN.value or not quiet:
    print(shlex.join(command), flush=True)
  if DRY_RUN.value:
    return ""
  try:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
  except FileNotFoundError:
    raise Failed(
      "there is no gcloud here: expected cloud.google.com/sdk to be installed"
    ) from None
  if done.returncode:
    raise Failed(f"{shlex.join(command)}\n{done.stderr.strip()[-2000:]}")
  return done.stdout.strip()


if __name__ == "__main__":
  app.run(main)
