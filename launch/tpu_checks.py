"""Finds mistakes before a slice has to be paid for."""

import json
import os
import pathlib
import shlex
import subprocess
import sys

import gcloud
from sdk import CommandError, Sdk, warn
from tpu_slice import Slice

_ROOT = pathlib.Path(__file__).parents[1]
# Commands with a flag `--check`.
_CHECKED = tuple(
  f"azr_jax.{name}"
  for name in ("train", "sft", "evaluate", "potential", "trajectories")
)
_KEY = pathlib.Path("~/.ssh/google_compute_engine")


def check(sdk: Sdk, tpu: Slice, bucket: str, job: list[str]) -> None:
  """Checks account, accelerator, software, quota and bucket. Creates nothing.

  A quota that is too small, or cannot be read, is only a warning: the figures
  lag behind, and another quota may apply.

  Args:
    sdk: runs the commands.
    tpu: the slice to rent.
    bucket: the bucket of the workdir; "" allows any.
    job: a module and its flags. If empty, only the slice is checked.

  Raises:
    ValueError: the workdir is not in the bucket.
    CommandError: something is missing in Google Cloud.
  """
  workdir = _workdir(job)
  if job and not workdir.startswith(f"gs://{bucket}/" if bucket else "gs://"):
    raise ValueError(
      f"--workdir={workdir}: expected a folder of a bucket, "
      f"gs://{bucket or 'BUCKET'}/..., which all workers can access and which "
      "outlives the slice"
    )
  if not sdk.run(gcloud.account()) and not sdk.dry_run:
    raise CommandError(
      "no account is logged in: expected `gcloud auth login`", is_final=True
    )
  sdk.run(gcloud.accelerator(tpu))
  sdk.run(gcloud.runtime(tpu))
  if tpu.quota:
    _check_quota(sdk, tpu)
  if bucket := bucket or workdir.removeprefix("gs://").split("/")[0]:
    location = sdk.run(gcloud.bucket(bucket))
    if location and not tpu.region.startswith(location.lower()):
      warn(
        f"the bucket is in {location}, the slice in {tpu.region}: transfers "
        "between regions are slow and cost money"
      )
  if not sdk.dry_run and not tpu.is_one_machine:
    _check_key()


def check_job(job: list[str], dry_run: bool) -> None:
  """Makes a job's command check its flags and config locally, at no cost.

  Args:
    job: a module and its flags. Only known modules are checked.
    dry_run: whether the command is only printed.

  Raises:
    CommandError: the command rejects its flags or config.
  """
  if not job or job[0] not in _CHECKED:
    return
  # `--check` goes first: at the end, a flag without a value would consume it.
  words = ["-m", job[0], "--check", *job[1:]]
  print(f"JAX_PLATFORMS=cpu python {shlex.join(words)}", flush=True)
  if dry_run:
    return
  done = subprocess.run(
    [sys.executable, *words],
    cwd=_ROOT,
    env=os.environ | {"JAX_PLATFORMS": "cpu"},
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode:
    message = done.stderr.strip().removeprefix("error: ")
    raise CommandError(f"{job[0]}: {message}", is_final=True)


def _check_quota(sdk: Sdk, tpu: Slice) -> None:
  """Warns if the quota is smaller than the slice, or cannot be read."""
  try:
    text = sdk.run(gcloud.quota(tpu))
    limit = _limit(text, tpu.zone) if text else -1
  except (CommandError, ValueError, KeyError, TypeError) as error:
    warn(f"the quota {tpu.quota} cannot be read, so it is not checked: {error}")
    return
  if 0 <= limit < tpu.size:
    warn(
      f"the quota {tpu.quota} allows {limit} in {tpu.zone}, and "
      f"{tpu.accelerator} needs {tpu.size}: if the request is refused, ask for "
      "more (Google Cloud console, IAM, Quotas), or take another zone or a "
      "smaller slice"
    )


def _limit(text: str, zone: str) -> int:
  """Returns the largest limit of a zone in a JSON quota, 0 if it has none."""
  limits = [
    int(quota["details"]["value"])
    for quota in json.loads(text).get("dimensionsInfos", [])
    if zone in quota.get("applicableLocations", [])
    or quota.get("dimensions", {}).get("zone") == zone
  ]
  # A limit of -1 means unlimited.
  return -1 if -1 in limits else max(limits, default=0)


def _check_key() -> None:
  """Rejects an ssh agent that lacks gcloud's key.

  With such an agent, gcloud cannot copy to several machines. Without an agent
  it can.

  Raises:
    CommandError: the agent lacks the key.
  """
  try:
    agent = _output("ssh-add", "-l")
    key = _output("ssh-keygen", "-lf", str(_KEY.expanduser()))
  except FileNotFoundError:
    return
  if agent.returncode not in (0, 1):  # There is no agent.
    return
  if key.returncode or key.stdout.split()[1] not in agent.stdout:
    raise CommandError(
      f"the ssh agent lacks {_KEY}, without which gcloud can only copy to one "
      f"machine: expected `ssh-add {_KEY}` (if the key is missing, create it "
      f"with `ssh-keygen -t rsa -f {_KEY}`)",
      is_final=True,
    )


def _output(*words: str) -> subprocess.CompletedProcess[str]:
  return subprocess.run(
    words,
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    check=False,
  )


def _workdir(job: list[str]) -> str:
  """Returns the job's --workdir, or "" without a job."""
  workdirs = [flag for flag in job if flag.startswith("--workdir=")]
  if job and not workdirs:
    raise ValueError("expected --workdir=gs://... among the flags after --")
  return workdirs[-1].removeprefix("--workdir=") if workdirs else ""
