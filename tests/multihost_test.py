"""Training gives the same on one device, on eight, and on two processes."""

import os
import signal
import subprocess
import sys

import pytest
import training

LAUNCHER = "launch/local_multiprocess.py"
MESH = ("--config.mesh.fsdp=4", "--config.mesh.tensor=2")


def rollout_mesh(devices):
  """Flags for a copy of the weights on every device.

  Gloo takes a millisecond per collective, and sharding needs dozens per token.
  """
  sizes = {"data": devices, "fsdp": 1, "tensor": 1}
  return [f"--config.rollout.mesh.{axis}={n}" for axis, n in sizes.items()]


def start(devices, processes, workdir, *arguments, grace=5):
  command = [
    sys.executable,
    LAUNCHER,
    f"--grace={grace}",
    f"--devices={devices}",
  ]
  command += [
    f"--processes={processes}",
    "--",
    "azr_jax.train",
    *training.AZR_FLAGS,
  ]
  return subprocess.Popen(
    [*command, f"--workdir={workdir}", *arguments],
    cwd=training.ROOT,
    env=training.environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def metrics_of(workdir, devices, processes, *arguments):
  """Metrics of two steps, without times and device metrics."""
  process = start(
    devices, processes, workdir, "--config.train.steps=2", *arguments
  )
  training.finish(process)
  return training.metrics_of(workdir)


def agree(metrics, one_device):
  """Whether metrics equal those of one process on one device."""
  assert [m["step"] for m in metrics] == [1, 2]
  expected = training.metrics_of(one_device)[:2]
  for mine, theirs in zip(metrics, expected, strict=True):
    assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-5)


@pytest.mark.slow
def test_eight_devices_train_as_one_does(azr_run, tmp_path):
  agree(metrics_of(tmp_path, 8, 1, *MESH), azr_run)


@pytest.mark.parametrize(
  "devices, fsdp, tensor",
  [(1, 2, 1), (4, 4, 2)],
)
@pytest.mark.slow  # `parallel/hosts_test.py` has two processes that exchange.
def test_two_processes_train_as_one_device_does(
  azr_run, tmp_path, devices, fsdp, tensor
):
  mesh = (f"--config.mesh.fsdp={fsdp}", f"--config.mesh.tensor={tensor}")
  mesh = (*mesh, *rollout_mesh(2 * devices))
  agree(metrics_of(tmp_path, devices, 2, *mesh), azr_run)
  # The first process wrote for both, once.
  assert len(list((tmp_path / "samples").iterdir())) == 2
  assert (tmp_path / "checkpoints" / "2").is_dir()


@pytest.mark.slow
def test_two_processes_sample_in_the_update_s_mesh(azr_run, tmp_path):
  agree(metrics_of(tmp_path, 4, 2, *MESH), azr_run)


@pytest.mark.slow
def test_two_processes_sample_ahead_as_one_does(tmp_path):
  rule = tmp_path / "rule.py"
  rule.write_text("def style(completion):\n  return str(len(completion) // 40)")
  ahead = (
    "--config.rollout.max_staleness=1",
    f"--config.train.style={rule}:style",
    *MESH,
    *rollout_mesh(8),
  )
  runs = []
  for processes in (1, 2):
    workdir = tmp_path / str(processes)
    runs.append(metrics_of(workdir, 8 // processes, processes, *ahead))
  assert [m["step"] for m in runs[0]] == [1, 2]
  assert runs[0][1]["rollout/staleness/max"] == 1
  assert sum(key.startswith("style/") for key in runs[0][1]) > 2
  for one, two in zip(*runs, strict=True):
    assert one == pytest.approx(two, rel=1e-5, abs=1e-5)


@pytest.mark.slow
def test_preempted_processes_save_together_and_resume(tmp_path):
  place = (2, 2, tmp_path, "--config.mesh.data=4", "--config.mesh.fsdp=1")
  process = start(*place, "--config.train.steps=200")
  training.wait_for_line(tmp_path, 1, process)
  only_one = subprocess.check_output(
    ["pgrep", "-f", f"azr_jax.train.*{tmp_path}.*process_id=1"], text=True
  )
  os.kill(int(only_one.split()[-1]), signal.SIGTERM)
  training.finish(process)
  steps = len(training.metrics_of(tmp_path))
  assert (tmp_path / "checkpoints" / str(steps)).is_dir()
  training.finish(start(*place, f"--config.train.steps={steps + 1}"))
  assert len(training.metrics_of(tmp_path)) == steps + 1


@pytest.mark.slow
def test_a_terminated_launcher_resumes_to_the_same_metrics(tmp_path):
  mesh = ("--config.mesh.data=4", "--config.mesh.fsdp=1")

  def begin(name):
    return start(2, 2, tmp_path / name, *mesh, "--config.train.steps=5")

  training.finish(begin("whole"))
  process = begin("in_two")
  training.wait_for_line(tmp_path / "in_two", 2, process)
  process.send_signal(signal.SIGTERM)
  training.finish(process)
  assert len(training.metrics_of(tmp_path / "in_two")) < 5
  training.finish(begin("in_two"))
  whole, in_two = (
    training.metrics_of(tmp_path / name) for name in ("whole", "in_two")
  )
  assert [m["step"] for m in in_two] == [1, 2, 3, 4, 5]
  for mine, theirs in zip(in_two, whole, strict=True):
    assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-5)


@pytest.mark.slow
def test_a_killed_process_ends_the_others(tmp_path):
  process = start(1, 2, tmp_path, "--config.train.steps=200", grace=200)
  training.wait_for_line(tmp_path, 1, process)
  victim = subprocess.check_output(
    ["pgrep", "-f", f"azr_jax.train.*{tmp_path}.*process_id=1"], text=True
  )
  os.kill(int(victim.split()[-1]), signal.SIGKILL)
  output, _ = process.communicate(timeout=300)
  assert process.returncode != 0
  # Between collectives the heartbeat fails; inside one, the connection does.
  assert "stopped sending heartbeats" in output or "Read error" in output


def test_the_launcher_shows_what_it_would_run():
  command = [sys.executable, LAUNCHER, "--dry_run", "--processes=3", "--", "m"]
  lines = subprocess.check_output(
    [*command, "--flag=a b"], cwd=training.ROOT, text=True
  ).splitlines()
  assert [line.split("--process_id=")[1] for line in lines] == ["0", "1", "2"]
  assert all("-m m '--flag=a b'" in line for line in lines)
