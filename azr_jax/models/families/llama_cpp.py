"""A family's names in llama.cpp's files (GGUF)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from azr_jax.models.config import ModelConfig

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
  **{name: f"attn_{name}" for name in ("q", "k", "v")},
  **{name: f"ffn_{name}" for name in ("gate", "up", "down")},
}


@dataclasses.dataclass(frozen=True)
class Gguf:
  """A family's metadata in GGUF files, besides the shape that all have.

  Attributes:
    architecture: llama.cpp's name of the family, and prefix of the keys.
    fields: key -> field of config.json.
    implied: returns the fields of config.json that llama.cpp derives from
      others.
    written: returns the values of `fields` for a decoder.
  """

  architecture: str
  fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
  implied: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda _: {}
  written: Callable[[ModelConfig], dict[str, int | float]] = lambda _: {}
