"""Builds the decoder that a run trains or samples, and its mesh."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from azr_jax import types
from azr_jax.learner import advantages, moments, packing
from azr_jax.learner.distillation import DistillSettings
from azr_jax.learner.settings import (
  LearnerSettings,
  OptimizerSettings,
  SupervisedSettings,
)
from azr_jax.models import (
  adapters,
  attention,
  expert_sharding,
  presets,
  rope,
  transformer,
)
from azr_jax.models import remat as remat_lib
from azr_jax.models.config import ModelConfig
from azr_jax.models.settings import LoraSettings, ModelSettings
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import layout
from azr_jax.trainer import frozen
from azr_jax.trainer.settings import SupervisedTrainSettings, TrainSettings

# Bytes of a parameter's average, which is float32.
_AVERAGE = 4.0

_ALL_TRAINED = LoraSettings()


def learner_mesh(
  c: TrainSettings | SupervisedTrainSettings,
  devices: Sequence[jax.Device] | None = None,
) -> Mesh:
  """Returns the mesh for the learner's state and rows.

  Args:
    c: settings with section `mesh` and the row length.
    devices: the devices of the mesh. None means all.

  Raises:
    ValueError: the sizes do not multiply to the number of devices, or rows
      cannot be split evenly over `mesh.context`.
  """
  mesh = mesh_lib.make_mesh(c.mesh.sizes(), devices)
  lengths = {"learner.row_length": c.learner.row_length}
  if isinstance(c, TrainSettings):
    lengths["distill.row_length"] = c.teacher_row_length
  for key, length in lengths.items():
    if length % mesh.shape["context"]:
      raise ValueError(
        f"config.{key}={length}: expected a multiple of config.mesh.context="
        f"{mesh.shape['context']}"
      )
  return mesh


def build_policy_model(
  c: TrainSettings,
  config: ModelConfig,
  mesh: Mesh,
  teacher: types.Params | None = None,
) -> transformer.Transformer:
  """Builds the decoder of a policy that is sampled and trained on a mesh.

  Args:
    c: the run's settings.
    config: the decoder's shape.
    mesh: the learner's mesh.
    teacher: the parameters of a teacher that is another model, as sharded
      shapes.
  """
  sampling_mesh = layout.rollout_mesh(c.rollout.mesh, mesh, config.experts)
  is_shared = frozen.is_shared(
    c.lora, c.rollout, c.model.dtype, mesh, sampling_mesh
  )
  model = build_model(
    c.model,
    # As in `rollout.build.sampling_model`.
    rope.for_length(config, c.rollout.longest + 1),
    mesh,
    c.sharding.rules(),
    rows=c.learner,
    sampler_bytes=_sampler_bytes(c, config, sampling_mesh, is_shared),
    state_size=state_size(c.model, c.optimizer, c.distill),
    critic_size=critic_size(c),
    # The update may hold the average in the compute type, like a reference.
    references=c.keeps_reference + c.distill.keeps_average,
    teacher_bytes=layout.shard_bytes(teacher),
    lora=c.lora,
  )
  return frozen.arranged(c, model, mesh) if is_shared else model


def state_size(
  model: ModelSettings,
  optimizer: OptimizerSettings,
  distill: DistillSettings | None = None,
) -> float:
  """Returns the bytes of a trained parameter, its moments and its average.

  Args:
    model: the section that sets the dtype of parameters.
    optimizer: the section that sets the dtype of moments.
    distill: the section that says whether the policy's average is a teacher;
      None for other networks.
  """
  size = jnp.dtype(model.param_dtype).itemsize
  average = _AVERAGE if distill is not None and distill.keeps_average else 0.0
  return size + moments.BYTES[optimizer.moments] + average


def critic_size(c: TrainSettings) -> float:
  """Returns `state_size` of the critic; 0 without a critic."""
  if c.learner.estimator != advantages.GAE:
    return 0.0
  return state_size(c.model, c.critic.optimizer)


def _sampler_bytes(
  c: TrainSettings, config: ModelConfig, mesh: Mesh, shares_base: bool
) -> float | None:
  """Returns the bytes of a sampler's weights and cache on each device.

  None if `rollout.cache_gib` leaves the size of the cache open. Counts weights
  in the compute type, even if they have 8 bits.

  Args:
    c: the run's settings.
    config: the decoder's shape.
    mesh: the sampler's mesh.
    shares_base: whether the sampler reads the learner's copy of the weights.
  """
  if not c.rollout.cache_gib:
    return None
  if shares_base:
    return c.rollout.cache_gib * memory.GIB
  size = jnp.dtype(c.model.dtype).itemsize
  weights = size * presets.parameter_count(config)
  weights *= remat_lib.held_fraction(config, mesh)
  return c.rollout.cache_gib * memory.GIB + weights


def build_model(
  model: ModelSettings,
  config: ModelConfig,
  mesh: Mesh,
  rules: types.Rules,
  *,
  rows: LearnerSettings | SupervisedSettings | None,
  sampler_bytes: float | None,
  state_size: float = remat_lib.STATE_SIZE,
  critic_size: float = 0.0,
  references: int = 0,
  teacher_bytes: int = 0,
  lora: LoraSettings = _ALL_TRAINED,
) -> transformer.Transformer:
  """Builds a decoder, for computing on a mesh.

  Args:
    config: the decoder's shape.
    mesh: the mesh of parameters and rows.
    rules: how parameters are sharded over the mesh.
    rows: section `learner`, with the packed rows of an update. None if the
      model is not trained.
    sampler_bytes: bytes of a sampler's weights and cache on each device. None
      if the size of the cache is unknown.
    state_size: bytes of a trained parameter and its moments.
    critic_size: the same of a critic of this shape; 0 without a critic.
    references: as in `remat.choose`.
    teacher_bytes: bytes on each device of a teacher that is another model.
    lora: section `lora` of the configuration.

  Raises:
    ValueError: the mesh cannot split the experts.
  """
  expert_sharding.check(config, mesh, rules, "config.mesh.expert")
  micro_rows = mesh_lib.padded_rows(rows.micro_rows, mesh) if rows else 1
  trained = None
  if lora.adapters is not None:
    trained = adapters.parameter_count(config, lora.adapters)
  whole = attention.resolve(model.attention, mesh, model.dtype) == "xla"
  remat = remat_lib.choose(
    model.remat,
    config,
    model.dtype,
    mesh,
    micro_rows * rows.row_length if rows else 1,
    rows.chunk_tokens if rows else 1,
    memory.capacity_bytes(mesh),
    inlined=transformer.is_inlined(model.layers, config.num_layers, mesh),
    sampler_bytes=sampler_bytes,
    state_size=state_size,
    critic_size=critic_size,
    references=references,
    teacher_bytes=teacher_bytes,
    row_length=rows.row_length if rows and whole else 0,
    trained=trained,
    base_bytes=lora.base_bytes(config, model.dtype),
  )
  return transformer.training(
    config,
    model.dtype,
    mesh,
    rules,
    attention_name=model.attention,
    max_sequences_per_row=(
      rows.max_sequences_per_row if rows else packing.MAX_SEQUENCES_PER_ROW
    ),
    remat=remat,
    layers=model.layers,
    lora=lora.adapters,
    kernel_dtype=lora.kernel_dtype,
    param_dtype=model.param_dtype,
  )
