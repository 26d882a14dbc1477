"""Measures free device memory and explains out-of-memory errors.

CPU devices share the host's free memory, or what their control group allows.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from azr_jax.parallel import chips
from azr_jax.parallel.chips import GIB

# The keys to lower when sampling or an update runs out of memory.
SAMPLING_KEYS = (
  "config.rollout.slots, config.rollout.cache_gib or config.rollout.max_tokens"
)
TRAINING_KEYS = (
  "config.learner.micro_rows, config.learner.chunk_tokens or "
  "config.learner.row_length"
)
_PROC = pathlib.Path("/proc")
_GROUPS = pathlib.Path("/sys/fs/cgroup")
# Control group files: version 2 has one tree, version 1 one per resource.
_LIMIT_FILES = (
  ("", "", "memory.max", "memory.current", "inactive_file"),
  (
    "memory",
    "memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
  ),
)
EXHAUSTED = "RESOURCE_EXHAUSTED"
# Sizes as printed for CPUs and GPUs (1024 bytes, 8.00GiB) and TPUs (16.00G).
_SIZE = r"(\d+(?:\.\d+)?) ?(bytes|[KMGT](?:i?B)?)\b"
_WANTED = re.compile(rf"(?:allocat|reserv)\w*(?: request for)? {_SIZE}")
_FREE = re.compile(rf"There are {_SIZE} free")
_UNKNOWN = np.int32(np.iinfo(np.int32).max)  # More MiB than any device has.

# The part of a GPU that JAX reserves, unless XLA_PYTHON_CLIENT_MEM_FRACTION
# says otherwise.
GPU_FRACTION = 0.75


def available_bytes() -> int | None:
  """Returns the free bytes of a run's fullest device; None if unknown.

  All processes of a run must call it together; all get the same value.
  """
  return least_of_hosts(_available_here())


def least_of_hosts(count: int | None) -> int | None:
  """Returns the smallest count of all processes, rounded down to MiB.

  Args:
    count: this process's count; None if unknown.

  Returns:
    The minimum, or None if no process knows its count.
  """
  mebibytes = _UNKNOWN if count is None else np.int32(count >> 20)
  if jax.process_count() > 1:
    mebibytes = np.min(multihost_utils.process_allgather(mebibytes))
  return None if mebibytes == _UNKNOWN else int(mebibytes) << 20


def device_stats(device: jax.Device) -> dict[str, int]:
  """Returns a device's memory statistics; {} if it has none."""
  try:
    return device.memory_stats() or {}
  except (NotImplementedError, jax.errors.JaxRuntimeError):
    return {}


def capacity_bytes(mesh: Mesh) -> int | None:
  """Returns a device's total memory in bytes, or None if unknown (CPUs).

  All processes of a run must call it together, and all get the same number. The
  mesh may consist of a topology's devices, which do not exist here.
  """
  device = mesh.devices.flat[0]
  if device.platform == "cpu":
    return None
  if device in jax.devices():
    here = device_stats(jax.local_devices()[0]).get("bytes_limit")
    if (least := least_of_hosts(here)) is not None:
      return least
  chip = chips.BY_KIND.get(device.device_kind)
  if chip is None:
    return None
  # JAX reserves only a part of a GPU.
  part = GPU_FRACTION if device.platform == "gpu" else 1.0
  return int(part * chip.hbm_bytes)


def _available_here() -> int | None:
  """Returns the free bytes of this process's fullest device, if known."""
  devices = jax.local_devices()
  if devices[0].platform == "cpu":
    return host_bytes(_PROC, _GROUPS) // len(devices)
  left = [
    max(0, stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    for stats in map(device_stats, devices)
    if stats.get("bytes_limit")
  ]
  return min(left, default=None)


def host_bytes(proc: pathlib.Path, groups: pathlib.Path) -> int:
  """Returns the bytes of host memory that this process can still allocate.

  Args:
    proc: the path of /proc.
    groups: the path of /sys/fs/cgroup.
  """
  try:
    lines = (proc / "meminfo").read_text().splitlines()
  except OSError:  # Not Linux: the memory use of other programs is unknown.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  values = {
    name: int(rest.split()[0])
    for name, _, rest in (line.partition(":") for line in lines)
  }
  return min([values["MemAvailable"] << 10, *_group_bytes(proc, groups)])


def _group_bytes(proc: pathlib.Path, groups: pathlib.Path) -> Iterator[int]:
  """Yields the bytes left in each of this process's control groups."""
  try:
    lines = (proc / "self" / "cgroup").read_text().splitlines()
  except OSError:
    return
  for line in lines:
    _, kinds, own = line.split(":", 2)
    for kind, tree, limit_file, usage_file, cached in _LIMIT_FILES:
      if kind not in kinds.split(","):
        continue
      # In a container, the root of the tree may be its own group.
      own_path = pathlib.PurePosixPath(own.lstrip("/"))
      for folder in (own_path, *own_path.parents):
        place = groups / tree / folder
        try:
          limit = (place / limit_file).read_text().strip()
          usage = int((place / usage_file).read_text())
          stat = (place / "memory.stat").read_text().split()
        except OSError:
          continue
        if limit != "max":
          # The kernel frees inactive file pages when memory runs short.
          reclaimable = (
            int(stat[stat.index(cached) + 1]) if cached in stat else 0
          )
          yield max(0, int(limit) - usage + reclaimable)


def too_little(
  what: str, needed: float, available: float, advice: str
) -> MemoryError:
  """Returns the one-line error about a device with too little memory.

  Args:
    what: what needs the memory; the subject of the sentence.
    needed: bytes needed on each device.
    available: bytes free on each device.
    advice: which keys to change, or other help.
  """
  return MemoryError(
    f"{what} needs {_gib(needed)} GiB on each device, but {_gib(available)} "
    f"GiB are available: {advice}"
  )


def _gib(count: float) -> str:
  """Formats bytes as GiB, with three significant digits."""
  gib = count / GIB
  return f"{gib:.0f}" if gib >= 100 else f"{gib:.3g}"


@contextlib.contextmanager
def explained(keys: str) -> Iterator[None]:
  """Turns XLA's out-of-memory error into one line.

  Args:
    keys: the keys to lower, for the message.

  Raises:
    MemoryError: a device ran out of memory.
  """
  try:
    yield
  except jax.errors.JaxRuntimeError as error:
    if EXHAUSTED not in str(error):
      raise
    raise _explanation(str(error), keys) from None


def _explanation(text: str, keys: str) -> MemoryError:
  """Returns the error with the numbers in XLA's message, or quotes XLA."""
  wanted, free = _WANTED.search(text), _FREE.search(text)
  if wanted is not None:
    needed = _bytes(wanted)
    # Other hosts may be fine and would not take part in an exchange.
    available = _bytes(free) if free else _available_here()
    # Memory may have been freed since the failure, or be fragmented.
    if available is not None and available < needed:
      return too_little("an array", needed, available, f"lower {keys}")
  return MemoryError(f"{out_of_memory(text)}; lower {keys}")


def out_of_memory(text: str) -> str:
  """Returns the first line of XLA's out-of-memory error.

  Args:
    text: the error, which contains RESOURCE_EXHAUSTED.
  """
  lines = text.partition(EXHAUSTED)[2].strip(": \n").splitlines()
  return ": ".join(["out of memory", *lines[:1]])


def _bytes(size: re.Match) -> float:
  """Returns the bytes of a `_SIZE` match."""
  number, unit = size.groups()
  power = 0 if unit == "bytes" else "KMGT".index(unit[0]) + 1
  return float(number) * 1024**power
