"""The device side of sampling: slots, and the decode loop.

A slot holds one sequence. Its last token, the prompt's or a sampled one, is not
in the cache yet: an iteration of the loop runs the decoder on it, which gives
the distribution of the next one. So a sequence starts from its last token and
pages with all earlier ones, and nothing but tokens passes between the calls. A
slot that is done is still computed, with cache length 0, until a sequence
enters it.

Axis letters are those of `types.py`; B counts slots, N the new tokens of one
call.
"""

import functools
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from azr_jax.models import page_kernel, pages, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import token_sampling
from azr_jax.types import Leaf, Params


class Slots(flax.struct.PyTreeNode):
  """The state of the slots between two calls of `decode`, without their pages.

  Attributes:
    token: int32 [B], the last token of each slot.
    length: int32 [B], cached entries: the tokens before that one.
    num_tokens: int32 [B], tokens after the prompt so far, tool output included.
    max_new_tokens: int32 [B], the `num_tokens` at which a slot is done.
    done: bool [B], slots to which the loop adds no tokens.
    temperature: float32 [B], divides the logits; 0 is greedy.
    key_data: uint32 [B, W], the words of a random key for each; a token folds
      in its index.
  """

  token: Leaf
  length: Leaf
  num_tokens: Leaf
  max_new_tokens: Leaf
  done: Leaf
  temperature: Leaf
  key_data: Leaf


class Changes(flax.struct.PyTreeNode):
  """What the host changes before a call of `decode`.

  Attributes:
    enters: bool [B], slots that get another sequence; the next seven fields
      describe it.
    token: int32 [B], as in `Slots`.
    length: int32 [B], as in `Slots`.
    num_tokens: int32 [B], as in `Slots`.
    max_new_tokens: int32 [B], as in `Slots`.
    temperature: float32 [B], as in `Slots`.
    key_data: uint32 [B, W], the words of a random key.
    seeds: int32 [B, 2], folded into this key: prompt seed and sample index.
    stops: bool [B], slots that are done, because the host found the end of
      their response or took their sequence away.
    table: int32 [B, M], the pages of each slot, those of new tokens included.
    copy_sources: int32 [B], pages to copy, the first `num_copies` of each
      device's part.
    copy_targets: int32 [B], the pages to copy them to.
    num_copies: int32 [devices], for each part.
  """

  enters: Leaf
  token: Leaf
  length: Leaf
  num_tokens: Leaf
  max_new_tokens: Leaf
  temperature: Leaf
  key_data: Leaf
  seeds: Leaf
  stops: Leaf
  table: Leaf
  copy_sources: Leaf
  copy_targets: Leaf
  num_copies: Leaf


class DecodeOutput(flax.struct.PyTreeNode):
  """The tokens that one call of `decode` generated.

  Attributes:
    tokens: int32 [B, N]; entries past `num_generated` are padding.
    logprobs: float32 [B, N], log-probability of each of these tokens.
    num_generated: int32 [B].
    done: bool [B], as in the slots after the call.
  """

  tokens: Leaf
  logprobs: Leaf
  num_generated: Leaf
  done: Leaf


class _Carry(NamedTuple):
  """The values that one iteration of the decode loop passes to the next.

  Attributes:
    step: int32 [], iterations so far.
    slots: the slots, with the cache lengths from before the call.
    output: the tokens that this call has generated so far.
    recent: keys and values of the tokens that were run.
  """

  step: jax.Array
  slots: Slots
  output: DecodeOutput
  recent: pages.Entries


def init_slots(slots: int) -> Slots:
  """Returns slots without sequences; all are done."""
  zero = jnp.zeros(slots, jnp.int32)
  return Slots(
    token=zero,
    length=zero,
    num_tokens=zero,
    max_new_tokens=zero,
    done=jnp.ones(slots, bool),
    temperature=jnp.ones(slots, jnp.float32),
    key_data=jax.random.key_data(jax.random.split(jax.random.key(0), slots)),
  )


def compact(slots: Slots, kept: Int[Array, " kept"]) -> Slots:
  """Returns the slots at the indices `kept`, in this order."""
  return jax.tree.map(lambda x: x[kept], slots)


@jax.named_scope("logits")
def unembed(
  model: transformer.Transformer, params: Params, hidden: Float[Array, "B D"]
) -> Float[Array, "B V"]:
  """Returns the logits of final hidden states, in float32."""
  head = transformer.unembedding(params, model.config).astype(hidden.dtype)
  return jnp.matmul(hidden, head, preferred_element_type=jnp.float32)


def decode(
  model: transformer.Transformer,
  params: Params,
  pool: pages.Pool,
  slots: Slots,
  changes: Changes,
  stop_ids: Int[Array, " I"],
  min_active: Int[Array, ""],
  truncation: token_sampling.Truncation,
  steps: int,
  lists_pages: bool,
  mesh: Mesh,
  pool_spec: PartitionSpec,
) -> tuple[pages.Pool, Slots, DecodeOutput]:
  """Samples up to `steps` tokens per slot.

  Args:
    model: the decoder.
    params: its parameters.
    pool: keys and values in pages.
    slots: the slots to continue.
    changes: what the host changes before.
    stop_ids: a slot is done once it samples one of these ids; the id is kept.
    min_active: the loop ends early when no more slots than this are active.
    truncation: of the distribution of a token.
    steps: N, the maximum number of tokens per slot.
    lists_pages: whether attention reads live pages only, by `page_kernel.py`.
    mesh: where the slots lie.
    pool_spec: how the pages are split over the mesh.
  """
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)
  per_device = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
  slots = _changed(slots, changes)
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
        page_kernel.live_pages, page_size=pages.entries_of_page(pool)
      ),
      in_specs=(by_row, by_row),
      out_specs=by_row,
    )(changes.table, slots.length)
  # The pages are constant in the loop, so the loop need not carry them.
  cache = pages.PagedCache(pool, changes.table, slots.length, order, live)

  def unfinished(carry: _Carry) -> jax.Array:
    return (carry.step < steps) & (jnp.sum(~carry.slots.done) > min_active)

  body = functools.partial(
    _decode_step, model, params, cache, stop_ids, truncation
  )
  start = _Carry(
    jnp.int32(0),
    slots,
    _no_output(slots, steps),
    pages.no_entries(pool, slots.done.shape[0], steps),
  )
  _, slots, output, recent = jax.lax.while_loop(unfinished, body, start)
  pool = per_device(
    pages.write_entries,
    in_specs=(pool_spec, pool_spec, by_row, by_row, by_row),
    out_specs=pool_spec,
  )(pool, recent, changes.table, cache.length, output.num_generated)
  length = cache.length + output.num_generated
  return pool, slots.replace(length=length), output


