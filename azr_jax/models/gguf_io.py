"""Reads GGUF files; `gguf` dequantizes the weights.

`gguf_config.py` reads the config in the metadata, `gguf_tokenizer.py` the
tokenizer, and `gguf_export.py` writes these files.
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
from azr_jax.models import gguf_config
from azr_jax.models.families.family import Family

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
    family = gguf_config.family_of(self.metadata)
    assert family.gguf is not None
    self._pairs_channels = family.gguf.pairs_channels
    names = {stem: name for name, stem in family.gguf_modules().items()}
    # Hugging Face name -> the tensor that has it, and where.
    self._tensors: dict[str, tuple[gguf.ReaderTensor, tuple[int, ...]]] = {}
    factors = {}
    for tensor in reader.tensors:
      if tensor.name in family.gguf.factors:
        factors[tensor.name] = tensor.data
        continue
      name = _huggingface_name(tensor.name, names)
      if "{expert}" not in name:
        self._tensors[name] = tensor, ()
        continue
      for expert in range(int(tensor.shape[-1])):
        one = name.replace("{expert}", str(expert))
        self._tensors[one] = tensor, (expert,)
    self.config = gguf_config.read(
      self.metadata,
      vocab_size=self.shape("model.embed_tokens.weight")[0],
      tensors=self._tensors,
      factors=factors,
    )

  def names(self) -> Collection[str]:
    """Returns the Hugging Face names of all tensors."""
    return self._tensors.keys()

  def shape(self, name: str) -> tuple[int, ...]:
    """Returns a tensor's shape without reading it."""
    tensor, at = self._tensors[name]
    # GGUF lists the fastest axis first.
    return tuple(int(size) for size in reversed(tensor.shape))[len(at) :]

  def read(
    self, name: str, index: tuple[slice, ...]
  ) -> Float[np.ndarray, "..."]:
    """Returns a range of a tensor, dequantized; reads only the rows in range.

    For q and k, the range must consist of whole heads.
    """
    tensor, at = self._tensors[name]
    # Quantization blocks lie along the last axis, so rows are independent.
    rows, columns = (index[0], index[1:]) if len(index) > 1 else (..., index)
    # Loading rejects non-finite weights, so no warning is needed.
    with np.errstate(all="ignore"):
      values = gguf.dequantize(tensor.data[*at, rows], tensor.tensor_type)
    values = values[..., *columns]
    is_rotary = ".q_proj." in name or ".k_proj." in name
    if is_rotary and self._pairs_channels:
      return _split_rotary_halves(values, self.config.head_size)
    if self.config.norm_offset and name.endswith("norm.weight"):
      return values - 1  # Files have the whole scale.
    return values


def gguf_name(name: str, family: Family) -> str:
  """Maps `model.layers.3.mlp.up_proj.weight` to `blk.3.ffn_up.weight`.

  Experts, which share a tensor, have `{expert}` for their number.
  """
  stem, _, kind = name.rpartition(".")
  layer = ""
  if stem.startswith("model.layers."):
    number, _, stem = stem.removeprefix("model.layers.").partition(".")
    layer = f"blk.{number}."
  return f"{layer}{family.gguf_modules()[stem]}.{kind}"


def _huggingface_name(name: str, modules: Mapping[str, str]) -> str:
  """Maps `blk.3.ffn_up.weight` to `model.layers.3.mlp.up_proj.weight`.

  An unknown tensor name is returned unchanged, so that loading rejects it.

  Args:
    name: the tensor's name in the file.
    modules: names of modules in the file -> in a checkpoint.
  """
  stem, _, kind = name.rpartition(".")
  layer = ""
  if stem.startswith("blk."):
    _, number, stem = stem.split(".", 2)
    layer = f"model.layers.{number}."
  if stem not in modules:
    return name
  return f"{layer}{modules[stem]}.{kind}"


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
