"""Saved states of models in training: each is the checkpoint of a run.

A saved state is a folder with config.json and one checkpoint, so `evaluate`,
`serve` and `export` read it like any run.
"""

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax

from azr_jax import types
from azr_jax.learner.train_state import TrainState
from azr_jax.run import checkpoint_reading, storage
from azr_jax.run import folder as folder_lib
from azr_jax.run.checkpoint import Checkpointer
from azr_jax.trainer import frozen
from azr_jax.trainer.frozen import Origin

# The file that describes a saved state to clients.
ABOUT = "about.json"


def save(
  folder: pathlib.Path,
  state: TrainState,
  config: Mapping[str, Any],
  base: types.Params,
  about: Mapping[str, Any],
) -> None:
  """Saves a state, and waits until it is stored.

  A state that is saved again is a later checkpoint of the same run, so the old
  one stays until the new one is whole, and no folder is renamed: object stores
  cannot do that atomically.

  Args:
    folder: the folder of the state, created if missing. An older state in it
      must be of the same model.
    state: parameters, moments and step.
    config: the configuration of a run that trains this model.
    base: the frozen parameters; {} if all are trained.
    about: fields for clients, as JSON.
  """
  folder.mkdir(parents=True, exist_ok=True)
  folder_lib.write_config(folder, config)
  if base:
    origin = Origin(str(config["model"]["source"]))
    frozen.write_identity(frozen.identity(base), origin, folder)
  with Checkpointer(folder, keep=1) as checkpoints:
    last = max(checkpoints.steps(), default=0)
    checkpoints.save(max(last + 1, int(state.step)), state, {})
  size = sum(array.nbytes for array in jax.tree.leaves(state))
  text = json.dumps({**about, "size_bytes": size}, indent=2)
  storage.write_atomically(folder / ABOUT, text + "\n")


def load(
  folder: pathlib.Path,
  abstract: TrainState,
  when_found: Callable[[], object] = lambda: None,
) -> TrainState:
  """Restores a state with its moments, straight into its shards.

  Args:
    folder: the folder of the state.
    abstract: shapes, dtypes and shardings.
    when_found: called once there is an undamaged state, before it is read.

  Raises:
    ValueError: there is no finished state.
  """
  with checkpoint_reading.open_to_read(folder) as (checkpoints, step):
    when_found()
    state, _ = checkpoints.restore(step, abstract)
  return state


def load_params(
  folder: pathlib.Path,
  abstract: TrainState,
  when_found: Callable[[], object] = lambda: None,
) -> types.Params:
  """Restores the trained parameters of a state; like `load`, without moments.

  Raises:
    ValueError: there is no finished state.
  """
  with checkpoint_reading.open_to_read(folder) as (checkpoints, step):
    when_found()
    (params,) = checkpoints.restore_params(step, abstract.params)
  return params


def read_about(folder: pathlib.Path) -> dict[str, Any] | None:
  """Returns what `save` wrote for clients; None if the save did not end."""
  try:
    return json.loads((folder / ABOUT).read_text("utf-8"))
  except FileNotFoundError:
    return None


def delete(folder: pathlib.Path) -> None:
  """Deletes a state."""
  # Without this file, the rest no longer counts as a state.
  (folder / ABOUT).unlink(missing_ok=True)
  storage.remove_folder(folder)
