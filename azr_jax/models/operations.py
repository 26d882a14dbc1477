"""FLOPs and bytes of a decoder's passes, computed from its shape."""

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike

from azr_jax.models import quantization
from azr_jax.models.config import ModelConfig
from azr_jax.models.presets import active_parameter_count, parameter_count

_SCALE_BYTES = 4


class SamplingDtypes(NamedTuple):
  """Dtypes of the data that decoding reads for each token.

  Attributes:
    head: dtype of the output head.
    kernels: dtype of the layers' kernels.
    cache: dtype of keys and values.
  """

  head: DTypeLike
  kernels: DTypeLike
  cache: DTypeLike


def multiplied_weights(config: ModelConfig) -> int:
  """Returns the number of weights that multiply a token.

  An input table that is not also the output head is indexed, not multiplied.
  Neither are the experts that the token does not get.
  """
  return active_parameter_count(config) - _indexed_weights(config)


def _indexed_weights(config: ModelConfig) -> int:
  """Returns the number of weights of a table that multiplies no token."""
  return 0 if config.tie_embeddings else config.vocab_size * config.hidden_size


def forward_flops(config: ModelConfig, tokens: float, context: float) -> float:
  """Returns the FLOPs of a forward pass.

  Args:
    config: the decoder's config.
    tokens: number of tokens.
    context: mean number of tokens that each token attends to, over tokens and
      layers.
  """
  attention = (
    4.0 * config.num_layers * config.num_heads * config.head_size * context
  )
  return tokens * (2.0 * multiplied_weights(config) + attention)


def mean_context(config: ModelConfig, length: int) -> float:
  """Returns how many tokens those of a sequence attend to, on average.

  Token t attends to t tokens, including itself, or to those of a window. The
  mean is over tokens and layers.

  Args:
    config: the decoder's config.
    length: number of tokens of the sequence.
  """
  if not config.windows:
    return (length + 1) / 2
  seen = 0.0
  for window in config.windows:
    full = min(length, window or length)
    seen += full * (full + 1) / 2 + (length - full) * full
  return seen / (max(length, 1) * config.num_layers)


def training_flops(
  config: ModelConfig, lengths: Iterable[int], frozen: bool = False
) -> float:
  """Returns the FLOPs of training on whole sequences once.

  The backward pass has twice the FLOPs of the forward pass; recomputation is
  not counted (PaLM, arXiv 2204.02311, appendix B).

  Args:
    config: the decoder's config.
    lengths: number of tokens of each sequence.
    frozen: whether only adapters are trained. The backward pass then computes
      no gradients of weights; the adapters' own FLOPs are not counted.
  """
  lengths = list(lengths)
  flops = 3.0 * sum(
    forward_flops(config, n, mean_context(config, n)) for n in lengths
  )
  return flops - frozen * weight_gradient_flops(config, sum(lengths))


def weight_gradient_flops(config: ModelConfig, tokens: float) -> float:
  """Returns the FLOPs of the gradients of all matrices."""
  return 2.0 * tokens * multiplied_weights(config)


def weight_bytes(config: ModelConfig, dtypes: SamplingDtypes) -> float:
  """Returns the bytes of the weights that multiply a batch of tokens.

  The tokens of a batch get all experts, together.
  """
  head = config.vocab_size * config.hidden_size
  kernels = parameter_count(config) - _indexed_weights(config) - head
  return float(
    jnp.dtype(dtypes.head).itemsize * head
    + jnp.dtype(dtypes.kernels).itemsize * kernels
  )


def cache_entry_bytes(config: ModelConfig, dtype: DTypeLike) -> int:
  """Returns the bytes of one token's keys and values in all layers."""
  scale = _SCALE_BYTES if quantization.is_quantized(dtype) else 0
  per_head = jnp.dtype(dtype).itemsize * config.head_size + scale
  return 2 * config.num_layers * config.num_kv_heads * per_head


def decode_bytes(
  config: ModelConfig,
  dtypes: SamplingDtypes,
  weight_reads: float,
  entry_reads: float,
) -> float:
  """Returns the bytes that decoding must read from device memory.

  Args:
    config: the decoder's config.
    dtypes: dtypes of weights and cache.
    weight_reads: number of times a copy of the weights was read. A group of
      devices with one copy reads it once per token, for all its slots together.
    entry_reads: number of cache entries read. Each token reads as many as its
      sequence had before it; sliding windows, which read fewer, are ignored.
  """
  weights = weight_bytes(config, dtypes) * weight_reads
  return weights + cache_entry_bytes(config, dtypes.cache) * entry_reads
