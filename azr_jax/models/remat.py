"""Chooses what the backward pass recomputes, from the memory of a device."""

import jax.numpy as jnp
from jax.sharding import Mesh

from azr_jax.models.config import ModelConfig
from azr_jax.models.presets import parameter_count
from azr_jax.parallel import mesh as mesh_lib

# Fraction of a device that an update's state and activations may take.
_ROOM = 0.92
# float32 copies of the parameters: they, two moments and summed gradients. One
# in the type of the computation exists besides.
_COPIES = 4


def choose(
  config: ModelConfig,
  dtype: str,
  mesh: Mesh,
  tokens: int,
  chunk_tokens: int,
  capacity: int | None,
  *,
  inlined: bool,
  sampled: bool,
) -> str:
  """Returns the `model.remat` that recomputes least of what fits.

  Args:
    config: the model's.
    dtype: name of the compute type.
    mesh: where parameters and rows lie.
    tokens: of a micro-batch, on all devices.
    chunk_tokens: tokens whose logits exist at once.
    capacity: bytes of a device; None: unknown.
    inlined: whether layers are parts of the program. In a loop, all that is
      kept is also copied into stacks, so what is cheap is recomputed.
    sampled: whether the devices also hold a sampler's weights and cache.
  """
  if mesh_lib.platform(mesh) == "cpu":
    return "none"
  if capacity is None:
    return "full"
  tensor = mesh.shape["tensor"]
  count = parameter_count(config) / (mesh.shape["fsdp"] * tensor)
  size = jnp.dtype(dtype).itemsize
  room = _ROOM * capacity
  room -= (4 * _COPIES + size) * count
  if sampled:
    room /= 2
  shards = mesh_lib.batch_devices(mesh) * mesh.shape["context"]
  tokens = -(-tokens // shards)
  logits = (4 + size) * min(chunk_tokens, tokens) * config.vocab_size / tensor
  # One layer's arrays, gradients too, exist in the backward pass.
  layer = 2 * kept_numbers(config, "none", tensor)
  for remat in (
    ("none", "dots", "attention")
    if inlined
    else (
      "dots",
      "attention",
    )
  ):
    kept = config.num_layers * kept_numbers(config, remat, tensor)
    if size * tokens * (layer + kept) + logits <= room:
      return remat
  return "full"


def kept_numbers(config: ModelConfig, remat: str, tensor: int = 1) -> float:
  """Returns the numbers of a token that a layer keeps, of flash attention.

  Args:
    config: the model's.
    remat: one of `transformer.REMAT_POLICIES`.
    tensor: devices over which heads and the MLP's channels are split.
  """
  c = config
  heads = c.num_heads * c.head_size / tensor
  keys = 2 * c.num_kv_heads * c.head_size / tensor
  mlp = c.mlp_size / tensor
  return {
    # Inputs of norms and of products, and what attention reads and writes.
    "none": 4 * c.hidden_size + 2 * heads + keys + 3 * mlp,
    "dots": 2 * c.hidden_size + 2 * heads + keys + 2 * mlp,
    "attention": c.hidden_size + heads,
    "full": c.hidden_size,
  }[remat]
