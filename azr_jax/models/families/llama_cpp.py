"""A family's names in llama.cpp's files (GGUF)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float32

from azr_jax.models import rope
from azr_jax.models.config import Llama3RopeScaling, ModelConfig

# Tensor -> the divisors of the rotary frequencies that it holds.
Factors: TypeAlias = Mapping[str, Float32[np.ndarray, " pairs"]]

_Implied: TypeAlias = Callable[[Mapping[str, Any], Factors], dict[str, Any]]

# Our modules in GGUF files, in any family; a layer's are below `blk.N`.
MODULES: Mapping[str, str] = {
  "embedding": "token_embd",
  "head": "output",
  "final_norm": "output_norm",
  "attention_norm": "attn_norm",
  "attention_post_norm": "post_attention_norm",
  "mlp_norm": "ffn_norm",
  "mlp_post_norm": "post_ffw_norm",
  "q_norm": "attn_q_norm",
  "k_norm": "attn_k_norm",
  "o": "attn_output",
  "router": "ffn_gate_inp",
  **{name: f"attn_{name}" for name in ("q", "k", "v")},
  **{name: f"ffn_{name}" for name in ("gate", "up", "down")},
}
# Ends the name of a tensor that holds a projection of all experts of a layer.
EXPERTS = "_exps"
# Projections that share a tensor -> its name.
FUSED: Mapping[tuple[str, ...], str] = {
  ("q", "k", "v"): "attn_qkv",
  ("gate", "up"): "ffn_up",
}
LLAMA_3_FACTORS = "rope_freqs.weight"


@dataclasses.dataclass(frozen=True)
class Gguf:
  """A family's metadata in GGUF files, besides the shape that all have.

  Attributes:
    architecture: llama.cpp's name of the family, and prefix of the keys.
    fields: key -> field of config.json.
    implied: returns the fields of config.json that llama.cpp derives from
      others and from the tensors of `factors`.
    written: returns values of `fields` that config.json has otherwise. Raises
      ValueError for a decoder that llama.cpp lacks.
    pairs_channels: whether the two channels of a rotary pair are adjacent, in
      the rows of q and k.
    factors: names of the tensors that `implied` reads, if a file has them.
    scaled: returns the tensors that scale the rotary frequencies.
  """

  architecture: str
  fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
  implied: _Implied = lambda *_: {}
  written: Callable[[ModelConfig], dict[str, int | float]] = lambda _: {}
  pairs_channels: bool = False
  factors: tuple[str, ...] = ()
  scaled: Callable[[ModelConfig], Factors] = lambda _: {}


def llama_3_factors(config: ModelConfig) -> Factors:
  """Returns the tensor of Llama 3's scaling, which no file describes further.

  So it is written, and refused when read.
  """
  if not isinstance(config.rope_scaling, Llama3RopeScaling):
    return {}
  return {LLAMA_3_FACTORS: rope.scaling_factors(config)}


def require_whole_heads(config: ModelConfig) -> None:
  """Checks that heads have D / H channels, where llama.cpp assumes it.

  Raises:
    ValueError: heads have another size.
  """
  usual = config.hidden_size // config.num_heads
  if config.head_size != usual:
    raise ValueError(
      f"head_size={config.head_size}: expected {usual}, hidden_size / "
      "num_heads, to save as GGUF"
    )
