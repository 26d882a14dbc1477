"""Builds the gcloud commands for a run on a TPU slice.

This module runs no command. Not every SDK has all commands and flags in its
main track: some are only in `gcloud beta` or `gcloud alpha`. Such commands are
marked `probed`, and `sdk.py` asks the installed SDK.
"""

import dataclasses
from collections.abc import Sequence

from tpu_slice import IAP, INTERNAL, Slice


@dataclasses.dataclass(frozen=True)
class Command:
  """A gcloud command.

  Attributes:
    path: the words that name the command, such as `auth list`.
    arguments: the arguments after them.
    track: the track that has the command with these flags in SDK 528: "",
      `beta` or `alpha`. Used if no SDK is installed.
    probed: whether to ask the SDK for the track.
  """

  path: tuple[str, ...]
  arguments: tuple[str, ...] = ()
  track: str = ""
  probed: bool = False

  @property
  def flags(self) -> frozenset[str]:
    """The names of the command's flags."""
    words = (word.partition("=")[0] for word in self.arguments)
    return frozenset(word for word in words if word.startswith("--"))

  def argv(self, track: str | None = None) -> list[str]:
    """Returns the command line in a track. None means the command's own."""
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
  """Returns the command that requests the slice, which is created later."""
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
    # The only kind of capacity that Google Cloud reclaims by itself.
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
  """Returns the command that prints why a request failed."""
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
  """Returns the command that runs a shell command on one or all workers."""
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
  """Returns a `tpu-vm` command that connects to the machines."""
  way = {IAP: ["--tunnel-through-iap"], INTERNAL: ["--internal-ip"]}
  return Command(
    _tpus(f"tpu-vm {verb}"),
    (*names, *_location(tpu), *way.get(tpu.connect, []), *flags),
    track="alpha" if tpu.connect == IAP else "",
    probed=tpu.connect == IAP,
  )
