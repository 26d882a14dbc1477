"""Checkpoint tensors into sharded parameters, one tensor at a time.

Whatever the file format, a reader gives one tensor by name; a parameter is
made shard by shard, so the host never holds more than one shard's layers.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from azr_jax.models import transformer, weight_names
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib

ReadTensor = Callable[[str], np.ndarray]


def load_params(
  config: ModelConfig,
  read: ReadTensor,
  mesh: Mesh,
  rules: Mapping[str, str | None],
) -> dict[str, Any]:
  """Builds float32 parameters straight into their shards.

  Args:
    config: the model's shape.
    read: gives a tensor by its Hugging Face name.
    mesh: where the parameters will live.
    rules: logical axis to mesh axis.

  Raises:
    ValueError: a tensor has another shape than the config says.
    KeyError: a tensor is missing.
  """
  boxed = transformer.abstract_params(transformer.Transformer(config))
  shardings = mesh_lib.param_shardings(boxed, mesh, rules)
  params: dict[str, Any] = {}
  for entry in weight_names.entries(config):
    sharding = _at(shardings, entry.path)
    layers = (config.num_layers,) if entry.stacked else ()

    def shard(index: Any, entry: weight_names.Entry = entry) -> np.ndarray:
      if not entry.stacked:
        return _ours(entry, read(entry.name))[index]
      numbers = range(config.num_layers)[index[0]]
      return np.stack(
        [
          _ours(entry, read(entry.name.format(layer=n)))[index[1:]]
          for n in numbers
        ]
      )

    array = jax.make_array_from_callback(layers + entry.shape, sharding, shard)
    _put(params, entry.path, array)
  return params


def _ours(entry: weight_names.Entry, tensor: np.ndarray) -> np.ndarray:
  """Turns a checkpoint tensor into our layout, float32."""
  if entry.transposed:
    inputs = math.prod(entry.shape[: entry.inputs])
    expected: tuple[int, ...] = (math.prod(entry.shape) // inputs, inputs)
  elif entry.path[-1] == "bias":
    expected = (math.prod(entry.shape),)
  else:
    expected = entry.shape
  if tensor.shape != expected:
    raise ValueError(
      f"tensor {entry.name} has shape {tensor.shape}; expected {expected}"
    )
  tensor = tensor.T if entry.transposed else tensor
  return np.ascontiguousarray(tensor, np.float32).reshape(entry.shape)


def theirs(entry: weight_names.Entry, part: np.ndarray) -> np.ndarray:
  """Turns one layer's part of our parameter into a checkpoint tensor."""
  if entry.transposed:
    inputs = math.prod(entry.shape[: entry.inputs])
    return np.ascontiguousarray(part.reshape(inputs, -1).T)
  if entry.path[-1] == "bias":
    return part.reshape(-1)
  return part


def _at(tree: Mapping[str, Any], path: tuple[str, ...]) -> Any:
  for key in path:
    tree = tree[key]
  return tree


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
  for key in path[:-1]:
    tree = tree.setdefault(key, {})
  tree[path[-1]] = value


def get(params: Mapping[str, Any], entry: weight_names.Entry) -> jax.Array:
  """The parameter of an entry."""
  return _at(params, entry.path)