def _changed(slots: Slots, changes: Changes) -> Slots:
  """Returns the slots with the sequences that enter, and without others."""
  keys = jax.vmap(
    lambda key, words: functools.reduce(jax.random.fold_in, words, key)
  )(jax.random.wrap_key_data(changes.key_data), changes.seeds)

  def choose(new: jax.Array, old: jax.Array) -> jax.Array:
    enters = jnp.expand_dims(changes.enters, range(1, new.ndim))
    return jnp.where(enters, new, old)

  done = (slots.done & ~changes.enters) | changes.stops
  length = choose(changes.length, slots.length)
  return Slots(
    token=choose(changes.token, slots.token),
    # Slots that are done do not lengthen attention for the others.
    length=jnp.where(done, 0, length),
    num_tokens=choose(changes.num_tokens, slots.num_tokens),
    max_new_tokens=choose(changes.max_new_tokens, slots.max_new_tokens),
    done=done,
    temperature=choose(changes.temperature, slots.temperature),
    key_data=choose(jax.random.key_data(keys), slots.key_data),
  )


def _begin_call(
  pool: pages.Pool,
  copy_sources: jax.Array,
  copy_targets: jax.Array,
  num_copies: jax.Array,
  length: jax.Array,
) -> tuple[pages.Pool, jax.Array]:
  """Copies pages and orders the slots by length, on one device."""
  pool = pages.copy_pages(pool, copy_sources, copy_targets, num_copies[0])
  return pool, pages.by_length(length)


def _no_output(slots: Slots, steps: int) -> DecodeOutput:
  """Returns the output of a call that has made no tokens."""
  B = slots.done.shape[0]
  return DecodeOutput(
    tokens=jnp.zeros((B, steps), jnp.int32),
    logprobs=jnp.zeros((B, steps), jnp.float32),
    num_generated=jnp.zeros(B, jnp.int32),
    done=slots.done,
  )


def _decode_step(
  model: transformer.Transformer,
  params: Params,
  cache: pages.PagedCache,
  stop_ids: Int[Array, " I"],
  truncation: token_sampling.Truncation,
  carry: _Carry,
) -> _Carry:
  """Runs the decoder on the last token of each slot and samples the next.

  Args:
    model: the decoder.
    params: its parameters.
    cache: keys and values from before this call.
    stop_ids: as for `decode`.
    truncation: as for `decode`.
    carry: the result of the last iteration.
  """
  step, slots, output, recent = carry
  hidden_BSD, new = forward(
    model,
    params,
    slots.token[:, None],
    (cache.length + step)[:, None],
    cache,
    pages.RecentKV(recent, step),
  )
  recent = pages.append(recent, new, step)
  logits = unembed(model, params, hidden_BSD[:, 0])
  keys = jax.random.wrap_key_data(slots.key_data)
  keys = jax.vmap(jax.random.fold_in)(keys, slots.num_tokens)
  token, logprob = token_sampling.sample_tokens(
    logits, keys, slots.temperature, truncation
  )
  active = ~slots.done
  num_tokens = slots.num_tokens + active
  stopped = jnp.any(token[:, None] == stop_ids[None, :], axis=-1)
  done = slots.done | stopped | (num_tokens >= slots.max_new_tokens)
  slots = slots.replace(
    token=jnp.where(active, token, slots.token),
    num_tokens=num_tokens,
    done=done,
  )
  output = _add_tokens(output, token, logprob, active).replace(done=done)
  return _Carry(step + 1, slots, output, recent)


def _add_tokens(
  output: DecodeOutput,
  token: Int[Array, " B"],
  logprob: Float[Array, " B"],
  active: Bool[Array, " B"],
) -> DecodeOutput:
  """Returns the output with a token more in each active slot."""
  B, N = output.tokens.shape
  rows = jnp.arange(B)
  # The index of a slot that is done is out of bounds, so its token is dropped.
  index = jnp.where(active, output.num_generated, N)
  return output.replace(
    tokens=output.tokens.at[rows, index].set(token, mode="drop"),
    logprobs=output.logprobs.at[rows, index].set(logprob, mode="drop"),
    num_generated=output.num_generated + active,
  )


def forward(
  model: transformer.Transformer,
  params: Params,
  tokens: Int[Array, "B S"],
  positions: Int[Array, "B S"],
  cache: pages.PagedCache,
  recent: pages.RecentKV | None = None,
) -> tuple[Float[Array, "B S D"], pages.Entries]:
  """Runs the decoder on new tokens of sequences that a cache holds.

  Returns:
    Final hidden states, and the new tokens' keys and values of all layers for
    the caller to store.
  """
  outputs: Any = model.apply(
    {"params": params}, tokens, positions, cache=cache, recent=recent
  )
  hidden_BSD, new = outputs
  return hidden_BSD, new
