"""Safetensors folders in Hugging Face layout, in and out, without torch."""

import contextlib
import json
import pathlib
from typing import Any

import jax
import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from azr_jax.models import huggingface_config, weight_loading, weight_names
from azr_jax.models.config import ModelConfig

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
DTYPES: dict[str, Any] = {
  "float32": np.float32,
  "float16": np.float16,
  "bfloat16": ml_dtypes.bfloat16,
}


def read_config(folder: pathlib.Path) -> ModelConfig:
  """Reads the folder's config.json."""
  text = (folder / "config.json").read_text(encoding="utf-8")
  return huggingface_config.from_huggingface(json.loads(text))


def reader(folder: pathlib.Path) -> weight_loading.ReadTensor:
  """Returns a function that reads one tensor of the folder by name.

  Raises:
    FileNotFoundError: the folder has no safetensors file.
  """
  if (folder / INDEX).exists():
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    files = index["weight_map"]
  elif (folder / SINGLE).exists():
    with safetensors.safe_open(folder / SINGLE, "numpy") as file:
      files = dict.fromkeys(file.keys(), SINGLE)
  else:
    raise FileNotFoundError(f"{folder} has neither {SINGLE} nor {INDEX}")

  def read(name: str) -> np.ndarray:
    with safetensors.safe_open(folder / files[name], "numpy") as file:
      return file.get_tensor(name)

  return read


def save(
  params: Any,
  config: ModelConfig,
  folder: pathlib.Path,
  *,
  dtype: str,
  max_file_bytes: int = 5 << 30,
) -> None:
  """Writes config.json and safetensors files that `transformers` loads.

  Args:
    params: our parameters, sharded or not; fetched one at a time.
    config: the model's shape.
    folder: made if missing.
    dtype: float32, float16 or bfloat16.
    max_file_bytes: a file is closed before it would grow past this.
  """
  folder.mkdir(parents=True, exist_ok=True)
  groups: list[dict[str, np.ndarray]] = [{}]
  size = 0
  for name, tensor in _tensors(params, config, DTYPES[dtype]):
    if groups[-1] and size + tensor.nbytes > max_file_bytes:
      groups.append({})
      size = 0
    groups[-1][name] = tensor
    size += tensor.nbytes
  with contextlib.suppress(FileNotFoundError):
    (folder / INDEX).unlink()
  if len(groups) == 1:
    safetensors.numpy.save_file(groups[0], folder / SINGLE, {"format": "pt"})
  else:
    _save_sharded(groups, folder)
  text = json.dumps(huggingface_config.to_huggingface(config, dtype), indent=2)
  (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def _save_sharded(
  groups: list[dict[str, np.ndarray]], folder: pathlib.Path
) -> None:
  weight_map = {}
  for number, group in enumerate(groups, start=1):
    file = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
    safetensors.numpy.save_file(group, folder / file, {"format": "pt"})
    weight_map |= dict.fromkeys(group, file)
  total = sum(t.nbytes for group in groups for t in group.values())
  index = {"metadata": {"total_size": total}, "weight_map": weight_map}
  (folder / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")


def _tensors(params: Any, config: ModelConfig, dtype: Any) -> Any:
  for entry in weight_names.entries(config):
    value = jax.device_get(weight_loading.get(params, entry))
    parts = value if entry.stacked else [value]
    for layer, part in enumerate(parts):
      yield (
        entry.name.format(layer=layer),
        weight_loading.theirs(entry, np.asarray(part)).astype(dtype),
      )
