"""The device side of sampling: prefill and the decode loop.

A slot holds one sequence. Entry t of its cache holds position t, so sequences
of different lengths share one array without padding masks. A finished slot is
still computed, with cache length 0, until a prompt is inserted or tool output
extends it; what its cache holds stays intact until then. A call of `decode`
stores as many entries as it has steps, generated or not, so a cache has that
many spare ones past the longest sequence.

Axis letters are those of `types.py`; B counts slots, N the new tokens of one
decode call.
"""

import functools
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from azr_jax.models import cache as cache_lib
from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import token_sampling
from azr_jax.types import Leaf, Params


class PrefillState(flax.struct.PyTreeNode):
  """The prompts of a batch, whose prefill is under way or complete.

  Attributes:
    cache: keys and values of every prompt.
    logits: float32 [P, V], of the token after each prompt; zero until the
      prompt's last token was prefilled.
  """

  cache: transformer.KVCache
  logits: Leaf


class DecodeState(flax.struct.PyTreeNode):
  """The state of the slots between two calls of `decode`.

  Attributes:
    cache: keys and values of every slot.
    logits: float32 [B, V], of the next token of each slot.
    num_tokens: int32 [B], tokens after the prompt so far, tool output included.
    max_new_tokens: int32 [B], the `num_tokens` at which a slot is done.
    done: bool [B], slots to which the loop adds no tokens.
    keys: random key [B]; each token folds in its index.
  """

  cache: transformer.KVCache
  logits: Leaf
  num_tokens: Leaf
  max_new_tokens: Leaf
  done: Leaf
  keys: Leaf


class DecodeOutput(flax.struct.PyTreeNode):
  """The tokens that one call of `decode` generated.

  Attributes:
    tokens: int32 [B, N]; entries past `num_generated` are padding.
    logprobs: float32 [B, N], log-probability of each of these tokens.
    num_generated: int32 [B].
    done: bool [B], as in the state after the call.
  """

  tokens: Leaf
  logprobs: Leaf
  num_generated: Leaf
  done: Leaf


class _Carry(NamedTuple):
  """The values that one iteration of the decode loop passes to the next.

  Attributes:
    step: int32 [], iterations so far.
    state: the slots, without their cache: it is constant in the loop.
    output: the tokens that this call has generated so far.
    recent: keys and values [L, B, K, N, E] of these tokens.
  """

  step: jax.Array
  state: DecodeState
  output: DecodeOutput
  recent: tuple[jax.Array, jax.Array]


def init_prefill_state(
  model: transformer.Transformer, chunk: int, prompts: int, length: int
) -> PrefillState:
  """Returns a state for prompts of up to `length` tokens.

  Args:
    model: the decoder.
    chunk: cache entries that attention reads at a time.
    prompts: P, the number of prompts.
    length: maximum number of tokens of a prompt.
  """
  return PrefillState(
    cache=transformer.init_cache(
      model.config, prompts, length, model.dtype, chunk
    ),
    logits=jnp.zeros((prompts, model.config.vocab_size), jnp.float32),
  )


def init_decode_state(
  model: transformer.Transformer, chunk: int, slots: int, length: int
) -> DecodeState:
  """Returns slots without sequences; all are done.

  Args:
    model: the decoder.
    chunk: cache entries that attention reads at a time.
    slots: B, the number of slots.
    length: minimum number of cache entries of a slot: the tokens of its longest
      sequence, prompt included, and `steps` of `decode` spare ones.
  """
  return DecodeState(
    cache=transformer.init_cache(
      model.config, slots, length, model.dtype, chunk
    ),
    logits=jnp.zeros((slots, model.config.vocab_size), jnp.float32),
    num_tokens=jnp.zeros(slots, jnp.int32),
    max_new_tokens=jnp.zeros(slots, jnp.int32),
    done=jnp.ones(slots, bool),
    keys=jax.random.split(jax.random.key(0), slots),
  )


def forward(
  model: transformer.Transformer,
  params: Params,
  tokens: Int[Array, "B S"],
  positions: Int[Array, "B S"],
  cache: transformer.KVCache,
  recent: transformer.RecentKV | None = None,
) -> tuple[Float[Array, "B S D"], tuple[jax.Array, jax.Array]]:
  """Runs the decoder on new tokens of sequences that a cache holds.

  Returns:
    Final hidden states, and the new tokens' keys and values [L, B, K, S, E] for
    the caller to store.
  """
  outputs: Any = model.apply(
    {"params": params}, tokens, positions, cache=cache, recent=recent
  )
  hidden_BSD, new_kv = outputs
  return hidden_BSD, new_kv


@jax.named_scope("logits")
def unembed(
  model: transformer.Transformer, params: Params, hidden: Float[Array, "B D"]
) -> Float[Array, "B V"]:
  """Returns the logits of final hidden states, in float32."""
  head = transformer.unembedding(params, model.config).astype(hidden.dtype)
  return jnp.matmul(hidden, head, preferred_element_type=jnp.float32)


