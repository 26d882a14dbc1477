"""The device side of sampling: prefill, fan-out, and the decode loop.

A row of the decode state is one sequence. Its cache entry t holds position t,
so rows of different length share one array without padding masks.
"""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from azr_jax.models import transformer
from azr_jax.rollout import token_choice
from azr_jax.types import Leaf


class DecodeState(flax.struct.PyTreeNode):
  """What the decode loop carries.

  Attributes:
    cache: keys and values of every row, [L, B, T, K, E].
    logits: float32 [B, V], of the next token of each row.
    length: int32 [B], tokens in the row so far, prompt included.
    written: int32 [B], tokens sampled so far.
    done: bool [B].
    tokens: int32 [B, N], sampled ids.
    logprobs: float32 [B, N], of the sampled ids.
    keys: one random key per row; each token folds in its index.
  """

  cache: dict[str, Leaf]
  logits: Leaf
  length: Leaf
  written: Leaf
  done: Leaf
  tokens: Leaf
  logprobs: Leaf
  keys: Leaf


def prefill(
  model: transformer.Transformer,
  params: Any,
  tokens: Int[Array, "P S"],
  lengths: Int[Array, " P"],
  cache_length: int,
) -> tuple[transformer.KVCache, Float[Array, "P V"]]:
  """Runs right-padded prompts; returns their caches and next-token logits."""
  P, S = tokens.shape
  cache = transformer.init_cache(model.config, P, cache_length, model.dtype)
  positions = jnp.broadcast_to(jnp.arange(S), (P, S))
  outputs: Any = model.apply({"params": params}, tokens, positions, cache=cache)
  hidden, cache = outputs
  last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)
  return cache, _logits(model, params, last[:, 0])


def _logits(
  model: transformer.Transformer, params: Any, hidden: Float[Array, "B D"]
) -> Float[Array, "B V"]:
  head = transformer.unembedding(params, model.config).astype(hidden.dtype)
  return jnp.matmul(hidden, head, preferred_element_type=jnp.float32)


def fan_out(
  cache: transformer.KVCache,
  logits: Float[Array, "P V"],
  lengths: Int[Array, " P"],
  source: Int[Array, " B"],
  live: Array,
  keys: Array,
  max_tokens: int,
) -> DecodeState:
  """Copies each prompt's cache to the rows that sample from it.

  Args:
    cache: prompt caches [L, P, T, K, E].
    logits: next-token logits of each prompt.
    lengths: prompt lengths.
    source: the prompt of each row.
    live: bool [B]; a row that is not live starts done.
    keys: one random key per row.
    max_tokens: N, room for sampled tokens.
  """
  rows = source.shape[0]
  return DecodeState(
    cache=jax.tree.map(lambda x: x[:, source], cache),
    logits=logits[source],
    length=lengths[source],
    written=jnp.zeros(rows, jnp.int32),
    done=~live,
    tokens=jnp.zeros((rows, max_tokens), jnp.int32),
    logprobs=jnp.zeros((rows, max_tokens), jnp.float32),
    keys=keys,
  )


def decode(
  model: transformer.Transformer,
  params: Any,
  state: DecodeState,
  stop_ids: Int[Array, " I"],
  limit: Int[Array, " B"],
  choice: token_choice.TokenChoice,
  steps: int,
) -> DecodeState:
  """Samples up to `steps` tokens a row; leaves early when all are done.

  Args:
    model: the decoder.
    params: its parameters.
    state: the rows to go on with.
    stop_ids: a row is done once it samples one of these (it is kept).
    limit: tokens each row may sample in all.
    choice: how a token is drawn.
    steps: most tokens in this call.
  """
  rows = jnp.arange(state.done.shape[0])

  def unfinished(carry: tuple[jax.Array, DecodeState]) -> jax.Array:
    step, state = carry
    return (step < steps) & ~jnp.all(state.done)

  def body(
    carry: tuple[jax.Array, DecodeState],
  ) -> tuple[jax.Array, DecodeState]:
    step, state = carry
    keys = jax.vmap(jax.random.fold_in)(state.keys, state.written)
    token, logprob = token_choice.choose(state.logits, keys, choice)
    # Rows that are done write past the end, where a store is dropped.
    place = jnp.where(state.done, state.tokens.shape[1], state.written)
    position = jnp.where(state.done, state.cache["k"].shape[2], state.length)
    tokens = state.tokens.at[rows, place].set(token, mode="drop")
    logprobs = state.logprobs.at[rows, place].set(logprob, mode="drop")
    written = state.written + ~state.done
    stopped = jnp.any(token[:, None] == stop_ids[None, :], axis=-1)
    done = state.done | stopped | (written >= limit)
    outputs: Any = model.apply(
      {"params": params},
      token[:, None],
      position[:, None],
      cache=state.cache,
    )
    hidden, cache = outputs
    return step + 1, DecodeState(
      cache=cache,
      logits=_logits(model, params, hidden[:, 0]),
      length=state.length + ~state.done,
      written=written,
      done=done,
      tokens=tokens,
      logprobs=logprobs,
      keys=state.keys,
    )

  return jax.lax.while_loop(unfinished, body, (jnp.int32(0), state))[1]
