"""A family: how its files describe a decoder.

A family is data and two functions. It reads the fields of config.json into a
`ModelConfig`, writes them back, and names the tensors of a checkpoint. What is
computed follows from the `ModelConfig` alone.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import llama_cpp
from azr_jax.models.families.fields import ConfigFields
from azr_jax.models.families.ropes import Rope, write

# The modules of Llama's checkpoints; a layer's are below `model.layers.N`. Most
# families use the same names.
MODULES: Mapping[str, str] = {
  "embedding": "model.embed_tokens",
  "head": "lm_head",
  "final_norm": "model.norm",
  "attention_norm": "input_layernorm",
  "mlp_norm": "post_attention_layernorm",
  "q_norm": "self_attn.q_norm",
  "k_norm": "self_attn.k_norm",
  **{name: f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")},
  **{name: f"mlp.{name}_proj" for name in ("gate", "up", "down")},
  "attention": "self_attn",
}


@dataclasses.dataclass(frozen=True)
class Family:
  """One value of `model_type`.

  Attributes:
    name: the value of `model_type`.
    architecture: the class in transformers.
    read: returns the decoder of some fields, and takes all that it knows.
    write: returns the fields of a decoder; those in which it lacks the decoder
      come back as other values and are refused (`huggingface_config.py`).
    modules: names of modules that differ from `MODULES`.
    fused: module of a layer that holds several projections, one after the
      other -> their names.
    expert_tensors: a projection of experts -> the tensor with the kernels [X,
      in, out] of a layer's experts. If projections share a tensor, its columns
      take turns. Biases have the same name and `_bias`.
    gguf: the family in llama.cpp's files, if we read and write them.
  """

  name: str
  architecture: str
  read: Callable[[ConfigFields], ModelConfig]
  write: Callable[[ModelConfig], dict[str, Any]]
  modules: Mapping[str, str] = dataclasses.field(default_factory=dict)
  fused: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  expert_tensors: Mapping[str, str] = dataclasses.field(default_factory=dict)
  gguf: llama_cpp.Gguf | None = None

  def module(self, name: str) -> str:
    """Returns a module's name in a checkpoint."""
    return self.modules.get(name) or MODULES[name]

  def gguf_modules(self) -> dict[str, str]:
    """Returns the modules of a checkpoint with their names in GGUF files."""
    stems = {
      module: llama_cpp.FUSED[names] for module, names in self.fused.items()
    }
    fused = {name for names in self.fused.values() for name in names}
    # A family's own names come first: it may call another module so.
    for name in (*self.modules, *MODULES):
      if name in llama_cpp.MODULES and name not in fused:
        module, stem = self.module(name), llama_cpp.MODULES[name]
        of_experts = "{expert}" in module
        stems.setdefault(module, stem + llama_cpp.EXPERTS * of_experts)
    return stems


def read_shape(
  fields: ConfigFields, rope: Rope, *, named_head_size: bool = False
) -> dict[str, Any]:
  """Reads the fields that all families share, as arguments of `ModelConfig`.

  Args:
    fields: the fields of a config.json.
    rope: the rotary parameters.
    named_head_size: whether `head_dim` must be given, because it need not be
      hidden_size / heads.
  """
  fields.require(is_encoder_decoder=False)
  heads, hidden = fields.size("num_attention_heads"), fields.size("hidden_size")
  return dict(
    vocab_size=fields.size("vocab_size"),
    hidden_size=hidden,
    num_layers=fields.size("num_hidden_layers"),
    num_heads=heads,
    num_kv_heads=fields.size("num_key_value_heads", heads),
    head_size=fields.size(
      "head_dim", None if named_head_size else hidden // heads
    ),
    mlp_size=fields.size("intermediate_size"),
    rope_theta=rope.theta,
    rope_scaling=rope.scaling,
    norm_eps=fields.positive("rms_norm_eps"),
    tie_embeddings=fields.flag("tie_word_embeddings", default=False),
    max_positions=fields.size("max_position_embeddings"),
  )


def require_llama_layers(fields: ConfigFields) -> None:
  """Checks that layers have Llama's activation and no biases."""
  fields.require(
    hidden_act="silu",
    attention_bias=False,
    mlp_bias=False,
    rope_interleaved=False,
    partial_rotary_factor=1.0,
  )


def write_shape(config: ModelConfig) -> dict[str, Any]:
  """Returns the fields that all families share."""
  return {
    "vocab_size": config.vocab_size,
    "hidden_size": config.hidden_size,
    "num_hidden_layers": config.num_layers,
    "num_attention_heads": config.num_heads,
    "num_key_value_heads": config.num_kv_heads,
    "head_dim": config.head_size,
    "intermediate_size": config.mlp_size,
    "rope_theta": config.rope_theta,
    "rope_scaling": write(config.rope_scaling),
    "rms_norm_eps": config.norm_eps,
    "tie_word_embeddings": config.tie_embeddings,
    "max_position_embeddings": config.max_positions,
    "hidden_act": "silu",
  }