def prefill(
  model: transformer.Transformer,
  params: Params,
  state: PrefillState,
  tokens: Int[Array, "P S"],
  start: Int[Array, ""],
  lengths: Int[Array, " P"],
) -> PrefillState:
  """Prefills the next S tokens of each right-padded prompt.

  Args:
    model: the decoder.
    params: its parameters.
    state: the prompts, prefilled up to `start`.
    tokens: the tokens at positions `start` ... `start` + S - 1.
    start: position of the first of these tokens, the same for all prompts.
    lengths: number of tokens of each whole prompt. The call that prefills a
      prompt's last token takes its logits.
  """
  P, S = tokens.shape
  positions = jnp.broadcast_to(start + jnp.arange(S), (P, S))
  before = state.cache.replace(length=jnp.full(P, start))
  hidden_PSD, (k, v) = forward(model, params, tokens, positions, before)
  k, v = cache_lib.write_at((before.k, before.v), k, v, start)
  cache = before.replace(k=k, v=v, length=lengths)
  last = lengths - 1 - start
  index = jnp.clip(last, 0, S - 1)[:, None, None]
  last_PD = jnp.take_along_axis(hidden_PSD, index, axis=1)[:, 0]
  ends_here = ((last >= 0) & (last < S))[:, None]
  logits = jnp.where(ends_here, unembed(model, params, last_PD), state.logits)
  return PrefillState(cache, logits)


def decode(
  model: transformer.Transformer,
  params: Params,
  state: DecodeState,
  stop_ids: Int[Array, " I"],
  force_stop: Bool[Array, " B"],
  min_active: Int[Array, ""],
  sampling: token_sampling.SamplingParams,
  steps: int,
  mesh: Mesh,
  cache_spec: PartitionSpec,
) -> tuple[DecodeState, DecodeOutput]:
  """Samples up to `steps` tokens per slot.

  Args:
    model: the decoder.
    params: its parameters.
    state: the slots to continue.
    stop_ids: a slot is done once it samples one of these ids; the id is kept.
    force_stop: slots that are finished before the first step, because the host
      found a stop string or the end of a tool call.
    min_active: the loop ends early when no more slots than this are active.
    sampling: temperature and truncation of the distribution of a token.
    steps: N, the maximum number of tokens per slot; the cache has as many spare
      entries.
    mesh: where the slots lie.
    cache_spec: how their cache is split over the mesh.
  """
  slots = state.done.shape[0]
  rows = jnp.arange(slots)
  done = state.done | force_stop
  # Finished slots get length 0, so they do not lengthen attention for the
  # batch.
  cache = state.cache.replace(length=jnp.where(done, 0, state.cache.length))
  L, B, K, E, _ = cache.k.shape
  buffer = jnp.zeros((L, B, K, steps, E), cache.k.dtype)
  empty = DecodeOutput(
    tokens=jnp.zeros((slots, steps), jnp.int32),
    logprobs=jnp.zeros((slots, steps), jnp.float32),
    num_generated=jnp.zeros(slots, jnp.int32),
    done=done,
  )

  def unfinished(carry: _Carry) -> jax.Array:
    return (carry.step < steps) & (jnp.sum(~carry.state.done) > min_active)

  body = functools.partial(
    _decode_step, model, params, cache, rows, stop_ids, sampling
  )
  # The cache is constant in the loop, so the loop need not carry it.
  start = _Carry(
    jnp.int32(0), state.replace(done=done, cache=None), empty, (buffer, buffer)
  )
  _, state, output, recent = jax.lax.while_loop(unfinished, body, start)
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)
  store = jax.shard_map(
    _store_recent,
    mesh=mesh,
    in_specs=(cache_spec, cache_spec, by_row, by_row),
    out_specs=cache_spec,
    check_vma=False,
  )
  k, v = store((cache.k, cache.v), recent, cache.length, output.num_generated)
  length = cache.length + output.num_generated
  cache = cache.replace(k=k, v=v, length=length)
  return state.replace(cache=cache), output


def _store_recent(
  whole: cache_lib.KV,
  recent: cache_lib.KV,
  length: Int[Array, " B"],
  num_generated: Int[Array, " B"],
) -> cache_lib.KV:
  """Moves a call's new entries to the cache, on one device of a `shard_map`.

  A slot without new tokens keeps its entries, because it may be extended later.
  """
  rows = jnp.arange(length.shape[0])
  return cache_lib.store_entries(whole, recent, rows, length, num_generated)


def _decode_step(
  model: transformer.Transformer,
  params: Params,
  cache: transformer.KVCache,
  rows: Int[Array, " B"],
  stop_ids: Int[Array, " I"],
  sampling: token_sampling.SamplingParams,
  carry: _Carry,
) -> _Carry:
  """Samples one token per slot and runs the decoder on it.

  Args:
    model: the decoder.
    params: its parameters.
    cache: keys and values from before this call.
    rows: 0 ... B - 1.
    stop_ids: as for `decode`.
    sampling: as for `decode`.
    carry: the result of the last iteration.
  """
  step, state, output, recent = carry
  keys = jax.vmap(jax.random.fold_in)(state.keys, state.num_tokens)
  token, logprob = token_sampling.sample_tokens(state.logits, keys, sampling)
  active = ~state.done
  # A finished slot's index is out of bounds, so its token is dropped.
  index = jnp.where(active, output.num_generated, output.tokens.shape[1])
  num_tokens = state.num_tokens + active
  stopped = jnp.any(token[:, None] == stop_ids[None, :], axis=-1)
  done = state.done | stopped | (num_tokens >= state.max_new_tokens)
  output = DecodeOutput(
    tokens=output.tokens.at[rows, index].set(token, mode="drop"),
    logprobs=output.logprobs.at[rows, index].set(logprob, mode="drop"),
    num_generated=output.num_generated + active,
    done=done,
  )
  hidden_BSD, (k, v) = forward(
    model,
    params,
    token[:, None],
    (cache.length + step)[:, None],
    cache,
    cache_lib.RecentKV(*recent, step),
  )
  recent = (
    cache_lib.append(recent[0], k, step),
    cache_lib.append(recent[1], v, step),
  )
  state = state.replace(
    logits=unembed(model, params, hidden_BSD[:, 0]),
    num_tokens=num_tokens,
    done=done,
  )
  return _Carry(step + 1, state, output, recent)
