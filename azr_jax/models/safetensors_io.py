"""Reads and writes safetensors folders in Hugging Face layout, without torch.

Reading is lazy: a file is memory-mapped when its first tensor is read, and only
the requested range is copied. Writing holds one output file in memory at a
time.
"""

import json
import math
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Float, Num

from azr_jax.config import user_files
from azr_jax.models import (
  adapters,
  huggingface_config,
  text_decoder,
  weight_loading,
  weight_names,
)
from azr_jax.models.config import ModelConfig
from azr_jax.models.families import registry
from azr_jax.types import Params

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
DTYPES: dict[str, np.dtype] = {
  "float32": np.dtype(np.float32),
  "float16": np.dtype(np.float16),
  "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
# Tensors are compared in chunks of this many float32 bytes.
_COMPARED_BYTES = 1 << 24
# Supported dtypes of weights, by their safetensors names.
_DTYPES_READ = ("F64", "F32", "F16", "BF16")
# The tensors of one file: name -> (parameters in order of rows, index).
_File: TypeAlias = dict[str, tuple[list[weight_names.Entry], tuple[int, ...]]]


def read_config(folder: pathlib.Path) -> ModelConfig:
  """Returns the model's config, read from the folder's config.json."""
  path = folder / "config.json"
  with user_files.reading(path, "the config of a model"):
    return huggingface_config.from_huggingface(user_files.read_object(path))


def is_text_part(folder: pathlib.Path) -> bool:
  """Returns whether `read_config` reads the text decoder of a larger model."""
  fields = user_files.read_object(folder / "config.json")
  return fields.get("model_type") in registry.WRAPPERS


def has_own_head(folder: pathlib.Path) -> bool:
  """Returns whether `lm_head.weight` exists and differs from the embedding.

  Reads both in chunks, up to the first difference.

  Raises:
    ValueError: a tensor is damaged.
  """
  if not any((folder / name).exists() for name in (INDEX, SINGLE)):
    return False  # Loading the weights reports the missing files.
  reader = text_decoder.alone(SafetensorsReader(folder))
  if not {_EMBEDDING, _HEAD} <= {*reader.names()}:
    return False
  shape = reader.shape(_EMBEDDING)
  if reader.shape(_HEAD) != shape:
    return True
  rows = max(1, _COMPARED_BYTES // (4 * math.prod(shape[1:])))
  for start in range(0, shape[0], rows):
    stop = min(start + rows, shape[0])
    index = (slice(start, stop), *(slice(0, n) for n in shape[1:]))
    embedding, head = (reader.read(n, index) for n in (_EMBEDDING, _HEAD))
    if not np.array_equal(embedding, head):
      return True
  return False


class SafetensorsReader:
  """Reads the tensors of a folder: one file, or several with an index."""

  def __init__(self, folder: pathlib.Path, single: str = SINGLE):
    """Finds the folder's tensors without reading them.

    Args:
      folder: holds one file, or several and their index.
      single: the name of the file, if there is no index.

    Raises:
      FileNotFoundError: the folder has no safetensors file, or lacks one that
        its index names.
      ValueError: a file is damaged.
    """
    self.path = folder
    self._open: dict[str, safetensors.safe_open] = {}
    if (folder / INDEX).exists():
      self._files = _weight_map(folder / INDEX)
    elif (folder / single).exists():
      self._files = dict.fromkeys(self._file(single).keys(), single)
    else:
      raise FileNotFoundError(f"{folder} has neither {single} nor {INDEX}")
    for file in sorted(set(self._files.values())):
      if not (folder / file).exists():
        raise FileNotFoundError(f"{folder} lacks {file}, which {INDEX} names")
      if not (folder / file).is_file():
        raise ValueError(f"{folder / file}: expected a regular file")

  def _file(self, name: str) -> safetensors.safe_open:
    """Returns an open file of the folder; it stays open."""
    if name not in self._open:
      path = self.path / name
      with user_files.reading(path, "safetensors"):
        self._open[name] = safetensors.safe_open(path, "numpy")
    return self._open[name]

  def names(self) -> Collection[str]:
    """Returns the names of all tensors."""
    return self._files.keys()

  def shape(self, name: str) -> tuple[int, ...]:
    """Returns a tensor's shape without reading it."""
    return tuple(self._slice(name).get_shape())

  def read(
    self,
    name: str,
    index: tuple[slice, ...],
    dtypes: tuple[str, ...] = _DTYPES_READ,
  ) -> Num[np.ndarray, "..."]:
    """Reads a range of a tensor.

    Args:
      name: the tensor's name.
      index: one slice of step 1 per axis.
      dtypes: the dtypes that it may have, by their safetensors names.

    Raises:
      ValueError: the tensor has another dtype.
    """
    found = self._slice(name)
    path = self.path / self._files[name]
    if found.get_dtype() not in dtypes:
      raise ValueError(
        f"{path}: tensor {name} has type {found.get_dtype()}: expected one of "
        f"{dtypes}"
      )
    with user_files.reading(path, f"tensor {name}"):
      return found[index]

  def _slice(self, name: str) -> Any:
    """Returns a tensor that can be read by range."""
    file = self._files[name]
    with user_files.reading(self.path / file, f"tensor {name}"):
      return self._file(file).get_slice(name)


def _weight_map(path: pathlib.Path) -> dict[str, str]:
  """Reads the file name of each tensor from an index.

  Raises:
    ValueError: the index is malformed.
  """
  files = user_files.read_object(path).get("weight_map")
  if not isinstance(files, dict) or not all(
    isinstance(name, str) and "/" not in name for name in files.values()
  ):
    raise ValueError(f"{path}: expected weight_map, a file name per tensor")
  return files


def save(
  params: Params,
  config: ModelConfig,
  folder: pathlib.Path,
  *,
  dtype: str,
  max_file_bytes: int = 5 << 30,
  eos_ids: Sequence[int] = (),
  write: bool = True,
  lora: adapters.Lora | None = None,
  more: Mapping[str, Float[np.ndarray, "..."]] | None = None,
  task: str = "CausalLM",
  fields: Mapping[str, Any] | None = None,
) -> None:
  """Writes config.json and safetensors files that `transformers` loads.

  Every host must call this, because sharded weights are gathered from all
  hosts.

  Args:
    params: the parameters, sharded or not; fetched one layer at a time.
    config: the model's config.
    folder: created if missing; existing weights in it are replaced.
    dtype: a key of `DTYPES`.
    max_file_bytes: maximum size of a file.
    eos_ids: EOS token ids, for config.json.
    write: whether this host writes the files.
    lora: the adapters in `params`, to merge into their kernels.
    more: tensors besides the decoder's, float32, by name.
    task: the end of the class's name in `transformers`.
    fields: fields of config.json besides the decoder's.

  Raises:
    ValueError: a weight is too large for float16, or the family cannot describe
      this decoder.
  """
  described = huggingface_config.to_huggingface(config, dtype, eos_ids, task)
  if write:
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("model*.safetensors"), folder / INDEX):
      old.unlink(missing_ok=True)
  item_bytes = DTYPES[dtype].itemsize
  files = _plan(config, item_bytes, max_file_bytes)
  weight_map: dict[str, str] = {}
  for number, group in enumerate(files, start=1):
    file = f"model-{number:05d}-of-{len(files):05d}.safetensors"
    file = file if len(files) > 1 else SINGLE
    tensors = {
      name: _cast(
        name, weight_loading.fetch_whole(params, entries, index, lora), dtype
      )
      for name, (entries, index) in group.items()
    }
    if more and number == len(files):
      tensors |= {name: _cast(name, x, dtype) for name, x in more.items()}
    if write:
      safetensors.numpy.save_file(tensors, folder / file, {"format": "pt"})
      # safetensors creates files that only the owner can read.
      (folder / file).chmod(0o644)
    weight_map |= dict.fromkeys(tensors, file)
  if not write:
    return
  if len(files) > 1:
    total = sum(
      math.prod(entries[0].tensor_shape) * item_bytes
      for group in files
      for entries, _ in group.values()
    )
    total += sum(x.size * item_bytes for x in (more or {}).values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")
  text = json.dumps(described | dict(fields or {}), indent=2)
  (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def _plan(
  config: ModelConfig, item_bytes: int, max_file_bytes: int
) -> list[_File]:
  """Assigns tensors to files of at most `max_file_bytes`."""
  files: list[_File] = [{}]
  size = 0
  for entries in weight_names.tensors(config):
    tensor_bytes = math.prod(entries[0].tensor_shape) * item_bytes
    for index in entries[0].indices(config.num_layers):
      if files[-1] and size + tensor_bytes > max_file_bytes:
        files.append({})
        size = 0
      files[-1][entries[0].tensor(index)] = entries, index
      size += tensor_bytes
  return files


def _cast(
  name: str, tensor: Float[np.ndarray, "*N"], dtype: str
) -> Float[np.ndarray, "*N"]:
  """Returns a tensor in a dtype of `DTYPES`.

  Raises:
    ValueError: a weight is too large for float16.
  """
  if dtype == "float16":
    weight_loading.check_float16(name, tensor)
  return tensor.astype(DTYPES[dtype])
