"""How many operations and bytes a decoder's passes need, from its shape."""

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike

from azr_jax.models import quantization
from azr_jax.models.config import ModelConfig
from azr_jax.models.presets import parameter_count

_SCALE_BYTES = 4


class SamplingDtypes(NamedTuple):
  """The types of what decoding reads for each token.

  Attributes:
    head: of the output head.
    kernels: of the layers' kernels.
    cache: of keys and values.
  """

  head: DTypeLike
  kernels: DTypeLike
  cache: DTypeLike


def multiplied_weights(c: ModelConfig) -> int:
  """Returns the number of weights that every token is multiplied with.

  An input table that is not the output head is indexed, not multiplied.
  """
  table = 0 if c.tie_embeddings else c.vocab_size * c.hidden_size
  return parameter_count(c) - table


def forward_flops(c: ModelConfig, tokens: float, context: float) -> float:
  """Returns the operations of a forward pass.

  Args:
    c: the decoder's config.
    tokens: number of tokens.
    context: mean number of tokens that each of them attends to.
  """
  attention = 4.0 * c.num_layers * c.num_heads * c.head_size * context
  return tokens * (2.0 * multiplied_weights(c) + attention)


def training_flops(c: ModelConfig, lengths: Iterable[int]) -> float:
  """Returns the operations of learning from whole sequences once.

  The backward pass has twice the operations of the forward pass; what is
  recomputed is not counted (PaLM, arXiv 2204.02311, appendix B). Token t of a
  sequence attends to t tokens, itself included.

  Args:
    c: the decoder's config.
    lengths: tokens of each sequence.
  """
  return 3.0 * sum(forward_flops(c, n, (n + 1) / 2) for n in lengths)


def weight_bytes(c: ModelConfig, dtypes: SamplingDtypes) -> float:
  """Returns the bytes of the weights that every token is multiplied with."""
  head = c.vocab_size * c.hidden_size
  kernels = multiplied_weights(c) - head
  return float(
    jnp.dtype(dtypes.head).itemsize * head
    + jnp.dtype(dtypes.kernels).itemsize * kernels
  )


def cache_entry_bytes(c: ModelConfig, dtype: DTypeLike) -> int:
  """Returns the bytes of one token's keys and values in all layers.

  Args:
    c: the decoder's config.
    dtype: type of the cache.
  """
  scale = _SCALE_BYTES if quantization.is_quantized(dtype) else 0
  per_head = jnp.dtype(dtype).itemsize * c.head_size + scale
  return 2 * c.num_layers * c.num_kv_heads * per_head


def decode_bytes(
  c: ModelConfig,
  dtypes: SamplingDtypes,
  weight_reads: float,
  entry_reads: float,
) -> float:
  """Returns the bytes that decoding had to read from the devices' memory.

  Args:
    c: the decoder's config.
    dtypes: of weights and cache.
    weight_reads: how often a copy of the weights was read: once for each token
      that a group of devices with a copy decoded in all of its slots together.
    entry_reads: how many cache entries were read: for each token, as many as
      its sequence had before it.
  """
  weights = weight_bytes(c, dtypes) * weight_reads
  return weights + cache_entry_bytes(c, dtypes.cache) * entry_reads
