"""The gcloud commands that a run on a TPU slice needs, as lists of arguments.

Nothing is run here. Reference: cloud.google.com/sdk/gcloud/reference, for
`compute tpus queued-resources`, `compute tpus tpu-vm`, `quotas info` and
`storage buckets`.
"""

import dataclasses
import re
from collections.abc import Sequence

Command = list[str]

# Of a slice's name: runtime, and quota on demand and spot. Slices of v5e up to
# eight chips count as serving.
_KINDS = {
  "v5litepod": ("v2-alpha-tpuv5-lite", "TPUV5s{}Litepod{}"),
  "v5p": ("v2-alpha-tpuv5", "TPUV5P{}{}"),
  "v6e": ("v2-alpha-tpuv6e", "TPUV6E{}{}"),
  "v4": ("tpu-ubuntu2204-base", ""),
}
_ACCELERATOR = re.compile(r"(v5litepod|v5p|v6e|v4)-(\d+)")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")
_SERVING_CHIPS = 8


@dataclasses.dataclass(frozen=True)
class Slice:
  """A slice to rent.

  Attributes:
    name: of the queued resource and of its node.
    project: that pays.
    zone: where.
    accelerator: as Google names it, such as `v5litepod-64`: v5litepod-N and
      v6e-N have N chips, v5p-N and v4-N half as many.
    spot: cheaper, and taken away when somebody pays more.
    runtime: software version; "": what fits the accelerator.
    service_account: that the machines act as; "": the project's own.
    network: that they are in; "": the project's default.
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
    """Raises ValueError for what cannot be rented, before anything is asked."""
    for key, pattern, expected in (
      ("name", _NAME, "small letters, digits and dashes"),
      ("zone", _ZONE, "a zone such as us-west4-a"),
      ("accelerator", _ACCELERATOR, "v5litepod-N, v5p-N, v6e-N or v4-N"),
    ):
      value = str(dataclasses.asdict(self)[key])
      if not pattern.fullmatch(value):
        raise ValueError(f"--{key}={value}: expected {expected}")
    if not self.project:
      raise ValueError("--project=: expected the project that pays")

  @property
  def kind(self) -> str:
    """`v5litepod`, `v5p`, `v6e` or `v4`."""
    return self.accelerator.rpartition("-")[0]

  @property
  def size(self) -> int:
    """The number in the accelerator's name, which quotas count in."""
    return int(self.accelerator.rpartition("-")[2])

  @property
  def region(self) -> str:
    """Of the zone."""
    return self.zone.rpartition("-")[0]

  @property
  def software(self) -> str:
    """The runtime version."""
    return self.runtime or _KINDS[self.kind][0]

  @property
  def quota(self) -> str:
    """The id of the quota that the slice is counted in; "": not known."""
    form = _KINDS[self.kind][1]
    serving = self.kind == "v5litepod" and self.size <= _SERVING_CHIPS
    name = form.format(
      "Preemptible" if self.spot else "", "Serving" if serving else ""
    )
    return f"{name}PerProjectPerZoneForTPUAPI" if form else ""


def _at(own: Slice) -> list[str]:
  return [f"--zone={own.zone}", f"--project={own.project}"]


def account() -> Command:
  """Prints who is logged in."""
  return [
    "gcloud",
    "auth",
    "list",
    "--filter=status:ACTIVE",
    "--format=value(account)",
  ]


def accelerator(own: Slice) -> Command:
  """Fails where the zone has no such accelerator."""
  return [
    *("gcloud", "compute", "tpus", "accelerator-types", "describe"),
    own.accelerator,
    *_at(own),
  ]


def runtime(own: Slice) -> Command:
  """Fails where the zone has no such software."""
  return [
    *("gcloud", "compute", "tpus", "tpu-vm", "versions", "describe"),
    own.software,
    *_at(own),
  ]


def quota(own: Slice) -> Command:
  """Prints the quota that the slice is counted in, as JSON."""
  return [
    *("gcloud", "quotas", "info", "describe", own.quota),
    "--service=tpu.googleapis.com",
    f"--project={own.project}",
    "--format=json",
  ]


def bucket(name: str) -> Command:
  """Prints where a bucket is; fails where there is none."""
  return [
    *("gcloud", "storage", "buckets", "describe", f"gs://{name}"),
    "--format=value(location)",
  ]


def create(own: Slice) -> Command:
  """Asks for the slice; it comes when there is one."""
  return [
    *("gcloud", "compute", "tpus", "queued-resources", "create", own.name),
    f"--node-id={own.name}",
    f"--accelerator-type={own.accelerator}",
    f"--runtime-version={own.software}",
    *_at(own),
    *(["--spot"] if own.spot else []),
    *([f"--service-account={own.service_account}"] * bool(own.service_account)),
    *([f"--network={own.network}"] * bool(own.network)),
  ]


def state(own: Slice) -> Command:
  """Prints the state of the request; fails where there is none."""
  return [
    *("gcloud", "compute", "tpus", "queued-resources", "describe", own.name),
    *_at(own),
    "--format=value(state.state)",
  ]


def delete(own: Slice) -> Command:
  """Deletes the machines, and then the request."""
  return [
    *("gcloud", "compute", "tpus", "queued-resources", "delete", own.name),
    *_at(own),
    "--force",
    "--quiet",
  ]


def ssh(own: Slice, command: str, worker: str = "all") -> Command:
  """Runs a shell command on one worker or all."""
  return [
    *("gcloud", "compute", "tpus", "tpu-vm", "ssh", own.name),
    *_at(own),
    f"--worker={worker}",
    f"--command={command}",
  ]


def copy(own: Slice, files: Sequence[str], target: str) -> Command:
  """Copies files to all workers."""
  return [
    *("gcloud", "compute", "tpus", "tpu-vm", "scp", *files),
    f"{own.name}:{target}",
    *_at(own),
    "--worker=all",
  ]
