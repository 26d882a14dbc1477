"""Free memory of hosts and control groups, and out-of-memory errors."""

import types

import jax.numpy as jnp
import pytest

from azr_jax.cli import errors
from azr_jax.parallel import memory

GIB = 1 << 30


def write(folder, files):
  folder.mkdir(parents=True, exist_ok=True)
  for name, text in files.items():
    (folder / name).write_text(f"{text}\n")


@pytest.fixture(name="host")
def make_host(tmp_path):
  """Returns the two folders of a host with 24 GiB, 20 of them available."""
  proc, groups = tmp_path / "proc", tmp_path / "cgroup"
  kib = GIB >> 10
  lines = f"MemTotal: {24 * kib} kB\nMemAvailable: {20 * kib} kB"
  write(proc, {"meminfo": lines})
  groups.mkdir()
  return proc, groups


def test_a_host_without_control_groups_has_what_is_available(host):
  assert memory.host_bytes(*host) == 20 * GIB


@pytest.mark.parametrize("own, where", [("/job/step", "job"), ("/", "")])
def test_version_2_takes_the_tightest_group_above_the_process(host, own, where):
  """Inactive file pages count as free."""
  proc, groups = host
  write(proc / "self", {"cgroup": f"0::{own}"})
  write(groups / own[1:], {"memory.max": "max"})
  files = {
    "memory.max": 8 * GIB,
    "memory.current": 5 * GIB,
    "memory.stat": f"anon {4 * GIB}\ninactive_file {GIB}",
  }
  write(groups / where, files)
  assert memory.host_bytes(proc, groups) == 4 * GIB


def test_version_1_has_a_tree_for_memory(host):
  proc, groups = host
  write(proc / "self", {"cgroup": "5:cpu,cpuacct:/x\n4:memory:/job\n0::/"})
  files = {
    "memory.limit_in_bytes": 3 * GIB,
    "memory.usage_in_bytes": GIB,
    "memory.stat": f"total_inactive_file {GIB // 2}",
  }
  write(groups / "memory" / "job", files)
  assert memory.host_bytes(proc, groups) == 2.5 * GIB


def test_devices_of_a_cpu_share_the_host(monkeypatch):
  monkeypatch.setattr(memory, "host_bytes", lambda proc, groups: 16 * GIB)
  assert memory.available_bytes() == 2 * GIB  # The tests have 8 devices.


def test_exhausted_memory_is_one_line_with_numbers_and_keys():
  with (
    pytest.raises(MemoryError) as caught,
    memory.explained(memory.SAMPLING_KEYS),
  ):
    jnp.zeros(1 << 45).block_until_ready()
  line = errors._text(caught.value)
  assert "\n" not in line and "an array needs 131072 GiB" in line
  assert "GiB are available: lower config.rollout.slots" in line


def test_exhausted_memory_that_nobody_explains_is_no_bug():
  with pytest.raises(Exception, match="RESOURCE_EXHAUSTED") as caught:
    jnp.zeros(1 << 45).block_until_ready()
  assert errors._is_users(caught.value)
  line = errors._text(caught.value)
  assert line.startswith("out of memory: ") and "\n" not in line


@pytest.mark.parametrize(
  "stats, available",
  [
    ([{}, {}], None),
    ([{}, {"bytes_limit": 5 * GIB, "bytes_in_use": GIB}], 4 * GIB),
    ([{"bytes_limit": GIB, "bytes_in_use": GIB}, {}], 0),  # A full device.
  ],
)
def test_unknown_memory_is_not_an_empty_device(monkeypatch, stats, available):
  devices = [
    types.SimpleNamespace(platform="tpu", memory_stats=lambda s=s: s)
    for s in stats
  ]
  monkeypatch.setattr(memory.jax, "local_devices", lambda: devices)
  assert memory.available_bytes() == available


@pytest.mark.parametrize(
  "text, left, line",
  [
    (  # TPU
      "Error allocating device buffer: Attempting to allocate 16.00G. That was "
      "not possible. There are 3.45G free.; (0x0x0_HBM0): while running",
      None,
      "an array needs 16 GiB on each device, but 3.45 GiB are available",
    ),
    (
      "Attempting to reserve 512.5M at the bottom of memory. That was not "
      "possible. There are 256.0M free",
      None,
      "an array needs 0.5 GiB on each device, but 0.25 GiB are available",
    ),
    (  # GPU
      "Out of memory while trying to allocate 8.00GiB.",
      4 * GIB,
      "an array needs 8 GiB on each device, but 4 GiB are available",
    ),
    (
      "Failed to allocate request for 8.00GiB (8589934592B) on device ordinal",
      4 * GIB,
      "an array needs 8 GiB on each device, but 4 GiB are available",
    ),
    # Memory was freed after the failure.
    (
      "Out of memory while trying to allocate 1073741824 bytes.",
      2 * GIB,
      "out of memory: Out of memory while trying to allocate 1073741824 bytes.",
    ),
    ("", None, "out of memory"),
    ("\n", None, "out of memory"),
  ],
)
def test_the_line_has_the_numbers_of_each_device(monkeypatch, text, left, line):
  monkeypatch.setattr(memory, "_available_here", lambda: left)
  error = memory.jax.errors.JaxRuntimeError(f"RESOURCE_EXHAUSTED: {text}")
  with pytest.raises(MemoryError) as caught, memory.explained("keys"):
    raise error
  found, _, advice = str(caught.value).rpartition("lower keys")
  assert (found.rstrip(":; "), advice) == (line, "")
  assert errors._text(error).startswith("out of memory")


def test_a_compiler_gives_its_own_numbers():
  error = memory.jax.errors.JaxRuntimeError(
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in "
    "memory space hbm. Used 20.1G of 15.48G hbm.\nLargest program allocations"
  )
  with pytest.raises(MemoryError, match=r"Used 20.1G of 15.48G.*; lower keys$"):
    with memory.explained("keys"):
      raise error


def test_other_errors_of_a_device_stay_as_they_are():
  error = memory.jax.errors.JaxRuntimeError("INTERNAL: x")
  with pytest.raises(memory.jax.errors.JaxRuntimeError, match="INTERNAL"):
    with memory.explained("keys"):
      raise error
