"""Loads checkpoint tensors into sharded parameters, one shard at a time.

The life of a parameter, in every file format:
1. each device's shard is translated to ranges of the checkpoint's tensors;
2. a `TensorReader` reads only those ranges, layer by layer;
3. they are cast, converted to our layout and put on their devices.

The host never holds more than one shard of one parameter.
"""

import functools
import itertools
import pathlib
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Float32, Num

from azr_jax.models import (
  adapters,
  quantization,
  sampling_params,
  transformer,
  weight_names,
)
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import BoxedParams, Params, Rules, Shardings


class TensorReader(Protocol):
  """A checkpoint with Hugging Face tensor names and layouts.

  Attributes:
    path: the tensors' file or folder, for error messages.
  """

  path: pathlib.Path

  def names(self) -> Collection[str]:
    """Returns the names of all tensors."""
    ...

  def shape(self, name: str) -> tuple[int, ...]:
    """Returns a tensor's shape without reading it."""
    ...

  def read(
    self, name: str, index: tuple[slice, ...]
  ) -> Float[np.ndarray, "..."]:
    """Reads a range of a tensor: one slice of step 1 per axis."""
    ...


def load_params(
  config: ModelConfig,
  reader: TensorReader,
  mesh: Mesh,
  rules: Rules,
  dtype: DTypeLike = jnp.float32,
  kernel_dtype: DTypeLike | None = None,
) -> Params:
  """Returns parameters, read straight into their shards.

  Args:
    config: the model's config.
    reader: the checkpoint.
    mesh: the device mesh of the parameters.
    rules: logical axis to mesh axis.
    dtype: the dtype of matrices and biases. Norm scales are float32.
    kernel_dtype: 8-bit dtype of the layers' kernels, which then have scales;
      None gives them `dtype`.

  Raises:
    ValueError: a tensor is missing, has a shape other than the config implies,
      or is not part of the decoder.
  """
  return load_entries(
    [*weight_names.entries(config)],
    config.num_layers,
    transformer.abstract_params(transformer.Transformer(config)),
    reader,
    mesh,
    rules,
    dtype,
    kernel_dtype,
    # Some checkpoints of tied models repeat the embedding.
    unread=("lm_head.weight",) if config.tie_embeddings else (),
  )


def load_entries(
  entries: Sequence[weight_names.Entry],
  num_layers: int,
  boxed: BoxedParams,
  reader: TensorReader,
  mesh: Mesh,
  rules: Rules,
  dtype: DTypeLike = jnp.float32,
  kernel_dtype: DTypeLike | None = None,
  unread: Sequence[str] = (),
) -> Params:
  """Returns the parameters of some entries; see `load_params`.

  Args:
    entries: the entries. The checkpoint must have no other tensors.
    num_layers: L.
    boxed: shapes of the parameters, with logical axes.
    reader: the checkpoint.
    mesh: the device mesh of the parameters.
    rules: logical axis to mesh axis.
    dtype: as for `load_params`.
    kernel_dtype: as for `load_params`.
    unread: names of tensors that the checkpoint may have besides.
  """
  _check_tensors(entries, num_layers, reader, unread)
  shardings = mesh_lib.param_shardings(boxed, mesh, rules)
  params: Params = {}
  for entry in entries:
    sharding: NamedSharding = _at(shardings, entry.path)
    summed = () if kernel_dtype is None else _summed_axes(entry)
    if summed and kernel_dtype is not None:
      loaded, scale = _quantized(
        entry, num_layers, reader, sharding, kernel_dtype, summed
      )
      _put(params, (*entry.path[:-1], "scale"), scale)
    else:
      is_exact = transformer.is_float32(*entry.path)
      own = np.dtype(np.float32 if is_exact else dtype)
      loaded = _load(entry, range(num_layers), reader, sharding, own)
    _put(params, entry.path, loaded)
  return params


def _quantized(
  entry: weight_names.Entry,
  num_layers: int,
  reader: TensorReader,
  sharding: NamedSharding,
  dtype: DTypeLike,
  summed: tuple[int, ...],
) -> tuple[Num[Array, "L ..."], Float32[Array, "L ..."]]:
  """Loads kernels with 8 bits and their scales, rounded once, from float32.

  Devices never hold the float32 values of more than a layer.

  Args:
    entry: the kernels' entry.
    num_layers: L.
    reader: the checkpoint.
    sharding: the sharding of the kernels.
    dtype: their 8-bit dtype.
    summed: the kernels' input axes.
  """
  quantize = jax.jit(
    functools.partial(quantization.quantize, dtype=dtype, axes=summed)
  )
  if sharding.spec and sharding.spec[0] is not None:
    whole = _load(
      entry, range(num_layers), reader, sharding, np.dtype(np.float32)
    )
    return quantize(whole)
  layers = [
    quantize(_load(entry, [layer], reader, sharding, np.dtype(np.float32)))
    for layer in range(num_layers)
  ]
  join = jax.jit(lambda *parts: jnp.concatenate(parts))
  kernels, scales = zip(*layers, strict=True)
  return join(*kernels), join(*scales)


