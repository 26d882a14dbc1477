"""Roofline floors: the minimum seconds of a program, by part of the model.

A part takes the longer of its FLOPs and its bytes at data-sheet rates.
Recomputation, collectives and small operations (norms, token sampling) count
as free.
"""

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp

from azr_jax.lab.compile import parts
from azr_jax.models.config import ModelConfig
from azr_jax.models.operations import SamplingDtypes, cache_entry_bytes
from azr_jax.models.presets import parameter_count
from azr_jax.models.remat import STATE_SIZE
from azr_jax.parallel.chips import Chip

# Passes of an update over the tokens: one forward, and backward twice its work.
_TRAINING_PASSES = 3
# Bytes of a parameter's gradient, which an optimizer step reads.
_GRADIENT_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Shapes:
  """The size of one call of each program, over all devices.

  Attributes:
    chips: number of devices.
    tensor: number of devices that share a copy of the weights in sampling.
    row_length: tokens of a training row.
    rows: rows of a micro-batch.
    slots: number of sequences that are decoded together.
    context: mean tokens that a live slot holds.
    decode_steps: tokens per slot in a decode call.
    prefill_shapes: program -> rows of a call, and tokens per row.
    dtypes: dtypes of the sampler's weights and cache.
    adapters: number of trained parameters, if only adapters are trained.
    state_size: bytes of a trained parameter and its moments.
    critic_size: the same of the critic.
    expert: number of devices that share a layer's experts in sampling.
  """

  chips: int
  tensor: int
  row_length: int
  rows: int
  slots: int
  context: float
  decode_steps: int
  prefill_shapes: Mapping[str, tuple[int, int]]
  dtypes: SamplingDtypes
  adapters: int | None = None
  state_size: float = STATE_SIZE
  critic_size: float = STATE_SIZE
  expert: int = 1


@dataclasses.dataclass(frozen=True)
class _Work:
  """FLOPs and bytes on one device."""

  flops: float = 0.0
  bytes: float = 0.0


def call_floors(
  name: str, config: ModelConfig, chip: Chip, shapes: Shapes
) -> dict[str, float]:
  """Returns the minimum seconds of one call, by part of the model.

  A call of update or critic is one micro-batch and an optimizer step. A call
  of decode is all of its tokens. Prefilled rows start with an empty cache.

  Args:
    name: name of the program, as in `abstract.Program`.
    config: the model's config.
    chip: the device type.
    shapes: the sizes of a call.
  """
  s = shapes
  training = s.rows * s.row_length
  if name in ("score", "estimate", "prepare"):
    work = _forward(config, training / s.chips, s.row_length / 2)
  elif name in ("update", "critic"):
    forward = _forward(config, training / s.chips, s.row_length / 2)
    passes = dict.fromkeys(forward, _TRAINING_PASSES)
    trained = s.adapters
    if trained is None:
      trained = parameter_count(config)
    else:
      # Frozen matrices have no gradients.
      passes |= {part: _TRAINING_PASSES - 1 for part in _weights(config)}
    work = {part: _Work(passes[part] * w.flops) for part, w in forward.items()}
    size = s.state_size if name == "update" else s.critic_size
    # Parameters and moments are read and written.
    moved = _GRADIENT_BYTES + 2 * size
    work[parts.OPTIMIZER] = _Work(bytes=moved * trained / s.chips)
  elif name in s.prefill_shapes:
    work = _sampling(config, s, *s.prefill_shapes[name], 0.0)
    # Prefill samples no token, so it needs no logits.
    work[parts.LOGITS] = _Work()
  elif name == "decode":
    token = decode_token(config, chip, shapes)
    written = _entry_bytes(config, s) * s.slots * s.decode_steps / s.chips
    return {
      part: s.decode_steps * seconds for part, seconds in token.items()
    } | {parts.CACHE: written / chip.bandwidth}
  else:
    return {}
  if name in ("estimate", "critic"):
    # The critic has one output in place of the vocabulary.
    work[parts.LOGITS] = _Work()
  return _seconds(work, chip)


def decode_token(
  config: ModelConfig, chip: Chip, shapes: Shapes
) -> dict[str, float]:
  """Returns the minimum seconds of one decoded token of all slots, by part.

  Every group of devices reads its copy of the weights once, and the cache of
  its slots up to their lengths.
  """
  s = shapes
  work = _sampling(config, s, s.slots, 1, 0.0)
  cache = _entry_bytes(config, s) * s.slots * s.context / s.chips
  pairs = 4.0 * config.num_layers * config.num_heads * config.head_size
  work[parts.ATTENTION] = _Work(pairs * s.slots * s.context / s.chips, cache)
  return _seconds(work, chip)


def _seconds(work: dict[str, _Work], chip: Chip) -> dict[str, float]:
  """Returns the seconds of each part's work."""
  return {
    part: max(w.flops / chip.flops, w.bytes / chip.bandwidth)
    for part, w in work.items()
  }


def _weights(config: ModelConfig) -> dict[str, float]:
  """Returns the number of weights in matrix products, by part."""
  c = config
  heads = 2 * c.num_heads + 2 * c.num_kv_heads
  return {
    parts.PROJECTIONS: c.num_layers * c.hidden_size * c.head_size * heads,
    parts.MLP: 3.0 * c.num_layers * c.hidden_size * c.active_mlp_size,
    parts.LOGITS: float(c.vocab_size * c.hidden_size),
  }


def _entry_bytes(config: ModelConfig, s: Shapes) -> float:
  """Returns the bytes of a cached token, over all devices of a group."""
  return float(cache_entry_bytes(config, s.dtypes.cache))


def _forward(
  config: ModelConfig, tokens: float, context: float
) -> dict[str, _Work]:
  """Returns the work of a forward pass over the tokens of one device."""
  pairs = 4.0 * config.num_layers * config.num_heads * config.head_size
  work = {
    part: _Work(2.0 * weights * tokens)
    for part, weights in _weights(config).items()
  }
  return work | {parts.ATTENTION: _Work(pairs * tokens * context)}


def _sampling(
  config: ModelConfig, s: Shapes, sequences: int, tokens: int, before: float
) -> dict[str, _Work]:
  """Returns the work of one of the sampler's forward passes, on one device.

  Args:
    config: the model's config.
    s: the layout.
    sequences: number of sequences.
    tokens: new tokens per sequence.
    before: cached tokens per sequence.
  """
  total = sequences * tokens / s.chips
  work = _forward(config, total, before + tokens / 2)
  read = {}
  weights_read = _weights(config)
  if config.experts is not None:
    # Together, the sequences get nearly all experts.
    weights_read[parts.MLP] *= config.experts.count / config.experts.per_token
    weights_read[parts.MLP] /= s.expert
  for part, weights in weights_read.items():
    dtype = s.dtypes.head if part == parts.LOGITS else s.dtypes.kernels
    read[part] = weights * jnp.dtype(dtype).itemsize / s.tensor
  cache = _entry_bytes(config, s) * sequences * before / s.chips
  scored = _Work(work[parts.LOGITS].flops / tokens, read[parts.LOGITS])
  return {
    parts.PROJECTIONS: _Work(
      work[parts.PROJECTIONS].flops, read[parts.PROJECTIONS]
    ),
    parts.ATTENTION: _Work(work[parts.ATTENTION].flops, cache),
    parts.MLP: _Work(work[parts.MLP].flops, read[parts.MLP]),
    parts.LOGITS: scored,
  }
