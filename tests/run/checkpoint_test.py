"""Checkpoints: read without writing, and waited for at the end."""

import numpy as np
import pytest

from azr_jax.run import checkpoint
from azr_jax.run.checkpoint import Checkpointer

STATE = {"weights": np.arange(4.0)}


def files_of(folder):
  return sorted(path.relative_to(folder) for path in folder.rglob("*"))


def save(folder, steps):
  with Checkpointer(folder, keep=None) as checkpoints:
    for step in steps:
      checkpoints.save(step, STATE, {"step": step})


def test_reading_writes_nothing(tmp_path):
  assert checkpoint.newest_step(tmp_path / "missing") is None
  with pytest.raises(ValueError, match="missing holds no finished checkpoint"):
    with checkpoint.open_to_read(tmp_path / "missing"):
      pass
  assert files_of(tmp_path) == []
  save(tmp_path, (1, 2))
  # A save that is under way, as of a run that still trains.
  (tmp_path / "checkpoints" / "3.orbax-checkpoint-tmp").mkdir()
  before = files_of(tmp_path)
  assert checkpoint.newest_step(tmp_path) == 2
  with checkpoint.open_to_read(tmp_path) as (checkpoints, step):
    assert (step, checkpoints.restore_system(step)) == (2, {"step": 2})
  assert files_of(tmp_path) == before


def test_a_step_can_be_named(tmp_path):
  save(tmp_path, (1, 2))
  with checkpoint.open_to_read(tmp_path, 1) as (checkpoints, step):
    assert (step, checkpoints.restore_system(step)) == (1, {"step": 1})
  with pytest.raises(ValueError, match=r"step 3: expected one of \[1, 2\]"):
    with checkpoint.open_to_read(tmp_path, 3):
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
