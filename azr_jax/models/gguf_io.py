"""GGUF files in: config from the metadata, weights dequantised by `gguf`."""

import pathlib
from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np

from azr_jax.models.config import ModelConfig
from azr_jax.models.weight_loading import ReadTensor

ARCHITECTURES = ("llama", "qwen2", "qwen3")
# Hugging Face tensor name parts -> GGUF's.
_NAMES = {
  "model.embed_tokens": "token_embd",
  "model.norm": "output_norm",
  "lm_head": "output",
  "input_layernorm": "attn_norm",
  "post_attention_layernorm": "ffn_norm",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  "self_attn.q_norm": "attn_q_norm",
  "self_attn.k_norm": "attn_k_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
}


class GGUFModel:
  """An open GGUF file."""

  def __init__(self, path: pathlib.Path):
    """Opens the file and reads its config.

    Raises:
      ValueError: an architecture or rope scaling that the decoder lacks.
    """
    self._reader = gguf.GGUFReader(path)
    self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
    fields = {
      name: field.contents() for name, field in self._reader.fields.items()
    }
    self._architecture = fields["general.architecture"]
    if self._architecture not in ARCHITECTURES:
      raise ValueError(
        f"{path.name} general.architecture={self._architecture!r}: expected "
        f"one of {ARCHITECTURES}"
      )
    self.config = self._read_config(fields)

  def _read_config(self, fields: Mapping[str, Any]) -> ModelConfig:
    prefix = self._architecture

    def field(name: str, default: Any = None) -> Any:
      value = fields.get(f"{prefix}.{name}", default)
      if value is None:
        raise ValueError(f"the GGUF file lacks {prefix}.{name}")
      return value

    scaling = fields.get(f"{prefix}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in self._tensors:
      raise ValueError(f"GGUF rope scaling {scaling!r}: expected none")
    heads, hidden = field("attention.head_count"), field("embedding_length")
    return ModelConfig(
      vocab_size=int(self._tensors["token_embd.weight"].shape[1]),
      hidden_size=hidden,
      num_layers=field("block_count"),
      num_heads=heads,
      num_kv_heads=field("attention.head_count_kv", heads),
      head_size=field("attention.key_length", hidden // heads),
      mlp_size=field("feed_forward_length"),
      rope_theta=float(field("rope.freq_base", 10000.0)),
      norm_eps=float(field("attention.layer_norm_rms_epsilon")),
      tie_embeddings="output.weight" not in self._tensors,
      max_positions=field("context_length"),
      qkv_bias="blk.0.attn_q.bias" in self._tensors,
      qk_norm="blk.0.attn_q_norm.weight" in self._tensors,
    )

  def reader(self) -> ReadTensor:
    """Returns a function that dequantises one tensor by Hugging Face name."""

    def read(name: str) -> np.ndarray:
      tensor = self._tensors[_gguf_name(name)]
      values = gguf.dequantize(tensor.data, tensor.tensor_type)
      values = values.astype(np.float32, copy=False)
      if self._architecture == "llama":
        if ".q_proj." in name:
          return _undo_rope_layout(values, self.config.num_heads)
        if ".k_proj." in name:
          return _undo_rope_layout(values, self.config.num_kv_heads)
      return values

    return read


def _gguf_name(name: str) -> str:
  """`model.layers.3.mlp.up_proj.weight` -> `blk.3.ffn_up.weight`."""
  stem, _, kind = name.rpartition(".")
  if stem.startswith("model.layers."):
    layer, _, part = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{_NAMES[part]}.{kind}"
  return f"{_NAMES[stem]}.{kind}"


def _undo_rope_layout(weights: np.ndarray, heads: int) -> np.ndarray:
  """GGUF interleaves the rotary pairs of llama's q and k; we split halves."""
  out, *rest = weights.shape
  pairs = weights.reshape(heads, out // heads // 2, 2, *rest)
  return pairs.swapaxes(1, 2).reshape(weights.shape)
