"""Putting prompts into slots, and giving slots up: what moves whole caches."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int

from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.decode import DecodeState, Prompts


def fill_slots(
  state: DecodeState,
  prompts: Prompts,
  counts: Int[Array, " P"],
  slots: Int[Array, " B"],
  limits: Int[Array, " B"],
  streams: Int[Array, "B 2"],
  key: Array,
  mesh: Mesh,
  cache_spec: PartitionSpec,
) -> DecodeState:
  """Copies prompts into slots; a prompt may go into several.

  Args:
    state: the slots.
    prompts: prompts that were read to their ends.
    counts: how many slots each prompt goes into.
    slots: the slots, in the order of the prompts; of the rest, nothing.
    limits: most tokens to sample in each of these slots.
    streams: what each of these slots' own key is made of, besides `key`.
    key: random key of the whole request; used up.
    mesh: where both lie.
    cache_spec: how both caches are split over it.
  """
  B, P = slots.shape[0], counts.shape[0]
  # What is written past the end is dropped.
  into = jnp.where(jnp.arange(B) < jnp.sum(counts), slots, B)
  places = jnp.repeat(jnp.arange(P), counts, total_repeat_length=B)
  own_key = jax.vmap(
    lambda words: functools.reduce(jax.random.fold_in, words, key)
  )
  copy = jax.shard_map(
    _copy_rows,
    mesh=mesh,
    in_specs=(cache_spec, cache_spec, PartitionSpec(), PartitionSpec()),
    out_specs=cache_spec,
    check_vma=False,
  )
  cache, read = state.cache, prompts.cache
  k, v = copy((cache.k, cache.v), (read.k, read.v), counts, slots)

  def put(values: jax.Array, new: Any) -> jax.Array:
    return values.at[into].set(new, mode="drop")

  return DecodeState(
    cache=cache.replace(
      k=k, v=v, length=put(cache.length, read.length[places])
    ),
    logits=put(state.logits, prompts.logits[places]),
    written=put(state.written, 0),
    limit=put(state.limit, limits),
    done=put(state.done, False),
    keys=put(state.keys, own_key(streams)),
  )


def _copy_rows(
  into: tuple[jax.Array, ...],
  read: tuple[jax.Array, ...],
  counts: jax.Array,
  slots: jax.Array,
) -> tuple[jax.Array, ...]:
  """One device's part: each prompt is sent to all once, and kept by some.

  Left to the partitioner, every device would gather all prompts for each slot.
  """
  shard = jax.lax.axis_index(mesh_lib.BATCH_AXES)
  prompts, rows = read[0].shape[1], into[0].shape[1]
  ends = jnp.cumsum(counts)

  def send(array: jax.Array, place: jax.Array) -> jax.Array:
    # A place that another device holds is clamped, and then not sent.
    own = jax.lax.dynamic_slice_in_dim(array, place - shard * prompts, 1, 1)
    here = place // prompts == shard
    return jax.lax.psum(jnp.where(here, own, 0), mesh_lib.BATCH_AXES)

  def keep(whole: jax.Array, row: jax.Array, slot: jax.Array) -> jax.Array:
    place = slot - shard * rows
    here = (place >= 0) & (place < rows)
    start = (0, jnp.clip(place, 0, rows - 1), 0, 0, 0)
    old = jax.lax.dynamic_slice(whole, start, row.shape)
    return jax.lax.dynamic_update_slice(whole, jnp.where(here, row, old), start)

  def copy(place: jax.Array, into: Any) -> Any:
    sent = [send(array, place) for array in read]

    def fill(index: jax.Array, into: Any) -> Any:
      pairs = zip(into, sent, strict=True)
      return tuple(keep(whole, row, slots[index]) for whole, row in pairs)

    return jax.lax.fori_loop(
      ends[place] - counts[place], ends[place], fill, into
    )

  first = jnp.argmax(counts > 0)
  last = counts.shape[0] - jnp.argmax(counts[::-1] > 0)
  last = jnp.where(jnp.any(counts > 0), last, first)
  return jax.lax.fori_loop(first, last, copy, into)


def keep_slots(state: DecodeState, kept: Int[Array, " C"]) -> DecodeState:
  """A state of C slots: those that `kept` names, in this order."""
  cache = state.cache
  return DecodeState(
    cache=cache.replace(
      k=cache.k[:, kept], v=cache.v[:, kept], length=cache.length[kept]
    ),
    logits=state.logits[kept],
    written=state.written[kept],
    limit=state.limit[kept],
    done=state.done[kept],
    keys=state.keys[kept],
  )
