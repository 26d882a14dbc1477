"""Saved states of models in training: each is the checkpoint of a run.

A saved state is a folder with config.json and one checkpoint, so `evaluate`,
`serve` and `export` read it like any run.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

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
  """Saves a state, and waits until it is on the disk.

  Args:
    folder: the folder of the state, which must not exist.
    state: parameters, moments and step.
    config: the configuration of a run that trains this model.
    base: the frozen parameters; {} if all are trained.
    about: fields for clients, as JSON.
  """
  folder.mkdir(parents=True)
  folder_lib.write_config(folder, config)
  if base:
    origin = Origin(str(config["model"]["source"]))
    frozen.write_identity(frozen.identity(base), origin, folder)
  with Checkpointer(folder, keep=None) as checkpoints:
    # A checkpoint's step counts from 1.
    checkpoints.save(max(1, int(state.step)), state, {})
  text = json.dumps(dict(about), indent=2)
  storage.write_atomically(folder / ABOUT, text + "\n")


def load(folder: pathlib.Path, abstract: TrainState) -> TrainState:
  """Restores a state with its moments, straight into its shards.

  Args:
    folder: the folder of the state.
    abstract: shapes, dtypes and shardings.

  Raises:
    ValueError: there is no finished state.
  """
  with checkpoint_reading.open_to_read(folder) as (checkpoints, step):
    state, _ = checkpoints.restore(step, abstract)
  return state


def load_params(folder: pathlib.Path, abstract: TrainState) -> types.Params:
  """Restores the trained parameters of a state, without its moments.

  Raises:
    ValueError: there is no finished state.
  """
  with checkpoint_reading.open_to_read(folder) as (checkpoints, step):
    (params,) = checkpoints.restore_params(step, abstract.params)
  return params


def read_about(folder: pathlib.Path) -> dict[str, Any] | None:
  """Returns what `save` wrote for clients; None if the save did not end."""
  path = folder / ABOUT
  if not path.is_file():
    return None
  return json.loads(path.read_text("utf-8"))
