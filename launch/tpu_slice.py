"""A TPU slice to rent: its properties, and Google Cloud's names for them."""

import dataclasses
import re

# Chip generation -> (runtime version, template of the quota's id). The template
# takes "Preemptible" for spot slices and "Serving" for small slices of v5e; ""
# means that the quota's id is unknown.
_GENERATIONS = {
  "v5litepod": ("v2-alpha-tpuv5-lite", "TPUV5s{}Litepod{}"),
  "v5p": ("v2-alpha-tpuv5", "TPUV5P{}{}"),
  "v6e": ("v2-alpha-tpuv6e", "TPUV6E{}{}"),
  "v4": ("tpu-ubuntu2204-base", ""),
}
# Generations whose names count two cores per chip.
_COUNTS_CORES = ("v5p", "v4")
_ACCELERATOR = re.compile(r"(v5litepod|v5p|v6e|v4)-(\d+)")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")
_DURATION = re.compile(r"(\d+[smhd])*")
_MAX_SERVING_CHIPS = 8  # slices of v5e up to this size count as serving
# Slices up to this size are a single machine.
_MAX_SINGLE = 8
# How ssh reaches the machines.
EXTERNAL, IAP, INTERNAL = CONNECTIONS = ("external", "iap", "internal")


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
    reserved: whether to use a reservation of the project.
    runtime: the software version; "" for the accelerator's usual one.
    service_account: the machines' service account; "" for the default.
    network: the machines' network; "" for the project's default.
    subnetwork: the machines' subnetwork; "" for the network's in the region.
    connect: `external`: the machines have external addresses; `iap`: they have
      none, and ssh goes through IAP's tunnel; `internal`: they have none, and
      this machine is in their network.
    labels: KEY=VALUE,... labels to split bills by; "" for none.
    max_run_duration: Google Cloud reclaims the slice after this time, such as
      8h; "" for no limit.
    valid_until_duration: the request expires if it is not granted in this time,
      such as 12h; "" for no limit.
    create_flags: additional flags of `queued-resources create`.
  """

  name: str
  project: str
  zone: str
  accelerator: str
  spot: bool = False
  reserved: bool = False
  runtime: str = ""
  service_account: str = ""
  network: str = ""
  subnetwork: str = ""
  connect: str = EXTERNAL
  labels: str = ""
  max_run_duration: str = ""
  valid_until_duration: str = ""
  create_flags: tuple[str, ...] = ()

  def check(self) -> None:
    """Raises ValueError for values that Google Cloud would reject."""
    for key, pattern, expected in (
      ("name", _NAME, "lower-case letters, digits and dashes"),
      ("zone", _ZONE, "a zone such as us-west4-a"),
      ("accelerator", _ACCELERATOR, "v5litepod-N, v5p-N, v6e-N or v4-N"),
      ("max_run_duration", _DURATION, "a time such as 8h or 1d12h"),
      ("valid_until_duration", _DURATION, "a time such as 8h or 1d12h"),
    ):
      value = str(getattr(self, key))
      if not pattern.fullmatch(value):
        raise ValueError(f"--{key}={value}: expected {expected}")
    if not self.project:
      raise ValueError("--project=: expected the project to bill")
    kinds = {
      "--spot": self.spot,
      "--reserved": self.reserved,
      "--max_run_duration": bool(self.max_run_duration),
    }
    if len(chosen := [name for name, is_set in kinds.items() if is_set]) > 1:
      raise ValueError(f"{' and '.join(chosen)}: expected one of them")
    for flag in self.create_flags:
      if not flag.startswith("--"):
        raise ValueError(f"--create_flag={flag}: expected --NAME=VALUE")

  @property
  def generation(self) -> str:
    """The chip generation: `v5litepod`, `v5p`, `v6e` or `v4`."""
    return self.accelerator.rpartition("-")[0]

  @property
  def size(self) -> int:
    """The number in the accelerator's name, the unit of quotas."""
    return int(self.accelerator.rpartition("-")[2])

  @property
  def chips(self) -> int:
    """The number of chips, which are billed."""
    return self.size // 2 if self.generation in _COUNTS_CORES else self.size

  @property
  def is_one_machine(self) -> bool:
    """Whether one machine holds all chips."""
    return self.size <= _MAX_SINGLE

  @property
  def region(self) -> str:
    """The region of the zone: `us-west4` for `us-west4-a`."""
    return self.zone.rpartition("-")[0]

  @property
  def software(self) -> str:
    """The runtime version."""
    return self.runtime or _GENERATIONS[self.generation][0]

  @property
  def quota(self) -> str:
    """The id of the quota that limits the slice, "" if unknown."""
    template = _GENERATIONS[self.generation][1]
    serving = self.generation == "v5litepod" and self.size <= _MAX_SERVING_CHIPS
    name = template.format(
      "Preemptible" if self.spot else "", "Serving" if serving else ""
    )
    return f"{name}PerProjectPerZoneForTPUAPI" if template else ""
