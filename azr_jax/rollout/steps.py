"""The forward passes of sampling: one decode step, and prefill.

Axis letters are as in `types.py`; B counts slots, N the new tokens of one
call.
"""

import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, Int32

from azr_jax.models import pages, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import drafts as drafts_lib
from azr_jax.rollout import token_sampling
from azr_jax.rollout.decode_state import Carry, DecodeOutput
from azr_jax.types import Leaf, Params


def decode_step(
  model: transformer.Transformer,
  params: Params,
  cache: pages.PagedCache,
  stop_ids: Int[Array, " I"],
  truncation: token_sampling.Truncation,
  carry: Carry,
) -> Carry:
  """Runs the decoder on the last token of each slot and samples the next.

  Args:
    model: the decoder.
    params: the sampler's parameters.
    cache: keys and values from before this call.
    stop_ids: as for `decode`.
    truncation: as for `decode`.
    carry: the result of the previous iteration.
  """
  step, slots, output, recent, _ = carry
  hidden_BSD, new = forward(
    model,
    params,
    slots.token[:, None],
    (cache.length + step)[:, None],
    slots.adapter,
    ~slots.done[:, None],
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
  # `jnp.any` would be a reduction, which a GPU runs as one more operation.
  is_last = functools.reduce(
    jnp.logical_or,
    [token == stop_id for stop_id in stop_ids],
    num_tokens >= slots.max_new_tokens,
  )
  slots = slots.replace(
    token=jnp.where(active, token, slots.token),
    num_tokens=num_tokens,
    done=slots.done | is_last,
  )
  output = _add_tokens(output, token, logprob, active)
  return Carry(step + 1, slots, output, recent)


def _add_tokens(
  output: DecodeOutput,
  token: Int[Array, " B"],
  logprob: Float[Array, " B"],
  active: Bool[Array, " B"],
) -> DecodeOutput:
  """Appends a token to each live slot's output."""
  index = jnp.arange(output.tokens.shape[1])[None, :]
  # A GPU runs both selections as one operation, but two scatters as two.
  is_next_BN = active[:, None] & (index == output.num_generated[:, None])
  return output.replace(
    tokens=jnp.where(is_next_BN, token[:, None], output.tokens),
    logprobs=jnp.where(is_next_BN, logprob[:, None], output.logprobs),
    num_generated=output.num_generated + active,
    iterations=output.iterations + active,
  )


def draft_step(
  model: transformer.Transformer,
  params: Params,
  cache: pages.PagedCache,
  stop_ids: Int[Array, " I"],
  truncation: token_sampling.Truncation,
  carry: Carry,
  num_drafts: int,
  min_match: int,
) -> Carry:
  """Runs each slot's last token and drafts, and keeps the accepted tokens.

  Args:
    model: the decoder.
    params: the sampler's parameters.
    cache: keys and values from before this call.
    stop_ids: as for `decode`.
    truncation: as for `decode`.
    carry: the result of the previous iteration.
    num_drafts: as for `decode`.
    min_match: as for `decode`.
  """
  step, slots, output, recent, context = carry
  assert context is not None
  B, N = output.tokens.shape
  start = output.num_generated
  end = context.shape[1] - N + start
  drafts = drafts_lib.propose(context, end, num_drafts, min_match)
  # Missing drafts run as token 0 but are never accepted.
  tokens = jnp.concatenate([slots.token[:, None], drafts], axis=1)
  exists = (tokens >= 0) & ~slots.done[:, None]
  tokens = jnp.maximum(tokens, 0)
  S = tokens.shape[1]
  hidden_BSD, new = forward(
    model,
    params,
    tokens,
    (cache.length + start)[:, None] + jnp.arange(S)[None, :],
    slots.adapter,
    exists,
    cache,
    pages.RecentKV(recent, start),
  )
  recent = pages.append(recent, new, start)
  logits = unembed(model, params, hidden_BSD.reshape(B * S, -1))
  tokens, logprobs = drafts_lib.sample(
    logits.reshape(B, S, -1),
    jax.random.wrap_key_data(slots.key_data),
    slots.num_tokens,
    slots.temperature,
    truncation,
  )
  is_stop = jnp.any(tokens[..., None] == stop_ids[None, None], axis=-1)
  room = jnp.minimum(slots.max_new_tokens - slots.num_tokens, N - start)
  counts = drafts_lib.num_accepted(
    tokens, drafts, is_stop, jnp.where(slots.done, 0, room)
  )
  counted = jnp.arange(S)[None, :] < counts[:, None]
  last = jnp.take_along_axis(tokens, jnp.maximum(counts - 1, 0)[:, None], 1)
  num_tokens = slots.num_tokens + counts
  done = slots.done | jnp.any(is_stop & counted, axis=1)
  done |= num_tokens >= slots.max_new_tokens
  slots = slots.replace(
    token=jnp.where(counts > 0, last[:, 0], slots.token),
    num_tokens=num_tokens,
    done=done,
  )
  output = output.replace(
    tokens=drafts_lib.append(output.tokens, start, tokens, counts),
    logprobs=drafts_lib.append(output.logprobs, start, logprobs, counts),
    num_generated=start + counts,
    iterations=output.iterations + (counts > 0),
  )
  context = drafts_lib.append(context, end, tokens, counts)
  return Carry(step + 1, slots, output, recent, context)


def forward(
  model: transformer.Transformer,
  params: Params,
  tokens: Int[Array, "B S"],
  positions: Int[Array, "B S"],
  adapter: Int[Array, " B"],
  exists: Bool[Array, "B S"],
  cache: pages.PagedCache,
  recent: pages.RecentKV | None = None,
) -> tuple[Float[Array, "B S D"], pages.Entries]:
  """Runs the decoder on new tokens of cached sequences.

  Args:
    model: the decoder.
    params: the sampler's parameters.
    tokens: the new tokens.
    positions: position of each token in its sequence.
    adapter: which of several stacked adapters each row gets.
    exists: False for tokens whose results nobody reads. They get no experts,
      whose weights would be read for them.
    cache: keys and values of earlier tokens.
    recent: keys and values of the tokens after those.

  Returns:
    The final hidden states, and the new tokens' keys and values of all layers
    for the caller to store.
  """
  outputs: Any = model.apply(
    {"params": params},
    tokens,
    positions,
    exists.astype(jnp.int32) if model.config.experts else None,
    cache=cache,
    recent=recent,
    adapter_ids=adapter[:, None] if model.has_stack else None,
  )
  hidden_BSD, new = outputs
  if isinstance(cache.live, pages.LivePages):
    # Callers append to `recent`. If they could do so before the last layer has
    # read it, the TPU compiler would copy it for every token.
    hidden_BSD, new = jax.lax.optimization_barrier((hidden_BSD, new))
  return hidden_BSD, new


@jax.named_scope("logits")
def unembed(
  model: transformer.Transformer, params: Params, hidden: Float[Array, "*B D"]
) -> Float[Array, "*B V"]:
  """Returns the logits of final hidden states, in float32."""
  head = transformer.unembedding(params, model.config).astype(hidden.dtype)
  return jnp.matmul(hidden, head, preferred_element_type=jnp.float32)


class PrefillBatch(flax.struct.PyTreeNode):
  """The next tokens of some sequences, one row per sequence.

  Rows are split evenly over devices. A sequence's pages are on the device of
  its row.

  Attributes:
    tokens: right-padded.
    starts: position of each row's first token.
    counts: number of tokens in each row; 0 in unused rows.
    table: the pages of each sequence, including pages for these tokens.
    adapter: as in `decode_state.Slots`.
  """

  tokens: Int32[Leaf, "B S"]
  starts: Int32[Leaf, " B"]
  counts: Int32[Leaf, " B"]
  table: Int32[Leaf, "B M"]
  adapter: Int32[Leaf, " B"]


def prefill(
  model: transformer.Transformer,
  params: Params,
  pool: pages.Pool,
  batch: PrefillBatch,
  mesh: Mesh,
  pool_spec: PartitionSpec,
) -> pages.Pool:
  """Writes the keys and values of tokens into pages.

  Args:
    model: the decoder.
    params: the sampler's parameters.
    pool: keys and values in pages.
    batch: the tokens and the pages to write.
    mesh: the mesh that rows and pages are split over.
    pool_spec: how the pages are split over the mesh.
  """
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)
  per_device = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
  order = per_device(pages.by_length, in_specs=by_row, out_specs=by_row)(
    batch.starts
  )
  index = jnp.arange(batch.tokens.shape[1])[None, :]
  cache = pages.PagedCache(pool, batch.table, batch.starts, order)
  _, new = forward(
    *(model, params, batch.tokens, batch.starts[:, None] + index),
    *(batch.adapter, index < batch.counts[:, None], cache),
  )
  return per_device(
    pages.write_entries,
    in_specs=(pool_spec, pool_spec, by_row, by_row, by_row),
    out_specs=pool_spec,
  )(pool, new, batch.table, batch.starts, batch.counts)
