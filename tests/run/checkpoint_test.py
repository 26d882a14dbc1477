"""Checkpoints: read without writing, awaited, and skipped when damaged."""

import errno
import threading
import time

import numpy as np
import pytest

from azr_jax.run import checkpoint, checkpoint_reading, checksums, session
from azr_jax.run.checkpoint import Checkpointer

STATE = {"weights": np.arange(4.0)}


def files_of(folder):
  return sorted(path.relative_to(folder) for path in folder.rglob("*"))


def save(folder, steps):
  with Checkpointer(folder, keep=None) as checkpoints:
    for step in steps:
      checkpoints.save(step, STATE, {"step": step}, [{"step": step}])


def damage(folder, step):
  """Flips a byte in a checkpoint's largest file. Returns the file's name."""
  files = (folder / "checkpoints" / str(step) / "state").rglob("*")
  path = max(
    filter(lambda p: p.is_file(), files), key=lambda p: p.stat().st_size
  )
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 4
  path.write_bytes(data)
  return path.name


def test_reading_writes_nothing(tmp_path):
  assert checkpoint_reading.newest_step(tmp_path / "missing") is None
  with pytest.raises(ValueError, match="missing holds no finished checkpoint"):
    with checkpoint_reading.open_to_read(tmp_path / "missing"):
      pass
  assert files_of(tmp_path) == []
  save(tmp_path, (1, 2))
  # A pending save, as of a run that is still training.
  (tmp_path / "checkpoints" / "3.orbax-checkpoint-tmp").mkdir()
  before = files_of(tmp_path)
  assert checkpoint_reading.newest_step(tmp_path) == 2
  with checkpoint_reading.open_to_read(tmp_path) as (checkpoints, step):
    assert (step, checkpoints.restore_system(step)) == (2, {"step": 2})
  assert files_of(tmp_path) == before


def test_a_step_can_be_named(tmp_path):
  save(tmp_path, (1, 2))
  with checkpoint_reading.open_to_read(tmp_path, 1) as (checkpoints, step):
    assert (step, checkpoints.restore_system(step)) == (1, {"step": 1})
  with pytest.raises(ValueError, match=r"step 3: expected one of \[1, 2\]"):
    with checkpoint_reading.open_to_read(tmp_path, 3):
      pass


@pytest.mark.parametrize("error", [None, KeyError("loop")])
def test_a_failed_save_is_told_and_never_replaces_an_error(
  tmp_path, capsys, error
):
  def fail():
    raise OSError("the disk is full")

  expected = OSError if error is None else KeyError
  with pytest.raises(expected):
    with Checkpointer(tmp_path, keep=1) as checkpoints:
      checkpoints._manager.wait_until_finished = fail
      if error is not None:
        raise error
  message = "the last checkpoint may be lost: the disk is full"
  assert (message in capsys.readouterr().err) == (error is not None)


def test_readers_pass_over_a_damaged_checkpoint(tmp_path, capsys):
  save(tmp_path, (1, 2, 3))
  name = damage(tmp_path, 3)
  before = files_of(tmp_path)
  assert checkpoint_reading.newest_step(tmp_path) == 2
  [line] = capsys.readouterr().err.splitlines()
  assert "the checkpoint of step 3 is damaged" in line and name in line
  assert line.endswith("step 2 is read instead")
  with checkpoint_reading.open_to_read(tmp_path) as (checkpoints, step):
    assert (step, checkpoints.restore_system(step)) == (2, {"step": 2})
  assert files_of(tmp_path) == before


def test_training_moves_damaged_checkpoints_and_saves_their_steps_again(
  tmp_path, capsys
):
  for attempt in ("3", "3_2"):
    save(tmp_path, (1, 2, 3) if attempt == "3" else ())
    damage(tmp_path, 3)
    content = (tmp_path / "checkpoints" / "3" / "checksums_0.txt").read_bytes()
    with session.open_run(str(tmp_path), {}, 1.0) as run:
      with run.open_checkpoints(2) as checkpoints:
        assert run.latest_step(checkpoints) == 2
        assert checkpoints.steps()[-1] == 2
        checkpoints.save(3, STATE, {"step": 3})
    lines = capsys.readouterr().err.splitlines()
    [line] = [line for line in lines if "is damaged" in line]
    assert "step 3 is damaged" in line and "step 2 is used instead" in line
    kept = tmp_path / checkpoint.DAMAGED / attempt / "checksums_0.txt"
    assert kept.read_bytes() == content
    assert checkpoint_reading.newest_step(tmp_path) == 3


