"""One call of the decode loop, on the device.

With drafts (`drafts.py`), an iteration runs several tokens per slot, and slots
advance by different numbers of tokens.

Axis letters are as in `types.py`; B counts slots, N the new tokens of one
call.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Int

from azr_jax.models import cached_attention, pages, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import drafts as drafts_lib
from azr_jax.rollout import token_sampling
from azr_jax.rollout.decode_state import (
  Carry,
  Changes,
  DecodeOutput,
  Slots,
  no_output,
)
from azr_jax.rollout.steps import decode_step, draft_step
from azr_jax.types import Params


def decode(
  model: transformer.Transformer,
  params: Params,
  pool: pages.Pool,
  slots: Slots,
  changes: Changes,
  stop_ids: Int[Array, " I"],
  min_live: Int[Array, ""],
  truncation: token_sampling.Truncation,
  num_drafts: int,
  min_match: int,
  steps: int,
  lists_pages: bool,
  mesh: Mesh,
  pool_spec: PartitionSpec,
) -> tuple[pages.Pool, Slots, DecodeOutput]:
  """Samples up to `steps` tokens per slot.

  Args:
    model: the decoder.
    params: the sampler's parameters.
    pool: keys and values in pages.
    slots: the slots to continue.
    changes: host updates to apply before decoding.
    stop_ids: a slot is done once it samples one of these ids; the id is kept.
    min_live: the loop ends early once no more slots than this are live.
    truncation: top-k and top-p of the token distribution.
    num_drafts: J, the drafts per slot and iteration if `changes.context` is
      given. The call then ends when the first slot that is not done has N
      tokens.
    min_match: number of matching tokens that a draft requires.
    steps: N, the maximum number of tokens per slot.
    lists_pages: whether attention reads live pages only, with the platform's
      kernel.
    mesh: the mesh that slots are split over.
    pool_spec: how the pages are split over the mesh.
  """
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)
  per_device = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
  slots = _changed(slots, changes)
  # The pages are constant in the loop, so the loop need not carry them.
  windows = model.config.distinct_windows
  cache = _open_cache(
    pool, slots, changes, lists_pages, windows, mesh, pool_spec
  )
  step, context = decode_step, None
  if changes.context is not None:
    step = functools.partial(
      draft_step, num_drafts=num_drafts, min_match=min_match
    )
    # Each device searches its own slots' context.
    context = jax.lax.with_sharding_constraint(
      changes.context, NamedSharding(mesh, by_row)
    )
  start = _start(cache.pool, slots, context, steps, num_drafts)
  unfinished = functools.partial(_is_unfinished, steps, min_live)
  body = functools.partial(step, model, params, cache, stop_ids, truncation)
  _, slots, output, recent, _ = jax.lax.while_loop(unfinished, body, start)
  pool = per_device(
    pages.write_entries,
    in_specs=(pool_spec, pool_spec, by_row, by_row, by_row),
    out_specs=pool_spec,
  )(cache.pool, recent, changes.table, cache.length, output.num_generated)
  length = cache.length + output.num_generated
  output = output.replace(done=slots.done)
  return pool, slots.replace(length=length), output


def _changed(slots: Slots, changes: Changes) -> Slots:
  """Returns the slots with entering sequences added and stopped ones done."""
  keys = jax.vmap(
    lambda key, numbers: functools.reduce(jax.random.fold_in, numbers, key)
  )(jax.random.wrap_key_data(changes.key_data), changes.numbers)

  def choose(new: jax.Array, old: jax.Array) -> jax.Array:
    enters = jnp.expand_dims(changes.enters, range(1, new.ndim))
    return jnp.where(enters, new, old)

  done = (slots.done & ~changes.enters) | changes.stops
  length = choose(changes.length, slots.length)
  return Slots(
    token=choose(changes.token, slots.token),
    # Slots that are done must not lengthen attention for the others.
    length=jnp.where(done, 0, length),
    num_tokens=choose(changes.num_tokens, slots.num_tokens),
    max_new_tokens=choose(changes.max_new_tokens, slots.max_new_tokens),
    done=done,
    temperature=choose(changes.temperature, slots.temperature),
    key_data=choose(jax.random.key_data(keys), slots.key_data),
    adapter=choose(changes.adapter, slots.adapter),
  )


def _start(
  pool: pages.Pool,
  slots: Slots,
  context: Int[Array, "B T"] | None,
  steps: int,
  num_drafts: int,
) -> Carry:
  """Returns the loop's initial carry.

  Args:
    pool: keys and values in pages; new entries get the same dtypes.
    slots: the slots of this call.
    context: the tokens to draft from; None without drafts.
    steps: N.
    num_drafts: J, the drafts per slot and iteration if there is a context.
  """
  room = steps
  if context is not None:
    # Entries of rejected drafts follow the accepted ones.
    room += 1 + num_drafts
    context = jnp.pad(
      context, ((0, 0), (0, steps)), constant_values=drafts_lib.NO_TOKEN
    )
  return Carry(
    jnp.int32(0),
    slots,
    no_output(slots, steps),
    pages.no_entries(pool, slots.done.shape[0], room),
    context,
  )


def _is_unfinished(
  steps: int, min_live: Int[Array, ""], carry: Carry
) -> Bool[Array, ""]:
  """Returns whether the loop runs another iteration.

  Args:
    steps: N.
    min_live: the loop ends early once no more slots than this are live.
    carry: the result of the last iteration.
  """
  most = carry.step
  if carry.context is not None:
    most = jnp.max(jnp.where(carry.slots.done, 0, carry.output.num_generated))
  return (most < steps) & (jnp.sum(~carry.slots.done) > min_live)


def _open_cache(
  pool: pages.Pool,
  slots: Slots,
  changes: Changes,
  lists_pages: bool,
  windows: tuple[int, ...],
  mesh: Mesh,
  pool_spec: PartitionSpec,
) -> pages.PagedCache:
  """Copies the pages listed in `changes`; returns the cache to attend to.

  Args:
    pool: keys and values in pages.
    slots: the slots of this call.
    changes: page tables and the copies to make.
    lists_pages: whether attention reads live pages only.
    windows: the distinct windows of the decoder's layers.
    mesh: the mesh that slots are split over.
    pool_spec: how the pages are split over the mesh.
  """
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)
  per_device = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
  pool, order = per_device(
    _begin_call,
    in_specs=(pool_spec, by_row, by_row, by_row, by_row),
    out_specs=(pool_spec, by_row),
  )(
    pool,
    changes.copy_sources,
    changes.copy_targets,
    changes.num_copies,
    slots.length,
  )
  live = None
  if lists_pages:
    live = per_device(
      functools.partial(
        cached_attention.list_pages,
        platform=mesh_lib.platform(mesh),
        windows=windows,
      ),
      in_specs=(pool_spec, by_row, by_row),
      out_specs=by_row,
    )(pool, changes.table, slots.length)
  return pages.PagedCache(pool, changes.table, slots.length, order, live)


def _begin_call(
  pool: pages.Pool,
  copy_sources: Int[Array, " B"],
  copy_targets: Int[Array, " B"],
  num_copies: Int[Array, "1"],
  length: Int[Array, " B"],
) -> tuple[pages.Pool, Int[Array, " B"]]:
  """Copies pages and orders the slots by length, on one device."""
  pool = pages.copy_pages(pool, copy_sources, copy_targets, num_copies[0])
  return pool, pages.by_length(length)
