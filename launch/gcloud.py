"""Builds the gcloud commands for a run on a TPU slice, as lists of arguments.

This module runs no command. Reference: cloud.google.com/sdk/gcloud/reference,
for `compute tpus queued-resources`, `compute tpus tpu-vm`, `quotas info` and
`storage buckets`.
"""

import dataclasses
import re
from collections.abc import Sequence

Command = list[str]

# Chip generation -> (runtime version, template of the quota's id). The template
# takes "Preemptible" for spot slices and "Serving" for small slices of v5e; ""
# means that the quota's id is unknown.
_GENERATIONS = {
  "v5litepod": ("v2-alpha-tpuv5-lite", "TPUV5s{}Litepod{}"),
  "v5p": ("v2-alpha-tpuv5", "TPUV5P{}{}"),
  "v6e": ("v2-alpha-tpuv6e", "TPUV6E{}{}"),
  "v4": ("tpu-ubuntu2204-base", ""),
}
_ACCELERATOR = re.compile(r"(v5litepod|v5p|v6e|v4)-(\d+)")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")
_MAX_SERVING_CHIPS = 8  # slices of v5e up to this size count as serving


@dataclasses.dataclass(frozen=True)
class Slice:
  """A TPU slice to rent.

  Attributes:
    name: the name of the queued resource and of its node.
    project: the Google Cloud project that pays.
    zone: the zone of the slice.
    accelerator: its type, such as `v5litepod-64`: v5litepod-N and v6e-N have N
      chips, v5p-N and v4-N have N / 2.
    spot: whether it is a spot slice: cheaper, but it may be preempted.
    runtime: the software version; "": the accelerator's usual one.
    service_account: the machines' service account; "": the project's default.
    network: the machines' network; "": the project's default.
  """

  name: str
  project: str
  zone: str
  accelerator: str
  spot: bool = False
  runtime: str = ""
  service_account: str = ""
  network: str = ""

  def check(self) -> None:
    """Raises ValueError for values that Google Cloud would refuse."""
    for key, pattern, expected in (
      ("name", _NAME, "lower-case letters, digits and dashes"),
      ("zone", _ZONE, "a zone such as us-west4-a"),
      ("accelerator", _ACCELERATOR, "v5litepod-N, v5p-N, v6e-N or v4-N"),
    ):
      value = str(dataclasses.asdict(self)[key])
      if not pattern.fullmatch(value):
        raise ValueError(f"--{key}={value}: expected {expected}")
    if not self.project:
      raise ValueError("--project=: expected the project that pays")

  @property
  def generation(self) -> str:
    """The chip generation: `v5litepod`, `v5p`, `v6e` or `v4`."""
    return self.accelerator.rpartition("-")[0]

  @property
  def size(self) -> int:
    """The number in the accelerator's name, the unit of quotas."""
    return int(self.accelerator.rpartition("-")[2])

  @property
  def region(self) -> str:
    """The region of the zone."""
    return self.zone.rpartition("-")[0]

  @property
  def software(self) -> str:
    """The runtime version."""
    return self.runtime or _GENERATIONS[self.generation][0]

  @property
  def quota(self) -> str:
    """The id of the quota that limits the slice; "" if it is unknown."""
    template = _GENERATIONS[self.generation][1]
    serving = self.generation == "v5litepod" and self.size <= _MAX_SERVING_CHIPS
    name = template.format(
      "Preemptible" if self.spot else "", "Serving" if serving else ""
    )
    return f"{name}PerProjectPerZoneForTPUAPI" if template else ""


def _location(tpu: Slice) -> list[str]:
  return [f"--zone={tpu.zone}", f"--project={tpu.project}"]


def account() -> Command:
  """Returns the command that prints the account that is logged in."""
  return [
    "gcloud",
    "auth",
    "list",
    "--filter=status:ACTIVE",
    "--format=value(account)",
  ]


def accelerator(tpu: Slice) -> Command:
  """Returns the command that fails if the zone lacks the accelerator."""
  return [
    *("gcloud", "compute", "tpus", "accelerator-types", "describe"),
    tpu.accelerator,
    *_location(tpu),
  ]


def runtime(tpu: Slice) -> Command:
  """Returns the command that fails if the zone lacks the runtime version."""
  return [
    *("gcloud", "compute", "tpus", "tpu-vm", "versions", "describe"),
    tpu.software,
    *_location(tpu),
  ]


def quota(tpu: Slice) -> Command:
  """Returns the command that prints the quota of the slice as JSON."""
  return [
    *("gcloud", "quotas", "info", "describe", tpu.quota),
    "--service=tpu.googleapis.com",
    f"--project={tpu.project}",
    "--format=json",
  ]


def bucket(name: str) -> Command:
  """Returns the command that prints a bucket's location, or fails."""
  return [
    *("gcloud", "storage", "buckets", "describe", f"gs://{name}"),
    "--format=value(location)",
  ]


def create(tpu: Slice) -> Command:
  """Returns the command that requests the slice; it is created later."""
  return [
    *("gcloud", "compute", "tpus", "queued-resources", "create", tpu.name),
    f"--node-id={tpu.name}",
    f"--accelerator-type={tpu.accelerator}",
    f"--runtime-version={tpu.software}",
    *_location(tpu),
    *(["--spot"] if tpu.spot else []),
    *([f"--service-account={tpu.service_account}"] * bool(tpu.service_account)),
    *([f"--network={tpu.network}"] * bool(tpu.network)),
  ]


def state(tpu: Slice) -> Command:
  """Returns the command that prints the state of the request, or fails."""
  return [
    *("gcloud", "compute", "tpus", "queued-resources", "describe", tpu.name),
    *_location(tpu),
    "--format=value(state.state)",
  ]


def delete(tpu: Slice) -> Command:
  """Returns the command that deletes the machines and the request."""
  return [
    *("gcloud", "compute", "tpus", "queued-resources", "delete", tpu.name),
    *_location(tpu),
    "--force",
    "--quiet",
  ]


def ssh(tpu: Slice, command: str, worker: str = "all") -> Command:
  """Returns the command that runs a shell command on one worker or all."""
  return [
    *("gcloud", "compute", "tpus", "tpu-vm", "ssh", tpu.name),
    *_location(tpu),
    f"--worker={worker}",
    f"--command={command}",
  ]


def copy(tpu: Slice, files: Sequence[str], target: str) -> Command:
  """Returns the command that copies files to all workers."""
  return [
    *("gcloud", "compute", "tpus", "tpu-vm", "scp", *files),
    f"{tpu.name}:{target}",
    *_location(tpu),
    "--worker=all",
  ]