def test_damaged_checkpoints_alone_are_refused_and_stay(tmp_path):
  save(tmp_path, (1, 2))
  names = damage(tmp_path, 1), damage(tmp_path, 2)
  before = files_of(tmp_path)
  for read in (
    lambda run: run.latest_step(Checkpointer(tmp_path, 2)),
    lambda run: checkpoint_reading.newest_step(run.folder),
  ):
    with session.open_run(str(tmp_path), {}, 1.0) as run:
      with pytest.raises(ValueError, match="step 2 is damaged") as error:
        read(run)
    assert all(name in str(error.value) for name in names)
    assert "step 1 is damaged" in str(error.value)
  assert set(before) <= set(files_of(tmp_path))


def test_checkpoints_without_checksums_are_taken_to_be_whole(tmp_path):
  with Checkpointer(tmp_path, None, with_checksums=False) as checkpoints:
    checkpoints.save(1, STATE, {})
  damage(tmp_path, 1)
  assert checkpoint_reading.newest_step(tmp_path) == 1


def test_a_save_is_finished_before_its_checksums(tmp_path, monkeypatch):
  """Checksums may take longer than the time limit of a save."""
  may_write = threading.Event()
  write = checksums.write

  def write_late(*args):
    assert may_write.wait(60)
    write(*args)

  monkeypatch.setattr(checksums, "write", write_late)
  with Checkpointer(tmp_path, None) as checkpoints:
    checkpoints.save(1, STATE, {})
    deadline = time.monotonic() + 30
    while not checkpoint_reading.finished_steps(tmp_path):
      assert time.monotonic() < deadline
      time.sleep(0.01)
    # A kill would leave the folder like this: saved, but without checksums.
    assert checkpoint_reading.newest_step(tmp_path) == 1
    may_write.set()
  damage(tmp_path, 1)
  with pytest.raises(ValueError, match="step 1 is damaged"):
    checkpoint_reading.newest_step(tmp_path)


def test_checksums_that_cannot_be_written_are_told(tmp_path, monkeypatch):
  def fail(*_):
    raise OSError(errno.ENOSPC, "no space")

  monkeypatch.setattr(checksums, "write", fail)
  with pytest.raises(OSError) as raised:
    save(tmp_path, (1,))
  assert raised.value.errno == errno.ENOSPC
  assert checkpoint_reading.newest_step(tmp_path) == 1


def test_training_removes_what_a_killed_save_has_left(tmp_path):
  save(tmp_path, (1,))
  part = tmp_path / "checkpoints" / "2.orbax-checkpoint-tmp"
  part.mkdir()
  (part / "file").write_text("half of it")
  assert checkpoint_reading.finished_steps(tmp_path) == [1]
  with session.open_run(str(tmp_path), {}, 1.0) as run:
    with run.open_checkpoints(2) as checkpoints:
      assert run.latest_step(checkpoints) == 1
      checkpoints.save(3, STATE, {})
  assert not part.exists() and checkpoint_reading.finished_steps(tmp_path) == [
    1,
    3,
  ]


def test_metrics_are_kept_with_a_step(tmp_path):
  save(tmp_path, (1, 2))
  with checkpoint_reading.open_to_read(tmp_path) as (checkpoints, step):
    assert checkpoints.restore_rows(step) == [{"step": 2}]
    assert checkpoints.restore_rows(0) == []


def test_damage_of_any_file_lets_the_folder_be_opened(tmp_path):
  """Orbax reads some files of all steps before it is asked for one."""
  save(tmp_path, (1,))
  files = [path for path in tmp_path.rglob("*") if path.is_file()]
  assert len(files) > 5
  for path in files:
    whole = path.read_bytes()
    path.write_bytes(b"\xff" * len(whole))
    with Checkpointer(tmp_path, 2) as checkpoints:
      assert checkpoints.steps() == [1], path
    path.write_bytes(whole)


def test_a_step_is_never_left_out_silently(tmp_path):
  save(tmp_path, (2,))
  with Checkpointer(tmp_path, 2) as checkpoints:
    with pytest.raises(RuntimeError, match=r"step 2 cannot be .*, \[2\]"):
      checkpoints.save(2, STATE, {})


@pytest.mark.parametrize(
  "text, number",
  [
    (
      "RESOURCE_EXHAUSTED: Error: No space left on device [os...]",
      errno.ENOSPC,
    ),
    ("ABORTED: Disk quota exceeded", errno.EDQUOT),
    ("INVALID_ARGUMENT: shapes", 0),
  ],
)
def test_a_full_disk_is_told_as_such(tmp_path, text, number):
  def fail():
    raise ValueError(text)

  with pytest.raises(OSError if number else ValueError) as raised:
    with Checkpointer(tmp_path, keep=1) as checkpoints:
      checkpoints._manager.wait_until_finished = fail
  assert getattr(raised.value, "errno", 0) == number


def test_device_state_is_not_compressed(tmp_path):
  state = {"params": np.zeros((1 << 18,), np.float32)}
  with Checkpointer(tmp_path, keep=None) as checkpointer:
    checkpointer.save(1, state, {})
  folder = tmp_path / "checkpoints" / "1" / "state"
  size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
  assert size >= 1 << 20
