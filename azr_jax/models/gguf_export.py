"""Writes GGUF files, for llama.cpp and programs built on it.

`gguf_io.py` reads them back. Tensors are written one at a time, so the host
holds only one. Norms, biases and rotary factors are float32, as llama.cpp
expects; matrices have the requested type.
"""

import functools
import itertools
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import gguf
import numpy as np
from jaxtyping import Float, Num

from azr_jax.models import (
  adapters,
  gguf_config,
  gguf_io,
  gguf_tokenizer,
  transformer,
  weight_loading,
  weight_names,
)
from azr_jax.models.config import ModelConfig
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
# Name, shape, whether it stays float32, and a function that returns the values.
_Tensor = tuple[
  str, tuple[int, ...], bool, Callable[[], Float[np.ndarray, "..."]]
]


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
  names = {entry.tensor((0, 0)) for entry in weight_names.entries(config)}
  shape_fields = gguf_config.write(config, names)
  architecture = shape_fields.pop("general.architecture")
  _check_rows(config, kind)
  partial = path.with_name(f"{path.name}.partial")
  writer = gguf.GGUFWriter(partial, architecture)
  writer.add_name(name)
  writer.add_file_type(file_type)
  writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
  described = gguf_tokenizer.metadata(tokenizer, config.vocab_size)
  for key, value in (shape_fields | described).items():
    _add(writer, key, value)
  for title, shape, is_exact, _ in _tensors(params, config, lora):
    raw = _Kind.F32 if is_exact else kind
    size = math.prod(gguf.quant_shape_to_byte_shape(shape, raw))
    writer.add_tensor_info(title, shape, np.dtype(np.float32), size, raw)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_ti_data_to_file()
  for title, _, is_exact, read in _tensors(params, config, lora):
    raw = _Kind.F32 if is_exact else kind
    writer.write_tensor_data(_packed(title, read(), raw))
  writer.close()
  partial.replace(path)


def _check_rows(config: ModelConfig, kind: _Kind) -> None:
  """Raises ValueError if the rows of a matrix do not divide into blocks."""
  block, _ = gguf.GGML_QUANT_SIZES[kind]
  for entry in weight_names.entries(config):
    shape = entry.checkpoint_shape
    if not _is_exact(entry) and shape[-1] % block:
      raise ValueError(
        f"tensor {entry.name} has rows of {shape[-1]} values: expected a "
        f"multiple of {block} for dtype={kind.name.lower()}"
      )


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
  """Adds a metadata field with the type of its value."""
  if isinstance(value, list):
    writer.add_array(key, value)
  elif isinstance(value, bool):
    writer.add_bool(key, value)
  elif isinstance(value, int):
    writer.add_uint32(key, value)
  elif isinstance(value, float):
    writer.add_float32(key, value)
  else:
    writer.add_string(key, value)


def _tensors(
  params: Params,
  config: ModelConfig,
  lora: adapters.Lora | None,
) -> Iterator[_Tensor]:
  """Yields the tensors in file order, without fetching them."""
  family = registry.of(config)
  assert family.gguf is not None
  for name, factors in family.gguf.scaled(config).items():
    yield name, factors.shape, True, lambda factors=factors: factors
  for entries in weight_names.tensors(config):
    first = entries[0]
    # A file has one tensor for all experts of a layer.
    experts = first.stack(config.num_layers)[1:]
    for layer, group in itertools.groupby(
      first.indices(config.num_layers), lambda index: index[:1]
    ):
      name = first.name.replace("{layer}", "".join(map(str, layer)))
      yield (
        gguf_io.gguf_name(name, family),
        (*experts, *first.tensor_shape),
        _is_exact(first),
        functools.partial(_fetch, params, config, lora, entries, [*group]),
      )


def _fetch(
  params: Params,
  config: ModelConfig,
  lora: adapters.Lora | None,
  entries: list[weight_names.Entry],
  indices: list[tuple[int, ...]],
) -> Float[np.ndarray, "..."]:
  """Returns a tensor of the file.

  Args:
    params: the parameters.
    config: the model's config.
    lora: the adapters to merge.
    entries: the entries of the checkpoint's tensors that it holds.
    indices: the indices of these tensors.
  """
  parts = [
    weight_loading.fetch_whole(params, entries, index, lora)
    for index in indices
  ]
  tensor = parts[0] if len(indices[0]) < 2 else np.stack(parts)
  gguf_family, path = registry.of(config).gguf, entries[0].path
  assert gguf_family is not None
  if config.norm_offset and path[-1] == "scale":
    return tensor + 1
  if gguf_family.pairs_channels and {*path} & {"q", "k"}:
    return gguf_io.interleave_rotary_halves(tensor, config.head_size)
  return tensor


def _is_exact(entry: weight_names.Entry) -> bool:
  """Returns whether a parameter is float32 in every file."""
  is_vector = len(entry.checkpoint_shape) == 1
  return is_vector or transformer.is_float32(*entry.path)


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
