"""Two real processes that exchange, agree, fail and wait for each other."""

import fcntl
import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from azr_jax.parallel.hosts import MESSAGE_BYTES, Hosts
from azr_jax.run.checkpoint import Checkpointer

PROGRAM = pathlib.Path(__file__).with_name("hosts_program.py")


def run(scenarios, folder):
  """Returns the result of each process."""
  with socket.socket() as probe:
    probe.bind(("localhost", 0))
    port = probe.getsockname()[1]
  flag = "--xla_force_host_platform_device_count=2"
  processes = [
    subprocess.Popen(
      [sys.executable, PROGRAM, scenarios, str(port), str(index), str(folder)],
      env=os.environ | {"XLA_FLAGS": flag},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for index in range(2)
  ]
  ended = [process.communicate(timeout=120) for process in processes]
  results = []
  for output, errors in ended:
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert lines, errors[-3000:]
    results.append(json.loads(lines[-1]))
  return results


@pytest.fixture(scope="module")
def results(tmp_path_factory, testrun_uid):
  """Returns the results of the scenarios in which both processes survive.

  The scenarios run once for all processes of the tests.
  """
  folder = tmp_path_factory.getbasetemp().parent / f"hosts_{testrun_uid}"
  folder.mkdir(exist_ok=True)
  stored = folder / "results.json"
  with (folder / "lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not stored.exists():
      with Checkpointer(folder / "damaged", keep=None) as checkpoints:
        for step in (1, 2, 3):
          checkpoints.save(step, {"weights": np.arange(4.0)}, {})
      (folder / "damaged/checkpoints/3/system/metadata").write_text("{ }")
      scenarios = "exchange,make_data,damaged,save,lock,records,verify"
      stored.write_text(json.dumps(run(scenarios, folder)))
  return json.loads(stored.read_text())


def test_two_processes_exchange_and_agree(results):
  for index, result in enumerate(results):
    exchange = result["exchange"]
    host = socket.gethostname()
    assert exchange["devices"] == 4
    assert exchange["names"] == [host, host]
    assert exchange["lengths"] == [3, MESSAGE_BYTES + 17]
    assert exchange["letters"] == ["A", "B"]
    assert exchange["nothing"] == [0, 0]
    assert exchange["any"] == [True, False]
    assert exchange["same"] is None
    for name in ("differ", "shape"):
      assert exchange[name].startswith(
        f"RuntimeError: rows: process 1 ({host})"
      )
    assert exchange["on_all"] == (
      "ValueError: no room"
      if index
      else f"RuntimeError: lock: process 1 ({host}) failed: "
      "ValueError('no room')"
    )


def test_data_that_one_process_cannot_build_ends_all(results):
  builds = [result["make_data"] for result in results]
  for index, build in enumerate(builds):
    assert build["made"] == build["again"] == "made once"
    for turn, name in enumerate(("first", "second")):
      assert build[name] == (
        "OSError: disk is gone"
        if index == turn
        else f"RuntimeError: data: process {turn} ({socket.gethostname()}) "
        "failed: OSError('disk is gone')"
      )


def test_processes_pass_over_a_damaged_checkpoint_together(results):
  for result in results:
    assert result["damaged"] == {"step": 2, "steps": [1, 2]}


def test_each_process_reads_a_part_of_a_saved_checkpoint(results):
  for result in results:
    saved = result["save"]
    own = ["checksums_0.txt", "checksums_1.txt"]
    assert len(saved["parts"]) == 2 and all(saved["parts"])
    assert sorted([*sum(saved["parts"], []), *own]) == saved["files"]
    assert saved["damage"] == ""


def test_each_process_verifies_its_part_and_holds_all(results):
  first, second = (result["verify"] for result in results)
  assert first["outputs"] == [str(value * value) for value in range(7)]
  assert second["outputs"] == first["outputs"]
  assert (first["here"], second["here"]) == (4, 3)
  for verify in (first, second):
    assert verify["programs"] == 7
    assert verify["nothing_more"] == 0
    assert 0 <= verify["early"] <= 1
    assert verify["wait"] >= 0
  # The failing job is the ninth, which the first process runs.
  assert first["failure"] == "OSError: no space left"
  assert second["failure"].startswith("RuntimeError: process 0")
  assert second["failure"].endswith("failed: OSError('no space left')")


def test_a_run_folder_is_locked_by_all_or_none(results):
  locks = [result["lock"] for result in results]
  for lock in locks:
    assert lock["free"] is None
    assert lock["config"].startswith("RuntimeError: config: process ")
    assert lock["workdir"].startswith("RuntimeError: workdir: process ")
  assert locks[0]["refused"].startswith("ValueError: ")
  assert "workdir: process 0" in locks[1]["refused"]


def test_lines_that_one_process_writes_to_a_store_are_read_by_all(results):
  first, second = (result["records"] for result in results)
  assert first["before"] == second["before"] == ["", "one\n"]
  assert first["text"] == second["text"] == "one\ntwo\n"
  assert first["here"] != second["here"]  # Each reads its own copy.


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray itself raises warnings.
def test_two_processes_share_the_actors_of_a_ray_cluster():
  cluster_utils = pytest.importorskip(
    "ray.cluster_utils", reason="needs the extra ray"
  )
  head = {"num_cpus": 2, "include_dashboard": False}
  cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
  try:
    first, second = (r["service"] for r in run("service", cluster.address))
  finally:
    cluster.shutdown()
  assert first["service"] == second["service"]
  assert first["actors"] == second["actors"] and len(first["actors"]) == 1
  assert (first["outputs"], second["outputs"]) == (["1"], ["2"])


@pytest.mark.slow
def test_a_process_that_does_not_come_is_named(tmp_path):
  late = run("late", tmp_path)[0]["late"]
  assert 1.5 < late["seconds"] < 5.5
  assert late["error"].startswith(
    f"TimeoutError: process 1 ({socket.gethostname()}) did not reach "
    "'the verdicts' in 2 s"
  )


def test_a_single_process_waits_for_nobody():
  hosts = Hosts(timeout_s=0.001)
  hosts.barrier("nobody")
  hosts.assert_equal_arrays("rows", np.arange(3))
  assert hosts.is_primary
  assert hosts.all_gather("alone", b"mine") == [b"mine"]
  assert hosts.any_of_each("alone", [True, False]) == [True, False]
  with pytest.raises(ValueError, match="own"):
    hosts.raise_on_all("alone", ValueError("own"))
