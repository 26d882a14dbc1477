"""Reads GGUF files: the config from metadata, weights dequantized by `gguf`.

`gguf_export.py` writes these files, and `gguf_tokenizer` builds a file's
tokenizer.
"""

import io
import pathlib
import struct
from collections.abc import Collection, Mapping
from typing import Any, BinaryIO

import gguf
import numpy as np
from jaxtyping import Float

from azr_jax.config import user_files
from azr_jax.models.config import ModelConfig

ARCHITECTURES = ("llama", "qwen2", "qwen3")
# Tensor name stems: Hugging Face -> GGUF.
_GGUF_NAMES = {
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
_HUGGINGFACE_NAMES = {gguf: name for name, gguf in _GGUF_NAMES.items()}
# Metadata keys under the architecture's name that do not affect the model.
_IGNORED_KEYS = {"vocab_size", "rope.scaling.type", "rope.scaling.finetuned"}
_MAGIC = b"GGUF"
# Value types: id -> size in bytes, then the ids of strings and arrays.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
# Reading takes microseconds per value; vocabularies have some 100,000 values.
_MAX_VALUES = 1 << 22


class GGUFModel:
  """An open GGUF file: its config, metadata and tensors."""

  def __init__(self, path: pathlib.Path):
    """Opens the file and reads its config.

    Raises:
      ValueError: the file is damaged, or the decoder does not support what the
        metadata asks for; the message names key, value and what was expected.
    """
    self.path = path
    with user_files.reading(path, "a GGUF model"):
      _check_lengths(path)
      self._read(gguf.GGUFReader(path))

  def _read(self, reader: gguf.GGUFReader) -> None:
    """Reads metadata, tensors and config from an open file."""
    self.metadata: dict[str, Any] = {
      name: field.contents() for name, field in reader.fields.items()
    }
    self._tensors = {_huggingface_name(t.name): t for t in reader.tensors}
    self._architecture = self.metadata.get("general.architecture")
    if self._architecture not in ARCHITECTURES:
      raise _refuse(
        "general.architecture", self._architecture, f"one of {ARCHITECTURES}"
      )
    self.config = _read_config(
      self.metadata,
      self._architecture,
      vocab_size=self.shape("model.embed_tokens.weight")[0],
      tensors=self._tensors,
    )

  def names(self) -> Collection[str]:
    """Returns the Hugging Face names of all tensors."""
    return self._tensors.keys()

  def shape(self, name: str) -> tuple[int, ...]:
    """Returns a tensor's shape without reading it."""
    # GGUF lists the fastest axis first.
    return tuple(int(size) for size in reversed(self._tensors[name].shape))

  def read(
    self, name: str, index: tuple[slice, ...]
  ) -> Float[np.ndarray, "..."]:
    """Returns a range of a tensor, dequantized; reads only the rows in range.

    For q and k, the range must consist of whole heads.
    """
    tensor = self._tensors[name]
    # Quantization blocks lie along the last axis, so rows are independent.
    rows, columns = (index[0], index[1:]) if len(index) > 1 else (..., index)
    # Loading rejects non-finite weights, so no warning is needed.
    with np.errstate(all="ignore"):
      values = gguf.dequantize(tensor.data[rows], tensor.tensor_type)
    values = values[..., *columns]
    is_rotary = ".q_proj." in name or ".k_proj." in name
    if is_rotary and self._architecture == "llama":
      return _split_rotary_halves(values, self.config.head_size)
    return values


def _refuse(key: str, value: object, expected: str) -> ValueError:
  """Returns the error for metadata that the decoder does not support."""
  return user_files.Refusal(f"{key}={value!r}: expected {expected}")


def _read_config(
  metadata: Mapping[str, Any],
  architecture: str,
  vocab_size: int,
  tensors: Collection[str],
) -> ModelConfig:
  """Returns the model's config.

  Raises:
    ValueError: the decoder does not support a field's value.
  """
  prefix = f"{architecture}."
  fields = {
    key.removeprefix(prefix): value
    for key, value in metadata.items()
    if key.startswith(prefix)
  }

  def take(name: str, default: Any = None) -> Any:
    """Removes and returns a field that must have one value for all layers."""
    value = fields.pop(name, default)
    if value is None:
      raise _refuse(prefix + name, value, "a value")
    if isinstance(value, list):
      raise _refuse(prefix + name, value, "one value for all layers")
    return value

  scaling = fields.get("rope.scaling.type", "none")
  if scaling != "none":
    raise _refuse(prefix + "rope.scaling.type", scaling, "none")
  if "rope_freqs.weight" in tensors:
    raise _refuse("rope_freqs.weight", "a tensor", "no rope scaling")
  heads, hidden = take("attention.head_count"), take("embedding_length")
  head_size = take("attention.key_length", hidden // heads)
  for name in ("rope.dimension_count", "attention.value_length"):
    size = take(name, head_size)
    if size != head_size:
      raise _refuse(prefix + name, size, f"the head size, {head_size}")
  config = ModelConfig(
    vocab_size=vocab_size,
    hidden_size=hidden,
    num_layers=take("block_count"),
    num_heads=heads,
    num_kv_heads=take("attention.head_count_kv", heads),
    head_size=head_size,
    mlp_size=take("feed_forward_length"),
    rope_theta=float(take("rope.freq_base", 10000.0)),
    norm_eps=_short_float(take("attention.layer_norm_rms_epsilon")),
    tie_embeddings="lm_head.weight" not in tensors,
    max_positions=take("context_length"),
    qkv_bias="model.layers.0.self_attn.q_proj.bias" in tensors,
    qk_norm="model.layers.0.self_attn.q_norm.weight" in tensors,
    family=architecture,
  )
  for name, value in fields.items():
    if name not in _IGNORED_KEYS:
      raise _refuse(prefix + name, value, "a field that this decoder supports")
  return config


def _short_float(value: float) -> float:
  """Rounds a float32 to its shortest decimal: 1e-05, not 9.99999974e-06."""
  return float(str(np.float32(value)))


def gguf_name(name: str) -> str:
  """Maps `model.layers.3.mlp.up_proj.weight` to `blk.3.ffn_up.weight`."""
  stem, _, kind = name.rpartition(".")
  layer = ""
  if stem.startswith("model.layers."):
    number, _, stem = stem.removeprefix("model.layers.").partition(".")
    layer = f"blk.{number}."
  return f"{layer}{_GGUF_NAMES[stem]}.{kind}"


def _huggingface_name(name: str) -> str:
  """Maps `blk.3.ffn_up.weight` to `model.layers.3.mlp.up_proj.weight`.

  An unknown tensor name is returned unchanged, so that loading rejects it.
  """
  stem, _, kind = name.rpartition(".")
  layer = ""
  if stem.startswith("blk."):
    _, number, stem = stem.split(".", 2)
    layer = f"model.layers.{number}."
  if stem not in _HUGGINGFACE_NAMES:
    return name
  return f"{layer}{_HUGGINGFACE_NAMES[stem]}.{kind}"


def _split_rotary_halves(
  weights: Float[np.ndarray, "channels ..."], head_size: int
) -> Float[np.ndarray, "channels ..."]:
  """Reorders the channels of llama's q and k from pairs to halves.

  GGUF interleaves the two channels of a rotary pair; here they are E/2 apart.
  """
  out, *rest = weights.shape
  pairs = weights.reshape(out // head_size, head_size // 2, 2, *rest)
  return pairs.swapaxes(1, 2).reshape(weights.shape)


def interleave_rotary_halves(
  weights: Float[np.ndarray, "channels ..."], head_size: int
) -> Float[np.ndarray, "channels ..."]:
  """Reorders the channels of llama's q and k from halves to pairs, for export.

  Args:
    weights: the rows of all heads, E per head.
    head_size: E.

  Returns:
    The same rows, with the two rows of each rotary pair adjacent.
  """
  out, *rest = weights.shape
  halves = weights.reshape(out // head_size, 2, head_size // 2, *rest)
  return halves.swapaxes(1, 2).reshape(weights.shape)


def _check_lengths(path: pathlib.Path) -> None:
  """Checks the lengths in the metadata, which `gguf`'s reader trusts.

  With a damaged array length, the reader would read past the end of the file.

  Raises:
    ValueError: the file is not GGUF in this byte order, or a length exceeds the
      file.
  """
  with path.open("rb") as file:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(4) != _MAGIC:
      raise ValueError("expected a file that starts with GGUF")
    _, tensors, pairs = _unpack(file, "<IQQ")
    # Every key and every tensor takes more than 8 bytes.
    if 8 * (tensors + pairs) > size:
      raise ValueError(f"{tensors} tensors, {pairs} keys: expected fewer")
    values = 0
    for _ in range(pairs):
      _skip(file, size, *_unpack(file, "<Q"))
      (kind,) = _unpack(file, "<I")
      values += _skip_value(file, size, kind)
      if values > _MAX_VALUES:
        raise ValueError(f"expected at most {_MAX_VALUES} metadata values")


def _skip_value(file: BinaryIO, size: int, kind: int) -> int:
  """Skips a key's value and returns the number of scalar values it holds."""
  count, inner = 1, kind
  if kind == _ARRAY:
    inner, count = _unpack(file, "<IQ")
  if count > _MAX_VALUES:
    raise ValueError(f"an array of {count} values: expected fewer")
  if inner in _SIZES:
    _skip(file, size, count * _SIZES[inner])
  elif inner == _STRING:
    for _ in range(count):
      _skip(file, size, *_unpack(file, "<Q"))
  else:
    raise ValueError(f"a value of type {inner}: expected a known type")
  return count


def _skip(file: BinaryIO, size: int, count: int) -> None:
  if count > size - file.tell():
    raise ValueError(f"a length of {count} bytes: expected one inside the file")
  file.seek(count, io.SEEK_CUR)


def _unpack(file: BinaryIO, struct_format: str) -> tuple[int, ...]:
  data = file.read(struct.calcsize(struct_format))
  if len(data) < struct.calcsize(struct_format):
    raise ValueError("expected more metadata before the end of the file")
  return struct.unpack(struct_format, data)
