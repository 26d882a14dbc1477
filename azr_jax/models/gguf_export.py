"""Writes GGUF files, for llama.cpp and programs built on it.

`gguf_io.py` reads them back. Tensors are written one at a time, so the host
holds only one. Norms, biases and rotary factors are float32, as llama.cpp
expects; matrices have the requested type.
"""

import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import gguf
import numpy as np
from jaxtyping import Float, Num

from azr_jax.models import (
  adapters,
  gguf_io,
  gguf_tokenizer,
  huggingface_config,
  rope,
  weight_loading,
  weight_names,
)
from azr_jax.models.config import Llama3RopeScaling, ModelConfig
from azr_jax.models.families import registry
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.types import Params

_Kind = gguf.GGMLQuantizationType
# Matrix type -> GGUF's type of tensors, and of the whole file.
_FILE_TYPES = {
  "float32": (_Kind.F32, gguf.LlamaFileType.ALL_F32),
  "float16": (_Kind.F16, gguf.LlamaFileType.MOSTLY_F16),
  "bfloat16": (_Kind.BF16, gguf.LlamaFileType.MOSTLY_BF16),
  "q8_0": (_Kind.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}
DTYPES = tuple(_FILE_TYPES)
_ROPE_FACTORS = "rope_freqs.weight"
# Name, shape in the checkpoint, and a function that returns the values.
_Tensor = tuple[str, tuple[int, ...], Callable[[], Float[np.ndarray, "..."]]]


def save(
  params: Params,
  config: ModelConfig,
  tokenizer: Tokenizer,
  path: pathlib.Path,
  *,
  dtype: str,
  name: str,
  lora: adapters.Lora | None = None,
) -> None:
  """Writes a model and its tokenizer as one file.

  Args:
    params: the parameters, sharded or not.
    config: the model's config.
    tokenizer: byte-level BPE, or sentencepiece of characters and symbols.
    path: the file; an existing one is replaced once the new one is complete.
    dtype: type of the matrices, one of `DTYPES`.
    name: the model's name in the metadata.
    lora: the adapters in `params`, to merge into their kernels.

  Raises:
    ValueError: the tokenizer is of another type, no GGUF architecture has the
      model's shape, or a row does not divide into `q8_0` blocks.
  """
  kind, file_type = _FILE_TYPES[dtype]
  architecture = _architecture(config)
  _check_rows(config, kind)
  partial = path.with_name(f"{path.name}.partial")
  writer = gguf.GGUFWriter(partial, architecture)
  writer.add_name(name)
  writer.add_file_type(file_type)
  writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
  _add_shape(writer, config)
  for key, value in gguf_tokenizer.metadata(
    tokenizer, config.vocab_size
  ).items():
    _add(writer, key, value)
  for title, shape, _ in _tensors(params, config, architecture, lora):
    raw = _raw_kind(shape, title, kind)
    size = math.prod(gguf.quant_shape_to_byte_shape(shape, raw))
    writer.add_tensor_info(title, shape, np.dtype(np.float32), size, raw)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_ti_data_to_file()
  for title, shape, read in _tensors(params, config, architecture, lora):
    raw = _raw_kind(shape, title, kind)
    writer.write_tensor_data(_packed(title, read(), raw))
  writer.close()
  partial.replace(path)


def _architecture(config: ModelConfig) -> str:
  """Returns the GGUF architecture of a shape, one of `gguf_io.ARCHITECTURES`.

  Raises:
    ValueError: no architecture has this shape.
  """
  family = registry.of(config)
  is_plain = config.windows == () and isinstance(
    config.rope_scaling, Llama3RopeScaling | None
  )
  if family.gguf is None or not is_plain:
    names = [f.name for f in registry.FAMILIES.values() if f.gguf]
    raise ValueError(
      f"model_type={family.name!r}: expected one of {names}, without sliding "
      "windows and YaRN, to save as GGUF"
    )
  # Refuses what the family cannot describe, as for its own files.
  huggingface_config.to_huggingface(config, "float32")
  return family.gguf


def _check_rows(config: ModelConfig, kind: _Kind) -> None:
  """Raises ValueError if the rows of a matrix do not divide into blocks."""
  block, _ = gguf.GGML_QUANT_SIZES[kind]
  for entry in weight_names.entries(config):
    shape = entry.checkpoint_shape
    if len(shape) > 1 and shape[-1] % block:
      raise ValueError(
        f"tensor {entry.name} has rows of {shape[-1]} values: expected a "
        f"multiple of {block} for dtype={kind.name.lower()}"
      )


def _add_shape(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
  """Adds the fields from which `gguf_io` reads the config."""
  writer.add_block_count(config.num_layers)
  writer.add_context_length(config.max_positions)
  writer.add_embedding_length(config.hidden_size)
  writer.add_feed_forward_length(config.mlp_size)
  writer.add_head_count(config.num_heads)
  writer.add_head_count_kv(config.num_kv_heads)
  writer.add_key_length(config.head_size)
  writer.add_value_length(config.head_size)
  writer.add_rope_dimension_count(config.head_size)
  writer.add_rope_freq_base(config.rope_theta)
  writer.add_layer_norm_rms_eps(config.norm_eps)
  writer.add_vocab_size(config.vocab_size)


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
  """Adds a metadata field with the type of its value."""
  if isinstance(value, list):
    writer.add_array(key, value)
  elif isinstance(value, bool):
    writer.add_bool(key, value)
  elif isinstance(value, int):
    writer.add_uint32(key, value)
  else:
    writer.add_string(key, value)


def _tensors(
  params: Params,
  config: ModelConfig,
  architecture: str,
  lora: adapters.Lora | None,
) -> Iterator[_Tensor]:
  """Yields the tensors in file order, without fetching them."""
  if config.rope_scaling is not None:
    factors = rope.scaling_factors(config)
    yield _ROPE_FACTORS, factors.shape, lambda: factors
  for entry in weight_names.entries(config):
    for layer in range(config.num_layers if entry.stacked else 1):
      name = entry.name.format(layer=layer)

      def read(
        entry: weight_names.Entry = entry, layer: int = layer
      ) -> np.ndarray:
        tensor = weight_loading.fetch(params, entry, layer, lora)
        is_rotary = {*entry.path} & {"q", "k"}
        if is_rotary and architecture == "llama":
          return gguf_io.interleave_rotary_halves(tensor, config.head_size)
        return tensor

      yield gguf_io.gguf_name(name), entry.checkpoint_shape, read


def _raw_kind(shape: tuple[int, ...], name: str, kind: _Kind) -> _Kind:
  """Returns the type of a tensor in the file."""
  return _Kind.F32 if len(shape) == 1 or name == _ROPE_FACTORS else kind


def _packed(
  name: str, tensor: Float[np.ndarray, "..."], kind: _Kind
) -> Num[np.ndarray, "..."]:
  """Converts a tensor to the file's type.

  Raises:
    ValueError: a weight is too large for float16.
  """
  if kind == _Kind.F16:
    weight_loading.check_float16(name, tensor)
  return gguf.quantize(tensor.astype(np.float32), kind)
