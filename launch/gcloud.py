"""Builds the gcloud commands for a run on a TPU slice.

This module runs no command. Not every command and flag is in the main track of
every SDK: some are in `gcloud beta` or `gcloud alpha` alone. Such a command is
marked as `probed`, and `sdk.py` asks the SDK that is there.
"""

import dataclasses
from collections.abc import Sequence

from tpu_slice import IAP, INTERNAL, Slice


@dataclasses.dataclass(frozen=True)
class Command:
  """A gcloud command.

  Attributes:
    path: the words that name it, such as `auth list`.
    arguments: what follows them.
    track: where SDK 528 has it with these flags: "", `beta` or `alpha`. It is
      taken if no SDK is there to be asked.
    probed: whether the SDK is asked for the track.
  """

  path: tuple[str, ...]
  arguments: tuple[str, ...] = ()
  track: str = ""
  probed: bool = False

  @property
  def flags(self) -> frozenset[str]:
    """The names of its flags."""
    words = (word.partition("=")[0] for word in self.arguments)
    return frozenset(word for word in words if word.startswith("--"))

  def argv(self, track: str | None = None) -> list[str]:
    """Returns the command line of a track; None: of its own."""
    track = self.track if track is None else track
    return ["gcloud", *([track] * bool(track)), *self.path, *self.arguments]


def _tpus(name: str) -> tuple[str, ...]:
  return ("compute", "tpus", *name.split())


def _location(tpu: Slice) -> list[str]:
  return [f"--zone={tpu.zone}", f"--project={tpu.project}"]


def account() -> Command:
  """Returns the command that prints the account that is logged in."""
  return Command(
    ("auth", "list"), ("--filter=status:ACTIVE", "--format=value(account)")
  )


def accelerator(tpu: Slice) -> Command:
  """Returns the command that fails if the zone lacks the accelerator."""
  path = _tpus("accelerator-types describe")
  return Command(path, (tpu.accelerator, *_location(tpu)))


def runtime(tpu: Slice) -> Command:
  """Returns the command that fails if the zone lacks the runtime version."""
  path = _tpus("tpu-vm versions describe")
  return Command(path, (tpu.software, *_location(tpu)))


def quota(tpu: Slice) -> Command:
  """Returns the command that prints the quota of the slice as JSON."""
  return Command(
    ("quotas", "info", "describe"),
    (
      tpu.quota,
      "--service=tpu.googleapis.com",
      f"--project={tpu.project}",
      "--format=json",
    ),
    track="beta",
    probed=True,
  )


def bucket(name: str) -> Command:
  """Returns the command that prints a bucket's location, or fails."""
  return Command(
    ("storage", "buckets", "describe"),
    (f"gs://{name}", "--format=value(location)"),
  )


def create(tpu: Slice) -> Command:
  """Returns the command that requests the slice; it is created later."""
  settings = {
    "node-id": tpu.name,
    "accelerator-type": tpu.accelerator,
    "runtime-version": tpu.software,
    "service-account": tpu.service_account,
    "network": tpu.network,
    "subnetwork": tpu.subnetwork,
    "labels": tpu.labels,
    "valid-until-duration": tpu.valid_until_duration,
    "max-run-duration": tpu.max_run_duration,
    # The only kind of capacity that Google Cloud takes back by itself.
    "provisioning-model": "flex-start" if tpu.max_run_duration else "",
  }
  switches = {
    "--spot": tpu.spot,
    "--reserved": tpu.reserved,
    "--internal-ips": tpu.connect in (IAP, INTERNAL),
  }
  return Command(
    _tpus("queued-resources create"),
    (
      tpu.name,
      *_location(tpu),
      *(f"--{key}={value}" for key, value in settings.items() if value),
      *(name for name, is_on in switches.items() if is_on),
      *tpu.create_flags,
    ),
    track="alpha" if tpu.max_run_duration else "",
    probed=True,
  )


def state(tpu: Slice) -> Command:
  """Returns the command that prints the state of the request, or fails."""
  return _describe(tpu, "value(state.state)")


def failure(tpu: Slice) -> Command:
  """Returns the command that prints why a request has failed."""
  return _describe(tpu, "value(state.failedData.error.message)")


def _describe(tpu: Slice, form: str) -> Command:
  path = _tpus("queued-resources describe")
  return Command(path, (tpu.name, *_location(tpu), f"--format={form}"))


def count(tpu: Slice) -> Command:
  """Returns the command that prints the number of the slice's machines."""
  return Command(
    _tpus("tpu-vm describe"),
    (tpu.name, *_location(tpu), "--format=value(networkEndpoints.len())"),
  )


def delete(tpu: Slice) -> Command:
  """Returns the command that deletes the machines and the request."""
  return Command(
    _tpus("queued-resources delete"),
    (tpu.name, *_location(tpu), "--force", "--quiet"),
  )


def ssh(tpu: Slice, command: str, worker: str = "all") -> Command:
  """Returns the command that runs a shell command on one worker or all."""
  return _connected(
    tpu, "ssh", [tpu.name], [f"--worker={worker}", f"--command={command}"]
  )


def copy(tpu: Slice, files: Sequence[str], target: str) -> Command:
  """Returns the command that copies files to all workers."""
  return _connected(
    tpu, "scp", [*files, f"{tpu.name}:{target}"], ["--worker=all"]
  )


def _connected(
  tpu: Slice, verb: str, names: list[str], flags: list[str]
) -> Command:
  """Returns a command of `tpu-vm` that connects to the machines."""
  way = {IAP: ["--tunnel-through-iap"], INTERNAL: ["--internal-ip"]}
  return Command(
    _tpus(f"tpu-vm {verb}"),
    (*names, *_location(tpu), *way.get(tpu.connect, []), *flags),
    track="alpha" if tpu.connect == IAP else "",
    probed=tpu.connect == IAP,
  )
