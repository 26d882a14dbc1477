"""Reading text that the model did not write into slots that wait for it."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

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

  def per_device(function: Any, specs: tuple[PartitionSpec, ...]) -> Any:
    # Left to the partitioner, rows would be looked for on every device.
    return jax.shard_map(
      function,
      mesh=mesh,
      in_specs=specs,
      out_specs=cache_spec,
      check_vma=False,
    )

  def take(into: Any, rows: Any) -> Any:
    return tuple(array[:, rows] for array in into)

  def store(into: Any, new: Any, rows: Any, starts: Any, counts: Any) -> Any:
    """Writes the new entries alone: the rest of a row stays where it is."""

    def one(index: jax.Array, into: Any) -> Any:
      row, start, zero = rows[index], starts[index], jnp.int32(0)
      places = (
        (zero, row, zero, zero, start),
        (zero, row, zero, start, zero),
      )
      stored = []
      for whole, own, place in zip(into, new, places, strict=True):
        fresh = own[:, index][:, None].astype(whole.dtype)
        old = jax.lax.dynamic_slice(whole, place, fresh.shape)
        kept = jnp.where(counts[index] > 0, fresh, old)
        stored.append(jax.lax.dynamic_update_slice(whole, kept, place))
      return tuple(stored)

    return jax.lax.fori_loop(0, rows.shape[0], one, into)

  cache = state.cache
  both = cache.k, cache.v
  k, v = per_device(take, (cache_spec, by_row))(both, addition.rows)
  outputs: Any = model.apply(
    {"params": params},
    addition.tokens,
    addition.starts[:, None] + jnp.arange(S)[None, :],
    cache=cache.replace(k=k, v=v, length=addition.starts),
  )
  hidden_ASD, new = outputs
  k, v = per_device(store, (cache_spec, cache_spec, by_row, by_row, by_row))(
    both, new, addition.rows, addition.starts, addition.counts
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
