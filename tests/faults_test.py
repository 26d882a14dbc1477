"""Faults are reported in one line, and resuming gives the same metrics.

docs/results/faults.md lists the cost of each fault.
"""

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
import training

from azr_jax.run import checkpoint, checkpoint_reading, checksums, session

NEWEST, BEFORE = 5, 4
# Size of a file system on which the given save fails.
FULL_AT = {"first": "3m", "second": "32m"}


def files_of(folder):
  """Returns the files of a checkpoint."""
  return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def faults(seed, flips, cuts):
  """Functions that damage a folder, with a description of each."""
  draw = random.Random(seed)

  def flip(folder, by_size):
    files = files_of(folder)
    sizes = [path.stat().st_size for path in files]
    # The largest file has nearly all bytes, so half of the flips pick a file.
    path = draw.choices(files, sizes)[0] if by_size else draw.choice(files)
    data = bytearray(path.read_bytes())
    place = draw.randrange(len(data))
    data[place] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return path

  def cut(folder, by_size):
    files = files_of(folder)
    path = max(files, key=lambda p: p.stat().st_size) if by_size else None
    path = path or draw.choice(files)
    path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])
    return path

  yield from ((flip, number % 2) for number in range(flips))
  yield from ((cut, number % 2) for number in range(cuts))


@pytest.mark.parametrize(
  "flips, cuts", [(2, 1), pytest.param(20, 10, marks=pytest.mark.slow)]
)
def test_each_flip_and_cut_is_named_and_the_checkpoint_before_is_used(
  azr_run, tmp_path, capsys, flips, cuts
):
  run_folder = tmp_path / "run"
  saved = azr_run / "checkpoints"
  shutil.copytree(saved, run_folder / "checkpoints")
  damaged = tmp_path / "run" / checkpoint.DAMAGED
  for damage, by_size in faults(0, flips, cuts):
    newest = run_folder / "checkpoints" / str(NEWEST)
    path = damage(newest, by_size)
    with session.open_run(str(run_folder), {}, 1.0) as run:
      with run.open_checkpoints(2) as checkpoints:
        assert run.latest_step(checkpoints) == BEFORE
        system = checkpoints.restore_system(BEFORE)
    lines = capsys.readouterr().err.splitlines()
    [line] = [line for line in lines if "is damaged" in line]
    assert f"the checkpoint of step {NEWEST} is damaged" in line
    assert path.name in line and f"step {BEFORE} is used instead" in line
    assert system and checksums.find_damage(damaged / str(NEWEST))
    shutil.rmtree(damaged)
    shutil.copytree(saved / str(NEWEST), newest)


def run_of(folder, *words, program=("-m", "azr_jax.train")):
  """Runs a command to its end. Returns its exit code and last lines."""
  done = subprocess.run(
    [sys.executable, *program, *training.AZR_FLAGS, f"--workdir={folder}"]
    + ["--config.train.steps=5", *words],
    cwd=training.ROOT,
    env=training.environment() | {"PYTHONPATH": str(training.ROOT)},
    capture_output=True,
    text=True,
    check=False,
    timeout=900,
  )
  assert "Traceback" not in done.stderr, done.stderr[-3000:]
  return done.returncode, done.stderr.splitlines()


def steps_of(folder):
  return sorted(int(path.name) for path in (folder / "checkpoints").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["flip", "cut", "cut metrics"])
def test_a_run_with_a_damaged_file_resumes_to_equal_metrics(
  azr_run, tmp_path, fault
):
  folder = tmp_path / "run"
  shutil.copytree(azr_run, folder)
  path = metrics = folder / "metrics.jsonl"
  if fault == "cut metrics":
    # Both steps since the previous checkpoint are missing or cut.
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:-1]) + lines[-1][:99])
  else:
    [(damage, _)] = faults(1, 1, 0) if fault == "flip" else faults(1, 0, 1)
    path = damage(folder / "checkpoints" / str(NEWEST), by_size=True)
  code, lines = run_of(folder)
  assert code == 0
  told = [line for line in lines if "is damaged" in line]
  if fault == "cut metrics":
    assert (
      not told
      and metrics.read_text() == (azr_run / "metrics.jsonl").read_text()
    )
  else:
    assert len(told) == 1 and path.name in told[0]
    assert steps_of(folder) == [BEFORE, NEWEST]
  assert training.metrics_of(folder) == training.metrics_of(azr_run)


@pytest.fixture(name="disk")
def make_disk(tmp_path):
  """A folder on its own file system, and a function that sets its size."""
  folder = tmp_path / "disk"
  folder.mkdir()

  def mount(options):
    words = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    return subprocess.run(words, check=False, capture_output=True).returncode

  if os.geteuid() or mount("size=1m"):
    pytest.skip("only root can make a file system")
  yield folder, lambda size: mount(f"remount,size={size}")
  subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("save", FULL_AT)
def test_a_full_disk_is_one_line_and_costs_nothing_that_was_saved(
  azr_run, disk, save
):
  folder, resize = disk
  resize(FULL_AT[save])
  code, lines = run_of(folder / "run")
  assert code == 2
  assert [line for line in lines if "error" in line.lower()] == [
    f"error: the disk is full while writing {folder}/run/checkpoints: free "
    "some space; the same command resumes"
  ]
  finished = checkpoint_reading.finished_steps(folder / "run")
  assert finished == ([] if save == "first" else [2])
  resize("400m")
  code, _ = run_of(folder / "run")
  assert code == 0 and steps_of(folder / "run") == [BEFORE, NEWEST]
  assert training.metrics_of(folder / "run") == training.metrics_of(azr_run)


@pytest.mark.slow
def test_a_reward_that_is_not_a_number_stops_the_run_and_may_be_skipped(
  azr_run, tmp_path
):
  program = str(training.ROOT / "tests" / "faults_program.py"), "3"
  folder = tmp_path / "run"
  code, lines = run_of(folder, program=program)
  assert code == 2
  [error] = [line for line in lines if line.startswith("error: ")]
  assert error.startswith("error: step 3: not finite: learner/grad_norm=nan, ")
  assert "learner/loss=nan" in error
  # The next step had started, but the checkpoint at its end was not written.
  assert steps_of(folder) == [2]
  assert [row["step"] for row in training.rows_of(folder)] == [1, 2]
  code, _ = run_of(folder)
  assert code == 0
  assert training.metrics_of(folder) == training.metrics_of(azr_run)

  other = tmp_path / "other"
  code, _ = run_of(other, "--config.learner.nonfinite=skip", program=program)
  rows = [
    json.loads(line, parse_constant=lambda word: pytest.fail(word))
    for line in (other / "metrics.jsonl").read_text().splitlines()
  ]
  assert code == 0 and [row["learner/skipped"] for row in rows] == [
    0,
    0,
    1,
    0,
    0,
  ]
  assert "learner/loss" not in rows[2] and "learner/loss" in rows[3]
  assert steps_of(other) == [BEFORE, NEWEST]
