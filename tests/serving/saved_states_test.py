"""Saving and loading states, without a server."""

import jax
import jax.numpy as jnp
import pytest
from typed import stand_in

from azr_jax.learner.objective import Fixed
from azr_jax.learner.train_state import TrainState
from azr_jax.rollout.engine import Engine
from azr_jax.run.checkpoint import Checkpointer
from azr_jax.run.checkpoint_reading import finished_steps
from azr_jax.serving.errors import ApiError
from azr_jax.serving.tinker import store
from azr_jax.serving.tinker.checkpoints import WEIGHTS, Checkpoints
from azr_jax.serving.tinker.studio import Parts, Studio, TrainedModel
from azr_jax.verbs.data import DataLimits
from azr_jax.verbs.programs import Verbs
from azr_jax.verbs.rows import RowShapes
from azr_jax.verbs.trainable import Trainable


def _state(step):
  return TrainState(jnp.int32(step), {"w": jnp.full(3, step)}, ())


def _abstract():
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
    _state(0),
  )


def _load(folder):
  state = store.load(folder, _abstract())
  assert int(state.step) == int(state.params["w"][0])
  return int(state.step)


def _fail(*_, **__):
  raise OSError("disk full")


def test_a_state_stays_until_the_next_one_is_whole(strict_store, monkeypatch):
  checkpoints = Checkpoints(strict_store)
  path = checkpoints.path("ab:train:0", WEIGHTS, "one")
  folder = checkpoints.folder(path)

  def save(step):
    about = {"path": path, "lora": None, "time": str(step)}
    store.save(folder, _state(step), {"key": 1}, {}, about)

  with monkeypatch.context() as killed:
    killed.setattr(store.storage, "write_atomically", _fail)
    killed.setattr(store.folder_lib, "write_config", lambda *_: None)
    with pytest.raises(OSError, match="disk full"):
      save(7)
  assert not checkpoints.exists(path) and not checkpoints.every()
  save(5)  # Its checkpoint counts as later than the one without a name.
  assert checkpoints.find(path).folder == folder
  assert _load(folder) == 5
  with monkeypatch.context() as killed:
    killed.setattr(Checkpointer, "save", _fail)
    with pytest.raises(OSError, match="disk full"):
      save(6)
  [saved] = checkpoints.every()
  assert saved.about["time"] == "5" and _load(folder) == 5
  save(3)
  [saved] = checkpoints.every()
  assert saved.about["time"] == "3" and _load(folder) == 3
  assert len(finished_steps(folder)) == 1
  # A step count and three numbers, of 4 bytes each.
  assert checkpoints.describe(saved)["size_bytes"] == 16
  store.delete(folder)
  assert not checkpoints.every() and not folder.exists()
  with pytest.raises(ApiError, match="expected the path of a saved state"):
    checkpoints.find(path)


def test_a_loaded_state_takes_the_room_of_the_old_one(tmp_path, monkeypatch):
  studio = Studio(stand_in(Parts, engine=stand_in(Engine, param_shardings={})))
  verbs = stand_in(Verbs, abstract=_abstract())
  monkeypatch.setattr(studio, "_verbs", lambda lora: verbs)
  shapes, limits = stand_in(RowShapes), stand_in(DataLimits)
  old = _state(9)
  trainable = Trainable(verbs, shapes, limits, Fixed({}), old)
  model = TrainedModel(None, trainable)
  with pytest.raises(ValueError, match="no finished checkpoint"):
    studio.load_into(model, tmp_path / "missing", True)
  assert int(trainable.state.step) == 9
  store.save(tmp_path / "one", _state(5), {}, {}, {})
  restore = Checkpointer.restore

  def restore_into_room(*args):
    assert old.params["w"].is_deleted()
    return restore(*args)

  monkeypatch.setattr(Checkpointer, "restore", restore_into_room)
  studio.load_into(model, tmp_path / "one", True)
  assert int(trainable.state.step) == 5
