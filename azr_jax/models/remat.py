"""Chooses what the backward pass recomputes, by a device's memory."""

import jax.numpy as jnp
from jax.sharding import Mesh

from azr_jax.models.config import ModelConfig
from azr_jax.models.presets import (
  expert_parameter_count,
  parameter_count,
)
from azr_jax.models.transformer import AUTO
from azr_jax.parallel import mesh as mesh_lib

# Fraction of a device that an update's state and activations may take.
_ROOM = 0.92
# Bytes of a parameter's summed gradient, and of its value and two moments in
# float32. A copy in the compute type is counted separately.
_GRADIENT, STATE_SIZE = 4, 12.0
# Values of `model.remat` that suit a loop over layers.
_LOOP_KINDS = ("dots", "attention")


def choose(
  remat: str,
  config: ModelConfig,
  dtype: str,
  mesh: Mesh,
  tokens: int,
  chunk_tokens: int,
  capacity: int | None,
  *,
  inlined: bool,
  sampler_bytes: float | None,
  state_size: float = STATE_SIZE,
  critic_size: float = 0.0,
  references: int = 0,
  teacher_bytes: int = 0,
  row_length: int = 0,
  trained: int | None = None,
  base_bytes: int = 0,
) -> str:
  """Replaces `auto` by the value that recomputes least and fits in memory.

  Args:
    remat: a value of `model.remat`; returned unchanged unless it is `auto`.
    config: the model's shape.
    dtype: name of the compute type.
    mesh: the mesh of parameters and rows.
    tokens: tokens of a micro-batch, on all devices.
    chunk_tokens: tokens whose logits exist at once.
    capacity: bytes of a device, or None if unknown.
    inlined: whether each layer has its own code in the program. Otherwise a
      loop copies all activations that it keeps into stacks, so cheap ones are
      recomputed.
    sampler_bytes: bytes of a sampler's weights and cache on each device. None
      if the size of the cache is unknown; the sampler then gets half of the
      memory.
    state_size: bytes of a trained parameter and its moments.
    critic_size: the same of a critic of this shape; 0 without a critic.
    references: further copies of the trained parameters, in the compute type.
    teacher_bytes: bytes on each device of a teacher that is another model.
    row_length: tokens per row if attention computes whole matrices of scores,
      0 for flash attention.
    trained: number of trained parameters; None trains all.
    base_bytes: bytes of the frozen parameters, if only some are trained.
  """
  if remat != AUTO:
    return remat
  if mesh_lib.platform(mesh) == "cpu":
    return "none"
  if capacity is None:
    return "full"
  tensor = mesh.shape["tensor"]
  held = held_fraction(config, mesh)
  count = parameter_count(config) * held
  size = jnp.dtype(dtype).itemsize
  room = _ROOM * capacity - teacher_bytes
  room -= count * size if trained is None else base_bytes * held
  count = count if trained is None else trained * held
  room -= (state_size + _GRADIENT) * count
  # Policy and critic are updated one after the other, so the critic's gradients
  # do not exist while the policy is updated.
  room -= (critic_size + size * references) * count
  room = room / 2 if sampler_bytes is None else room - sampler_bytes
  shards = mesh_lib.batch_devices(mesh) * mesh.shape["context"]
  tokens = -(-tokens // shards)
  logits = (4 + size) * min(chunk_tokens, tokens) * config.vocab_size / tensor
  if mesh.shape["fsdp"] > 1:
    # The head is gathered, and so is its gradient before it is scattered.
    logits += (4 + size) * config.vocab_size * config.hidden_size / tensor
  # The backward pass holds one layer's arrays and their gradients.
  layer = kept_numbers(config, "none", tensor)
  layer *= 2 * size
  # Scores and their softmax are float32; only `none` keeps every layer's.
  scores = 8 * row_length * config.num_heads / tensor
  for kind in ("none", "dots", "attention") if inlined else _LOOP_KINDS:
    kept = size * kept_numbers(config, kind, tensor)
    kept += scores * (kind == "none")
    total = tokens * (layer + 2 * scores + config.num_layers * kept)
    if total + logits <= room:
      return kind
  return "full"


def held_fraction(config: ModelConfig, mesh: Mesh) -> float:
  """Returns the fraction of the parameters that a device of a mesh holds."""
  of_experts = expert_parameter_count(config) / parameter_count(config)
  of_experts *= 1 - 1 / mesh.shape["expert"]
  return (1 - of_experts) / (mesh.shape["fsdp"] * mesh.shape["tensor"])


def kept_numbers(config: ModelConfig, remat: str, tensor: int = 1) -> float:
  """Returns how many numbers a layer with flash attention keeps per token.

  Args:
    config: the model's shape.
    remat: one of `transformer.REMAT_POLICIES`.
    tensor: devices over which heads and the MLP's channels are split.
  """
  c = config
  heads = c.num_heads * c.head_size / tensor
  keys = 2 * c.num_kv_heads * c.head_size / tensor
  mlp = c.mlp_size / tensor
  of_mlp, of_dots = 3 * mlp, 2 * mlp
  if c.experts is not None:
    # Products of experts are recomputed by all values but `none`.
    of_mlp, of_dots = _expert_numbers(config, tensor), 0
  return {
    # Inputs of norms and products, and inputs and outputs of attention.
    "none": (4 + 2 * c.norm_after) * c.hidden_size + 2 * heads + keys + of_mlp,
    "dots": 2 * c.hidden_size + 2 * heads + keys + of_dots,
    "attention": c.hidden_size + heads,
    "full": c.hidden_size,
  }[remat]


def _expert_numbers(config: ModelConfig, tensor: int) -> float:
  """Returns the numbers in the inputs and outputs of a token's experts."""
  if config.experts is None:
    return 0.0
  sizes = 2 * config.hidden_size + 3 * config.experts.size / tensor
  return config.experts.per_token * sizes
