"""Two real processes that exchange, agree, fail and wait for each other."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from azr_jax.parallel.hosts import MESSAGE_BYTES, Hosts

PROGRAM = pathlib.Path(__file__).with_name("hosts_program.py")


def run(scenario, *arguments):
  with socket.socket() as probe:
    probe.bind(("localhost", 0))
    port = probe.getsockname()[1]
  flag = "--xla_force_host_platform_device_count=2"
  processes = [
    subprocess.Popen(
      [sys.executable, PROGRAM, scenario, str(port), str(index)]
      + list(map(str, arguments)),
      env=os.environ | {"XLA_FLAGS": flag},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for index in range(2)
  ]
  ended = [process.communicate(timeout=120) for process in processes]
  found = []
  for output, errors in ended:
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert lines, errors[-3000:]
    found.append(json.loads(lines[-1]))
  return found


def test_two_processes_exchange_and_agree():
  for index, found in enumerate(run("exchange")):
    host = socket.gethostname()
    assert found["devices"] == 4
    assert found["names"] == [host, host]
    assert found["lengths"] == [3, MESSAGE_BYTES + 17]
    assert found["letters"] == ["A", "B"]
    assert found["nothing"] == [0, 0]
    assert found["some"] and not found["none"]
    assert found["same"] is None
    for name in ("differ", "shape"):
      assert found[name].startswith(f"RuntimeError: rows: process 1 ({host})")
    assert found["on_all"] == (
      "ValueError: no room"
      if index
      else f"RuntimeError: claim: process 1 ({host}) failed: "
      "ValueError('no room')"
    )


def test_each_process_verifies_its_share_and_holds_all():
  first, second = run("verify")
  assert first["outputs"] == [str(value * value) for value in range(7)]
  assert second["outputs"] == first["outputs"]
  assert (first["own"], second["own"]) == (4, 3)
  for found in (first, second):
    assert found["programs"] == 7
    assert found["nothing_more"] == 0
    assert 0 <= found["early"] <= 1
    assert found["wait"] >= 0
  # The failing job is the ninth of all, so it is the first process's.
  assert first["failure"] == "OSError: no space left"
  assert second["failure"].startswith("RuntimeError: process 0")
  assert second["failure"].endswith("failed: OSError('no space left')")


def test_a_run_folder_is_claimed_by_all_or_none(tmp_path):
  found = run("claim", tmp_path)
  for one in found:
    assert one["free"] is None
    assert one["config"].startswith("RuntimeError: config: process ")
    assert one["workdir"].startswith("RuntimeError: workdir: process ")
  assert found[0]["refused"].startswith("FileExistsError: ")
  assert "workdir: process 0" in found[1]["refused"]


def test_a_process_that_does_not_come_is_named():
  found, _ = run("late")
  assert 1.5 < found["seconds"] < 5.5
  assert found["error"].startswith(
    f"TimeoutError: process 1 ({socket.gethostname()}) did not reach "
    "'the verdicts' in 2 s"
  )


def test_a_single_process_waits_for_nobody():
  hosts = Hosts(timeout_s=0.001)
  hosts.barrier("nobody")
  hosts.assert_equal_arrays("rows", np.arange(3))
  assert hosts.is_primary
  assert hosts.all_gather("alone", b"mine") == [b"mine"]
  assert hosts.any("alone", True) and not hosts.any("alone", False)
  with pytest.raises(ValueError, match="own"):
    hosts.raise_on_all("alone", ValueError("own"))