def _summed_axes(entry: weight_names.Entry) -> tuple[int, ...]:
  """Returns the input axes of a stacked kernel; () for other parameters."""
  if entry.path[0] != transformer.LAYERS or entry.path[-1] != "kernel":
    return ()
  _, part, name, _ = entry.path
  return sampling_params.SUMMED_AXES[part].get(name, ())


def _check_tensors(
  entries: Sequence[weight_names.Entry],
  num_layers: int,
  reader: TensorReader,
  unread: Sequence[str],
) -> None:
  """Checks that the checkpoint has exactly the entries' tensors.

  Raises:
    ValueError: a tensor is missing, has a wrong shape, or is not needed.
  """
  names = set(reader.names())
  extra = set(names)
  for entry in entries:
    for name in map(entry.tensor, entry.indices(num_layers)):
      if name not in names:
        raise ValueError(
          f"{reader.path}: tensor {name} is missing: expected shape "
          f"{entry.tensor_shape}"
        )
      extra.discard(name)
      if reader.shape(name) != entry.tensor_shape:
        raise ValueError(
          f"{reader.path}: tensor {name} has shape {reader.shape(name)}: "
          f"expected {entry.tensor_shape}"
        )
  extra.difference_update(unread)
  # Old checkpoints store the rotary frequencies; we compute them.
  others = sorted(n for n in extra if not n.endswith("rotary_emb.inv_freq"))
  if others:
    raise ValueError(
      f"{reader.path}: tensors {others[:4]} ({len(others)} in all) are not "
      "part of the decoder: expected only the tensors that the config implies"
    )


def _load(
  entry: weight_names.Entry,
  layers: Sequence[int],
  reader: TensorReader,
  sharding: NamedSharding,
  dtype: np.dtype,
) -> Float[Array, "..."]:
  """Loads one parameter; reads each distinct shard of this host once.

  Args:
    entry: the parameter's entry.
    layers: the layers to load, if the parameter stacks these.
    reader: the checkpoint.
    sharding: the parameter's sharding.
    dtype: dtype of the loaded values.
  """
  stack = entry.stack(len(layers))
  shape = (*stack, *entry.shape)
  devices: dict[tuple[tuple[int, int], ...], list[jax.Device]] = {}
  for device, index in sharding.addressable_devices_indices_map(shape).items():
    bounds = tuple(
      axis.indices(size)[:2]
      for axis, size in zip(index or (), shape, strict=True)
    )
    devices.setdefault(bounds, []).append(device)
  shards: list[jax.Array] = []
  for bounds, shard_devices in devices.items():
    index = tuple(slice(*pair) for pair in bounds)
    leading, inner = bounds[: len(stack)], index[len(stack) :]
    parts = [
      _read(entry, name, inner, reader).astype(dtype, copy=False)
      for at in itertools.product(*(range(*pair) for pair in leading))
      for name in [entry.tensor((layers[at[0]], *at[1:]) if at else at)]
    ]
    sizes = [stop - start for start, stop in bounds]
    part = np.stack(parts).reshape(sizes) if stack else parts[0]
    copies = [jax.device_put(part, device) for device in shard_devices]
    # Without this wait, transfers would queue up and the host would hold all
    # shards.
    shards.extend(jax.block_until_ready(copies))
  return jax.make_array_from_single_device_arrays(shape, sharding, shards)


