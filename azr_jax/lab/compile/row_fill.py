"""How full the rows of an update are, and a mesh that would fill them.

Every batch shard of the mesh gets at least one row, so on many devices a batch
may have fewer rows than shards; the others are padding. `mesh.context` spreads
a row over several devices, which leaves fewer shards.
"""

from collections.abc import Sequence

from jax.sharding import Mesh

from azr_jax.lab.compile import forecast
from azr_jax.learner.settings import LearnerSettings
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import MeshSettings

# A layout with at least this fraction of its rows in use is good enough.
_ENOUGH = 0.75
# Tokens of a row on one device are a multiple of this.
_LANES = 128


def advice(
  trained: Sequence[int],
  learner: LearnerSettings,
  config: MeshSettings,
  mesh: Mesh,
) -> str:
  """Returns what to change if most rows are padding, else "".

  Args:
    trained: tokens of each trained sequence, prompt included.
    learner: the learner's settings.
    config: the sizes of the mesh as configured.
    mesh: the learner's mesh.
  """
  padded = mesh_lib.padded_rows(learner.micro_rows, mesh)
  rows = _rows(trained, learner.row_length, learner)
  now = _fill(rows, padded)
  if now >= 0.5:
    return ""
  best, best_fill = "", now
  for context in _contexts(mesh):
    shards = mesh.size // mesh.shape["tensor"] // context
    row_length = _rounded(learner.row_length, context * _LANES)
    found = _fill(_rows(trained, row_length, learner), shards)
    if found > best_fill:
      best_fill = found
      best = _changes(context, row_length, shards, learner, config, mesh)
    if best_fill >= _ENOUGH:
      break
  text = (
    f"{1 - now:.0%} of the rows of an update are padding ({sum(rows)} of "
    f"{sum(_rounded(n, padded) for n in rows)} hold sequences)"
  )
  return f"{text}: {best} would fill {best_fill:.0%}" if best else text


def _contexts(mesh: Mesh) -> list[int]:
  """Returns usable sizes of `mesh.context`, ascending."""
  shards = mesh_lib.batch_devices(mesh) * mesh.shape["context"]
  found, context = [], mesh.shape["context"]
  while shards % context == 0:
    found.append(context)
    context *= 2
  # cuDNN's attention needs whole rows.
  return found[:1] if mesh_lib.platform(mesh) in ("gpu", "cuda") else found


def _changes(
  context: int,
  row_length: int,
  shards: int,
  learner: LearnerSettings,
  config: MeshSettings,
  mesh: Mesh,
) -> str:
  """Returns the settings of a layout that differ from the present ones."""
  changes = {}
  if context != mesh.shape["context"]:
    changes["mesh.context"] = context
    if -1 not in (config.fsdp, config.data):
      changes["mesh.fsdp"] = shards // mesh.shape["data"]
  if row_length != learner.row_length:
    changes["learner.row_length"] = row_length
  if shards < learner.micro_rows:
    changes["learner.micro_rows"] = shards
  return " ".join(f"{key}={value}" for key, value in changes.items())


def _rows(
  lengths: Sequence[int], row_length: int, learner: LearnerSettings
) -> list[int]:
  """Returns the rows that the sequences of each minibatch are packed into."""
  # Rows hold inputs and targets: one less than the tokens of a sequence.
  inputs = [tokens - 1 for tokens in lengths]
  return forecast.rows_of_parts(
    inputs, row_length, learner.max_sequences_per_row, learner.minibatches
  )


def _fill(rows: Sequence[int], multiple: int) -> float:
  """Returns the fraction of rows that hold sequences, after padding."""
  return sum(rows) / sum(_rounded(count, multiple) for count in rows)


def _rounded(count: int, multiple: int) -> int:
  """Returns `count` rounded up to a multiple."""
  return -(-count // multiple) * multiple
