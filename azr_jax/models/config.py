"""The config of a decoder: every number that its computation depends on."""

import dataclasses
from typing import Any

# Slightly below the largest float32, in which devices compute.
MAX_FLOAT = 3.4e38


@dataclasses.dataclass(frozen=True)
class Llama3RopeScaling:
  """Frequency scaling of Llama 3.1 (`rope_type: llama3`).

  Attributes:
    factor: divisor of the frequencies with long wavelengths.
    low_freq_factor: wavelengths above `original_max_position` divided by this
      are long.
    high_freq_factor: wavelengths below `original_max_position` divided by this
      keep their frequency; those in between are blended.
    original_max_position: maximum sequence length before context extension.
  """

  factor: float
  low_freq_factor: float
  high_freq_factor: float
  original_max_position: int


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """One decoder for Llama 3, SmolLM2, Qwen2/2.5 and Qwen3.

  Attributes:
    vocab_size: V.
    hidden_size: D.
    num_layers: L.
    num_heads: H, query heads.
    num_kv_heads: K, key and value heads; divides H.
    head_size: E.
    mlp_size: F.
    rope_theta: base of the rotary frequencies.
    norm_eps: epsilon of every RMSNorm.
    tie_embeddings: whether the output head is the transposed embedding.
    max_positions: maximum sequence length in tokens.
    rope_scaling: frequency scaling of Llama 3.1, or None.
    qkv_bias: whether the q, k and v projections have biases (Qwen2).
    qk_norm: whether each query and key head has an RMSNorm (Qwen3).
  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_size: int
  mlp_size: int
  rope_theta: float
  norm_eps: float
  tie_embeddings: bool
  max_positions: int
  rope_scaling: Llama3RopeScaling | None = None
  qkv_bias: bool = False
  qk_norm: bool = False

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if field.type is int and not (_is_of(value, int) and 0 < value < 1 << 31):
        raise ValueError(f"{field.name}={value!r}: expected a positive integer")
      if field.type is float and not (
        _is_of(value, int | float) and 0 < value < MAX_FLOAT
      ):
        raise ValueError(f"{field.name}={value!r}: expected a positive number")
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f"num_heads={self.num_heads}: expected a multiple of "
        f"num_kv_heads={self.num_kv_heads}"
      )
    if self.head_size % 2:
      raise ValueError(
        f"head_size={self.head_size}: expected an even number for RoPE"
      )


def _is_of(value: object, kind: Any) -> bool:
  """Returns whether a value is a number of a type; bools are not numbers."""
  return isinstance(value, kind) and not isinstance(value, bool)
