"""Reading text that the model did not write into slots that wait for it."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from azr_jax.models import cache as cache_lib
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import decode as decode_lib
from azr_jax.types import Leaf


class Addition(flax.struct.PyTreeNode):
  """The next tokens of A slots; each device that rows are split over has an
  equal part of A, for slots that it holds.

  Attributes:
    tokens: int32 [A, S], right-padded.
    counts: int32 [A], tokens of each; 0 where there is no slot.
    rows: int32 [A], each slot's row on its own device.
    slots: int32 [A], each slot's number.
    starts: int32 [A], position of the first of its tokens.
    written: int32 [A], tokens that follow the slot's prompt by then.
    goes_on: bool [A], whether this is the last part, and sampling goes on.
  """

  tokens: Leaf
  counts: Leaf
  rows: Leaf
  slots: Leaf
  starts: Leaf
  written: Leaf
  goes_on: Leaf


def append(
  model: transformer.Transformer,
  params: Any,
  state: decode_lib.DecodeState,
  addition: Addition,
  mesh: Mesh,
  cache_spec: PartitionSpec,
) -> decode_lib.DecodeState:
  """Reads the next tokens of slots that are done, and wakes those at the end.

  What a slot's cache holds before `starts` stays as it is; what it holds after
  is written over.

  Args:
    model: the decoder.
    params: its parameters.
    state: the slots.
    addition: what is read.
    mesh: where the slots lie.
    cache_spec: how their cache is split over it.
  """
  A, S = addition.tokens.shape
  slots = state.done.shape[0]
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)

  def per_device(function: Any, arguments: int) -> Any:
    # Left to the partitioner, rows would be looked for on every device.
    return jax.shard_map(
      function,
      mesh=mesh,
      in_specs=(*[(cache_spec, cache_spec)] * arguments, by_row, by_row),
      out_specs=(cache_spec, cache_spec),
      check_vma=False,
    )

  def take(into: Any, rows: Any, counts: Any) -> Any:
    del counts
    return tuple(array[:, rows] for array in into)

  def put_back(into: Any, read: Any, rows: Any, counts: Any) -> Any:
    rows = jnp.where(counts > 0, rows, into[0].shape[1])  # Dropped.
    return tuple(
      array.at[:, rows].set(own, mode="drop")
      for array, own in zip(into, read, strict=True)
    )

  cache = state.cache
  k, v = per_device(take, 1)((cache.k, cache.v), addition.rows, addition.counts)
  read = cache.replace(k=k, v=v, length=addition.starts)
  outputs: Any = model.apply(
    {"params": params},
    addition.tokens,
    addition.starts[:, None] + jnp.arange(S)[None, :],
    cache=read,
  )
  hidden_ASD, (new_k, new_v) = outputs
  read = cache_lib.write_rows(read, new_k, new_v, addition.starts)
  k, v = per_device(put_back, 2)(
    (cache.k, cache.v), (read.k, read.v), addition.rows, addition.counts
  )
  last = jnp.maximum(addition.counts - 1, 0)[:, None, None]
  last_AD = jnp.take_along_axis(hidden_ASD, last, axis=1)[:, 0]
  into = jnp.where(addition.goes_on, addition.slots, slots)  # Else dropped.

  def put(values: jax.Array, new: Any) -> jax.Array:
    return values.at[into].set(new, mode="drop")

  return state.replace(
    cache=cache.replace(
      k=k,
      v=v,
      length=put(cache.length, addition.starts + addition.counts),
    ),
    logits=put(state.logits, decode_lib.unembed(model, params, last_AD)),
    written=put(state.written, addition.written),
    done=put(state.done, False),
  )
