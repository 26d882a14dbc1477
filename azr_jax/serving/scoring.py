"""Scores sequences: each token, and the likeliest ones in its place.

The sampler keeps the log-probability of the drawn token alone. Requests that
want likelier ones, or those of a prompt, have their whole sequences read once
more. The distribution is the model's own, at temperature 1.

Axis letters are those of `types.py`; K counts the likeliest tokens.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from azr_jax.models import transformer
from azr_jax.models.attention import AttentionFn
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.decode_steps import unembed
from azr_jax.rollout.engine import Engine
from azr_jax.types import Params

# Tokens whose logits exist at the same time, so that [B, S, V] never does.
_CHUNK_TOKENS = 256
_PART = 128


class Scores(NamedTuple):
  """The scores of a sequence of N tokens, of all but its first.

  Attributes:
    logprobs: float32 [N - 1], of each token after those before it, in nats;
      0 of tokens before the first one that was asked for.
    top_ids: int32 [N - 1, K], the likeliest tokens in its place, in order.
    top_logprobs: float32 [N - 1, K], of these.
  """

  logprobs: np.ndarray
  top_ids: np.ndarray
  top_logprobs: np.ndarray


class Scorer:
  """Scores sequences with the weights that sampling reads."""

  def __init__(self, engine: Engine, num_top: int, attend: AttentionFn):
    """Compiles nothing yet.

    Args:
      engine: of the sampler; sequences are at most one token longer than its
        longest.
      num_top: K; no more than the vocabulary has.
      attend: the attention of whole rows, on the sampler's mesh.
    """
    settings = engine.settings
    self._engine = engine
    self._lengths = _lengths(settings.prompt_buckets, settings.longest)
    replicated: Any = mesh_lib.replicated(engine.mesh)
    by_row: Any = mesh_lib.batch_sharding(engine.mesh)
    num_top = min(num_top, engine.model.config.vocab_size)
    self._score = jax.jit(
      functools.partial(
        _score, engine.model.clone(attend=attend), num_top=num_top
      ),
      in_shardings=(engine.param_shardings, by_row, by_row, by_row),
      out_shardings=replicated,
    )

  def warm_up(self, params: Params) -> None:
    """Compiles the program of each length."""
    for length in self._lengths:
      tokens = np.zeros((self._engine.prefill_rows(length), length), np.int32)
      is_wanted = np.zeros(tokens.shape, bool)
      jax.block_until_ready(self._score(params, tokens, tokens, is_wanted))

  def score(
    self,
    params: Params,
    sequences: Sequence[Sequence[int]],
    firsts: Sequence[int] | None = None,
  ) -> list[Scores]:
    """Scores sequences, a few of about the same length at a time.

    Args:
      params: from `engine.compute_params`.
      sequences: token ids, at least one in each; one more than the sampler's
        longest at most, because it caches all but the last.
      firsts: of each, the index of the first token whose score is wanted; None:
        all are.
    """
    firsts = [0] * len(sequences) if firsts is None else firsts
    by_length: dict[int, list[int]] = {}
    for index, ids in enumerate(sequences):
      length = next(n for n in self._lengths if n >= len(ids) - 1)
      by_length.setdefault(length, []).append(index)
    found: dict[int, Scores] = {}
    for length, indices in by_length.items():
      rows = self._engine.prefill_rows(length)
      for first in range(0, len(indices), rows):
        some = indices[first : first + rows]
        tokens = np.zeros((rows, length), np.int32)
        targets, is_wanted = tokens.copy(), np.zeros((rows, length), bool)
        for row, index in enumerate(some):
          ids, end = sequences[index], len(sequences[index]) - 1
          tokens[row, :end], targets[row, :end] = ids[:-1], ids[1:]
          is_wanted[row, max(0, firsts[index] - 1) : end] = True
        scores = jax.device_get(self._score(params, tokens, targets, is_wanted))
        for row, index in enumerate(some):
          end = len(sequences[index]) - 1
          found[index] = Scores(*(array[row, :end] for array in scores))
    return [found[index] for index in range(len(sequences))]


def _lengths(buckets: Sequence[int], longest: int) -> list[int]:
  """Returns the lengths that are compiled: some up to the longest.

  Args:
    buckets: prompt lengths of the sampler.
    longest: the longest length.
  """
  found = {*buckets, longest}
  length = max(buckets)
  while (length := 2 * length) < longest:
    found.add(length)
  # Kernels of attention split long rows into parts of equal length.
  return sorted({n if n <= _PART else -(-n // _PART) * _PART for n in found})


def _score(
  model: transformer.Transformer,
  params: Params,
  tokens: Int[Array, "B S"],
  targets: Int[Array, "B S"],
  is_wanted: Bool[Array, "B S"],
  num_top: int,
) -> tuple[jax.Array, ...]:
  """Scores the token that follows each position, where it is wanted.

  Returns the arrays of `Scores` for B rows; they are 0 where nothing is wanted.

  Padding at the end of a row changes nothing before it, because tokens attend
  to earlier ones alone.
  """
  B, S = tokens.shape
  positions = jnp.broadcast_to(jnp.arange(S), (B, S))
  outputs: Any = model.apply({"params": params}, tokens, positions)
  hidden_BSD, _ = outputs
  pad = -(B * S) % _CHUNK_TOKENS

  def chunks(x: jax.Array) -> jax.Array:
    flat = x.reshape(B * S, *x.shape[2:])
    flat = jnp.pad(flat, ((0, pad), *[(0, 0)] * (flat.ndim - 1)))
    return flat.reshape(-1, _CHUNK_TOKENS, *flat.shape[1:])

  def whole(x: jax.Array) -> jax.Array:
    flat = x.reshape(-1, *x.shape[2:])[: B * S]
    return flat.reshape(B, S, *flat.shape[1:])

  def score(
    hidden_CD: Float[Array, "C D"], targets_C: Int[Array, " C"]
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    logprobs_CV = jax.nn.log_softmax(unembed(model, params, hidden_CD))
    top, ids = jax.lax.top_k(logprobs_CV, num_top)
    drawn = jnp.take_along_axis(logprobs_CV, targets_C[:, None], 1)[:, 0]
    return drawn, ids, top

  def nothing(
    hidden_CD: Float[Array, "C D"], targets_C: Int[Array, " C"]
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    return jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype),
      jax.eval_shape(score, hidden_CD, targets_C),
    )

  def step(
    carry: None, chunk: tuple[jax.Array, jax.Array, jax.Array]
  ) -> tuple[None, tuple[jax.Array, jax.Array, jax.Array]]:
    *inputs, is_wanted_C = chunk
    # The head is most of the work, and prompts are seldom asked for.
    return carry, jax.lax.cond(jnp.any(is_wanted_C), score, nothing, *inputs)

  _, results = jax.lax.scan(
    step, None, (chunks(hidden_BSD), chunks(targets), chunks(is_wanted))
  )
  return tuple(map(whole, results))
