"""The device side of sampling: prefill and the decode loop.

A slot holds one sequence. Entry t of its cache holds position t, so sequences
of different length share one array without padding masks. A slot whose sequence
is done goes on being computed, as if its cache were empty, until it is filled
anew, or `append` gives it more to read: what its cache holds stays there.
"""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from azr_jax.models import cache as cache_lib
from azr_jax.models import transformer
from azr_jax.rollout import token_sampling
from azr_jax.types import Leaf


class Prompts(flax.struct.PyTreeNode):
  """Prompts that are being read, or have been.

  Attributes:
    cache: keys and values of every prompt.
    logits: float32 [P, V], of the token after each prompt, once it is read.
  """

  cache: transformer.KVCache
  logits: Leaf


class DecodeState(flax.struct.PyTreeNode):
  """What the decode loop carries.

  Attributes:
    cache: keys and values of every slot.
    logits: float32 [B, V], of the next token of each slot.
    written: int32 [B], tokens sampled so far.
    limit: int32 [B], most tokens to sample.
    done: bool [B].
    keys: one random key per slot; each token folds in its index.
  """

  cache: transformer.KVCache
  logits: Leaf
  written: Leaf
  limit: Leaf
  done: Leaf
  keys: Leaf


class Written(flax.struct.PyTreeNode):
  """What one call of `decode` wrote.

  Attributes:
    tokens: int32 [B, N], sampled ids; the first `count` of a row count.
    logprobs: float32 [B, N], of these ids.
    count: int32 [B].
    done: bool [B].
  """

  tokens: Leaf
  logprobs: Leaf
  count: Leaf
  done: Leaf


def empty_prompts(
  model: transformer.Transformer, chunk: int, prompts: int, length: int
) -> Prompts:
  """Room for prompts of up to `length` tokens."""
  return Prompts(
    cache=transformer.init_cache(
      model.config, prompts, length, model.dtype, chunk
    ),
    logits=jnp.zeros((prompts, model.config.vocab_size), jnp.float32),
  )


def prefill(
  model: transformer.Transformer,
  params: Any,
  prompts: Prompts,
  tokens: Int[Array, "P S"],
  start: Int[Array, ""],
  lengths: Int[Array, " P"],
) -> Prompts:
  """Reads the next S tokens of each right-padded prompt.

  Args:
    model: the decoder.
    params: its parameters.
    prompts: what was read before `start`.
    tokens: the tokens at positions `start` and after.
    start: position of the first of them.
    lengths: tokens of each prompt in all; its logits are taken in the call
      that reads its last token.
  """
  P, S = tokens.shape
  positions = jnp.broadcast_to(start + jnp.arange(S), (P, S))
  before = prompts.cache.replace(length=jnp.full(P, start))
  outputs: Any = model.apply(
    {"params": params}, tokens, positions, cache=before
  )
  hidden_PSD, (k, v) = outputs
  k, v = cache_lib.write_at(before.k, before.v, k, v, start)
  cache = before.replace(k=k, v=v, length=lengths)
  last = lengths - 1 - start
  place = jnp.clip(last, 0, S - 1)[:, None, None]
  last_PD = jnp.take_along_axis(hidden_PSD, place, axis=1)[:, 0]
  here = ((last >= 0) & (last < S))[:, None]
  logits = jnp.where(here, unembed(model, params, last_PD), prompts.logits)
  return Prompts(cache, logits)


def unembed(
  model: transformer.Transformer, params: Any, hidden: Float[Array, "B D"]
) -> Float[Array, "B V"]:
  """Logits of final hidden states, in float32."""
  head = transformer.unembedding(params, model.config).astype(hidden.dtype)
  return jnp.matmul(hidden, head, preferred_element_type=jnp.float32)


def empty_slots(
  model: transformer.Transformer, chunk: int, slots: int, length: int
) -> DecodeState:
  """Slots for sequences of up to `length` tokens; all are done."""
  return DecodeState(
    cache=transformer.init_cache(
      model.config, slots, length, model.dtype, chunk
    ),
    logits=jnp.zeros((slots, model.config.vocab_size), jnp.float32),
    written=jnp.zeros(slots, jnp.int32),
    limit=jnp.zeros(slots, jnp.int32),
    done=jnp.ones(slots, bool),
    keys=jax.random.split(jax.random.key(0), slots),
  )


def decode(
  model: transformer.Transformer,
  params: Any,
  state: DecodeState,
  stop_ids: Int[Array, " I"],
  cut: Bool[Array, " B"],
  enough: Int[Array, ""],
  choice: token_sampling.SamplingParams,
  steps: int,
) -> tuple[DecodeState, Written]:
  """Samples up to `steps` tokens a slot.

  Args:
    model: the decoder.
    params: its parameters.
    state: the slots to go on with.
    stop_ids: a slot is done once it samples one of these (it is kept).
    cut: slots that are done though the device does not know it.
    enough: leaves early when no more than so many slots are left.
    choice: how a token is drawn.
    steps: most tokens in this call.
  """
  slots = state.done.shape[0]
  rows = jnp.arange(slots)
  done = state.done | cut
  # What is done must not make the others read on.
  cache = state.cache.replace(length=jnp.where(done, 0, state.cache.length))
  L, B, K, E, _ = cache.k.shape
  room = (
    jnp.zeros((L, B, K, E, steps), cache.k.dtype),
    jnp.zeros((L, B, K, steps, E), cache.v.dtype),
  )
  Carry = tuple[jax.Array, DecodeState, Written, tuple[jax.Array, jax.Array]]

  def unfinished(carry: Carry) -> jax.Array:
    step, state, _, _ = carry
    return (step < steps) & (jnp.sum(~state.done) > enough)

  def body(carry: Carry) -> Carry:
    step, state, out, recent = carry
    keys = jax.vmap(jax.random.fold_in)(state.keys, state.written)
    token, logprob = token_sampling.choose(state.logits, keys, choice)
    live = ~state.done
    # Slots that are done write past the end, where a store is dropped.
    place = jnp.where(live, out.count, steps)
    written = state.written + live
    stopped = jnp.any(token[:, None] == stop_ids[None, :], axis=-1)
    done = state.done | stopped | (written >= state.limit)
    out = Written(
      tokens=out.tokens.at[rows, place].set(token, mode="drop"),
      logprobs=out.logprobs.at[rows, place].set(logprob, mode="drop"),
      count=out.count + live,
      done=done,
    )
    outputs: Any = model.apply(
      {"params": params},
      token[:, None],
      (cache.length + step)[:, None],
      cache=cache,
      recent=cache_lib.RecentKV(*recent, step),
    )
    hidden, (k, v) = outputs
    recent = cache_lib.write_at(*recent, k, v, step)
    state = state.replace(
      logits=unembed(model, params, hidden[:, 0]), written=written, done=done
    )
    return step + 1, state, out, recent

  nothing = Written(
    tokens=jnp.zeros((slots, steps), jnp.int32),
    logprobs=jnp.zeros((slots, steps), jnp.float32),
    count=jnp.zeros(slots, jnp.int32),
    done=done,
  )
  # The cache is constant in the loop and not part of what it carries.
  state = state.replace(done=done, cache=None)
  start = (jnp.int32(0), state, nothing, room)
  _, state, out, recent = jax.lax.while_loop(unfinished, body, start)
  # What is done may have to be kept: it writes past the end of any sequence.
  past = cache.v.shape[3] - steps
  cache = cache_lib.write_rows(
    cache, *recent, jnp.where(nothing.done, past, cache.length)
  )
  cache = cache.replace(length=cache.length + out.count)
  return state.replace(cache=cache), out