def _read(
  entry: weight_names.Entry,
  name: str,
  index: tuple[slice, ...],
  reader: TensorReader,
) -> Float32[np.ndarray, "..."]:
  """Returns the part of a tensor that `index` selects, in our layout.

  Where a checkpoint axis merges several axes of the parameter, only a range of
  the first of them is contiguous in the file. That axis is sliced while
  reading, and the others afterwards.
  """
  ranges = []
  for group, size in zip(entry.groups, entry.checkpoint_shape, strict=True):
    first = index[group[0]]
    stride = size // entry.shape[group[0]]
    ranges.append(slice(first.start * stride, first.stop * stride))
  if entry.part is not None:
    rows, first_row = ranges[0], entry.part[0]
    ranges[0] = slice(rows.start + first_row, rows.stop + first_row)
  first, step = entry.columns
  ranges[-1] = slice(ranges[-1].start * step, ranges[-1].stop * step)
  tensor = reader.read(name, tuple(ranges))[..., first::step]
  tensor = tensor.astype(np.float32)
  # One pass: a sum is not finite if any summand is not.
  if not np.isfinite(tensor.sum(dtype=np.float64)):
    raise ValueError(f"{reader.path}: tensor {name}: expected finite weights")
  sizes = list(entry.shape)
  inner = list(index)
  for group in entry.groups:
    first = index[group[0]]
    sizes[group[0]] = first.stop - first.start
    inner[group[0]] = slice(None)
  order = [axis for group in entry.groups for axis in group]
  split = tensor.reshape([sizes[axis] for axis in order])
  return np.ascontiguousarray(split.transpose(np.argsort(order))[tuple(inner)])


def to_checkpoint_layout(
  entry: weight_names.Entry, part: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
  """Converts one layer of a parameter to a checkpoint tensor."""
  order = [axis for group in entry.groups for axis in group]
  merged = part.transpose(order).reshape(entry.checkpoint_shape)
  return np.ascontiguousarray(merged)


def fetch(
  params: Params,
  entry: weight_names.Entry,
  index: tuple[int, ...],
  lora: adapters.Lora | None = None,
) -> Float[np.ndarray, "..."]:
  """Returns an entry's rows of a tensor on the host, in the file's layout.

  Every host must call this, because sharded weights are gathered from all
  hosts.

  Args:
    params: the parameters, sharded or not.
    entry: the tensor's entry.
    index: the tensor's index, from `Entry.indices`.
    lora: merges the adapters in `params`, W + s A B, in the dtype of W. None
      leaves them out.
  """
  value = _part_of(params, entry.path, index)
  *parents, name, leaf = ("", *entry.path)
  if lora is not None and leaf == "kernel" and name in lora.targets:
    path = (*parents[1:], f"{name}{adapters.SUFFIX}")
    a, b = (_part_of(params, (*path, part), index) for part in ("a", "b"))
    # Experts have an adapter each.
    change = a @ b if entry.leading else np.tensordot(a, b, axes=1)
    value = value + lora.scale_of(a.shape[-1]) * change
  return to_checkpoint_layout(entry, value)


def fetch_whole(
  params: Params,
  entries: Sequence[weight_names.Entry],
  index: tuple[int, ...],
  lora: adapters.Lora | None = None,
) -> Float[np.ndarray, "..."]:
  """Returns a tensor on the host, in the file's layout; see `fetch`.

  Args:
    params: the parameters, sharded or not.
    entries: the entries that share the tensor, from `weight_names.tensors`.
    index: the tensor's index.
    lora: the adapters to merge.
  """
  parts = [fetch(params, entry, index, lora) for entry in entries]
  if entries[0].columns[1] > 1:
    return np.stack(parts, axis=-1).reshape(entries[0].tensor_shape)
  return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _part_of(
  params: Params, path: tuple[str, ...], index: tuple[int, ...]
) -> Float[np.ndarray, "..."]:
  """Returns the part of a parameter at an index, on the host."""
  value = _at(params, path)[index]
  if isinstance(value, jax.Array) and not value.is_fully_addressable:
    value = multihost_utils.process_allgather(value, tiled=True)
  return np.asarray(jax.device_get(value))


def check_float16(name: str, tensor: Float[np.ndarray, "..."]) -> None:
  """Raises ValueError if a weight is too large for float16."""
  largest = np.max(np.abs(tensor))
  if largest > np.finfo(np.float16).max:
    raise ValueError(
      f"tensor {name} reaches {largest:.3g}: expected at most 65504 for "
      "dtype=float16 (use bfloat16)"
    )


def _at(tree: Params | Shardings, path: tuple[str, ...]) -> Any:
  """Returns the leaf at a path of keys."""
  for key in path:
    tree = tree[key]
  return tree


def _put(
  params: Params, path: tuple[str, ...], value: Num[Array, "..."]
) -> None:
  """Adds a parameter at a path of keys."""
  for key in path[:-1]:
    params = params.setdefault(key, {})
  params[path[-1]] = value


def get(params: Params, entry: weight_names.Entry) -> Float[Array, "..."]:
  """Returns an entry's parameter."""
  return _at(params, entry.path)
