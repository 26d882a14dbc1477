"""Inserts prefilled prompts into slots, and compacts the slots.

These are the functions that move whole caches.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int, UInt32

from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.decode import DecodeState, PrefillState


def insert(
  state: DecodeState,
  prompts: PrefillState,
  counts: Int[Array, " P"],
  slots: Int[Array, " B"],
  max_new_tokens: Int[Array, " B"],
  seeds: Int[Array, "B 2"],
  key_data: UInt32[Array, "B W"],
  mesh: Mesh,
  cache_spec: PartitionSpec,
) -> DecodeState:
  """Copies prompts into slots; a prompt may go into several.

  Args:
    state: the slots.
    prompts: prompts whose prefill is complete.
    counts: how many slots each prompt goes into.
    slots: slot indices, in the order of the prompts; entries past sum(counts)
      are ignored, here and in `max_new_tokens` and `seeds`.
    max_new_tokens: the maximum number of tokens after the prompt, for each
      entry of `slots`.
    seeds: prompt seed and sample index of each entry of `slots`.
    key_data: the words of the random key of each entry; the slot's key is this
      one with the seeds folded in.
    mesh: where both states lie.
    cache_spec: how both caches are split over the mesh.
  """
  B, P = slots.shape[0], counts.shape[0]
  # A store to slot B, which does not exist, is dropped.
  into = jnp.where(jnp.arange(B) < jnp.sum(counts), slots, B)
  prompt_index = jnp.repeat(jnp.arange(P), counts, total_repeat_length=B)
  keys = jax.vmap(
    lambda key, words: functools.reduce(jax.random.fold_in, words, key)
  )(jax.random.wrap_key_data(key_data), seeds)
  by_row = PartitionSpec(None, mesh_lib.BATCH_AXES)
  specs = cache_spec, cache_spec, by_row
  copy = jax.shard_map(
    _copy_rows,
    mesh=mesh,
    in_specs=(specs, specs, PartitionSpec(), PartitionSpec()),
    out_specs=specs,
    check_vma=False,
  )
  cache, source = state.cache, prompts.cache
  k, v, logits = copy(
    (cache.k, cache.v, state.logits[None]),
    (source.k, source.v, prompts.logits[None]),
    counts,
    slots,
  )

  def put(values: jax.Array, new: jax.Array | int | bool) -> jax.Array:
    return values.at[into].set(new, mode="drop")

  return DecodeState(
    cache=cache.replace(
      k=k, v=v, length=put(cache.length, source.length[prompt_index])
    ),
    logits=logits[0],
    num_tokens=put(state.num_tokens, 0),
    max_new_tokens=put(state.max_new_tokens, max_new_tokens),
    done=put(state.done, False),
    keys=put(state.keys, keys),
  )


@jax.named_scope("cache_write")
def _copy_rows(
  of_slots: tuple[jax.Array, ...],
  of_prompts: tuple[jax.Array, ...],
  counts: jax.Array,
  slots: jax.Array,
) -> tuple[jax.Array, ...]:
  """Copies prompts into slots, on one device of a `shard_map`.

  Each prompt is broadcast to all devices once and stored by those that hold a
  slot of it. Left to the partitioner, every device would gather all prompts
  for each slot.

  Args:
    of_slots: this device's keys and values of slots, [L, B / devices, ...], and
      their logits [1, B / devices, V].
    of_prompts: the same of prompts, [L, P / devices, ...].
    counts: int32 [P], as for `insert`.
    slots: int32 [B], as for `insert`.

  Returns:
    `of_slots` with the prompts stored.
  """
  shard = jax.lax.axis_index(mesh_lib.BATCH_AXES)
  prompts_here, slots_here = of_prompts[0].shape[1], of_slots[0].shape[1]
  ends = jnp.cumsum(counts)

  def broadcast(array: jax.Array, prompt: jax.Array) -> jax.Array:
    # On other devices than the prompt's, the index is clamped and the row is
    # masked.
    row = jax.lax.dynamic_slice_in_dim(
      array, prompt - shard * prompts_here, 1, 1
    )
    is_here = prompt // prompts_here == shard
    return jax.lax.psum(jnp.where(is_here, row, 0), mesh_lib.BATCH_AXES)

  def store(whole: jax.Array, row: jax.Array, slot: jax.Array) -> jax.Array:
    index = slot - shard * slots_here
    is_here = (index >= 0) & (index < slots_here)
    start = (0, jnp.clip(index, 0, slots_here - 1), *[0] * (whole.ndim - 2))
    old = jax.lax.dynamic_slice(whole, start, row.shape)
    return jax.lax.dynamic_update_slice(
      whole, jnp.where(is_here, row, old), start
    )

  def copy_prompt(
    prompt: jax.Array, into: tuple[jax.Array, ...]
  ) -> tuple[jax.Array, ...]:
    rows = [broadcast(array, prompt) for array in of_prompts]

    def fill_slot(
      index: jax.Array, into: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, ...]:
      pairs = zip(into, rows, strict=True)
      return tuple(store(whole, row, slots[index]) for whole, row in pairs)

    return jax.lax.fori_loop(
      ends[prompt] - counts[prompt], ends[prompt], fill_slot, into
    )

  first, end = _used_range(counts)
  return jax.lax.fori_loop(first, end, copy_prompt, of_slots)


def _used_range(counts: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns the first and last index with a count, the last plus one."""
  first = jnp.argmax(counts > 0)
  end = counts.shape[0] - jnp.argmax(counts[::-1] > 0)
  return first, jnp.where(jnp.any(counts > 0), end, first)


def compact(state: DecodeState, kept: Int[Array, " kept"]) -> DecodeState:
  """Returns a state of the slots at the indices `kept`, in this order."""
  cache = state.cache
  return DecodeState(
    cache=cache.replace(
      k=cache.k[:, kept], v=cache.v[:, kept], length=cache.length[kept]
    ),
    logits=state.logits[kept],
    num_tokens=state.num_tokens[kept],
    max_new_tokens=state.max_new_tokens[kept],
    done=state.done[kept],
    keys=state.keys[kept],
  )
