"""Measures free device memory, and makes the error when it is too little.

CPU devices share the free memory of the host, or what its control group allows.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

GIB = 1 << 30
# Keys to lower when sampling or an update runs out of memory.
SAMPLING_KEYS = (
  "config.rollout.slots, config.rollout.cache_gib or config.rollout.max_tokens"
)
TRAINING_KEYS = (
  "config.learner.micro_rows, config.learner.chunk_tokens or "
  "config.learner.row_length"
)
_PROC = pathlib.Path("/proc")
_GROUPS = pathlib.Path("/sys/fs/cgroup")
# Control groups: version 2 has one tree, version 1 has one per resource.
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
_EXHAUSTED = "RESOURCE_EXHAUSTED"
_WANTED = re.compile(r"allocat\w* (\d+)(?: bytes)?")


def available_bytes() -> int:
  """Returns the free bytes of the fullest device of a run; 0 if unknown.

  All processes of a run must call it together, and get the same number.
  """
  return least_of_hosts(_available_here())


def least_of_hosts(count: int) -> int:
  """Returns the smallest count of all processes, rounded down to MiB."""
  mebibytes = np.int32(count >> 20)
  if jax.process_count() > 1:
    mebibytes = np.min(multihost_utils.process_allgather(mebibytes))
  return int(mebibytes) << 20


def device_stats(device: jax.Device) -> dict[str, int]:
  """Returns a device's memory statistics; {} where it has none."""
  try:
    return device.memory_stats() or {}
  except (NotImplementedError, jax.errors.JaxRuntimeError):
    return {}


def _available_here() -> int:
  """Returns the free bytes of the fullest device of this process."""
  devices = jax.local_devices()
  if devices[0].platform == "cpu":
    return host_bytes(_PROC, _GROUPS) // len(devices)
  stats = [device_stats(device) for device in devices]
  return max(
    0,
    min(s.get("bytes_limit", 0) - s.get("bytes_in_use", 0) for s in stats),
  )


def host_bytes(proc: pathlib.Path, groups: pathlib.Path) -> int:
  """Returns the bytes of host memory that this process can still allocate.

  Args:
    proc: the path /proc.
    groups: the path /sys/fs/cgroup.
  """
  try:
    lines = (proc / "meminfo").read_text().splitlines()
  except OSError:  # Not Linux: the use of other programs is unknown.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  values = {
    name: int(rest.split()[0])
    for name, _, rest in (line.partition(":") for line in lines)
  }
  return min([values["MemAvailable"] << 10, *_group_bytes(proc, groups)])


def _group_bytes(proc: pathlib.Path, groups: pathlib.Path) -> Iterator[int]:
  """Yields the bytes that each control group of this process still allows."""
  try:
    lines = (proc / "self" / "cgroup").read_text().splitlines()
  except OSError:
    return
  for line in lines:
    _, kinds, own = line.split(":", 2)
    for kind, tree, limit_file, usage_file, cached in _LIMIT_FILES:
      if kind not in kinds.split(","):
        continue
      # A container may show its own group as the root of the tree.
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
    what: what needs the memory, the subject of the sentence.
    needed: needed bytes on each device.
    available: free bytes on each device.
    advice: which keys to change, or what else helps.
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
    keys: the keys to lower.

  Raises:
    MemoryError: a device ran out of memory.
  """
  try:
    yield
  except jax.errors.JaxRuntimeError as error:
    if _EXHAUSTED not in str(error):
      raise
    wanted = _WANTED.search(str(error))
    if wanted is None:  # A compiler's message has its own numbers.
      text = str(error).partition(_EXHAUSTED)[2].strip(": ").splitlines()[0]
      raise MemoryError(f"out of memory: {text}; lower {keys}") from None
    # This host only: others may not have failed, and would not answer.
    raise too_little(
      "an array", int(wanted[1]), _available_here(), f"lower {keys}"
    ) from None
