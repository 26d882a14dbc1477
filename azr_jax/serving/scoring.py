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
from jaxtyping import Array, Float, Int

from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.decode_steps import unembed
from azr_jax.rollout.engine import Engine
from azr_jax.types import Params

# Tokens whose logits exist at the same time, so that [B, S, V] never does.
_CHUNK_TOKENS = 256


class Scores(NamedTuple):
  """The scores of a sequence of N tokens, of all but its first.

  Attributes:
    logprobs: float32 [N - 1], of each token after those before it, in nats.
    top_ids: int32 [N - 1, K], the likeliest tokens in its place, in order.
    top_logprobs: float32 [N - 1, K], of these.
  """

  logprobs: np.ndarray
  top_ids: np.ndarray
  top_logprobs: np.ndarray


class Scorer:
  """Scores sequences with the weights that sampling reads."""

  def __init__(self, engine: Engine, num_top: int):
    """Compiles nothing yet.

    Args:
      engine: of the sampler; sequences are at most as long as its longest.
      num_top: K.
    """
    settings = engine.settings
    self._engine = engine
    self._lengths = sorted({*settings.prompt_buckets, settings.longest})
    replicated: Any = mesh_lib.replicated(engine.mesh)
    self._score = jax.jit(
      functools.partial(_score, engine.model, num_top=num_top),
      in_shardings=(
        engine.param_shardings,
        mesh_lib.batch_sharding(engine.mesh),
      ),
      out_shardings=replicated,
    )

  def warm_up(self, params: Params) -> None:
    """Compiles the program of each length."""
    for length in self._lengths:
      rows = self._engine.prefill_rows(length)
      jax.block_until_ready(
        self._score(params, np.zeros((rows, length), np.int32))
      )

  def score(
    self, params: Params, sequences: Sequence[Sequence[int]]
  ) -> list[Scores]:
    """Scores sequences, a few of about the same length at a time.

    Args:
      params: from `engine.compute_params`.
      sequences: token ids, at least one in each.
    """
    by_length: dict[int, list[int]] = {}
    for index, ids in enumerate(sequences):
      length = next(n for n in self._lengths if n >= len(ids))
      by_length.setdefault(length, []).append(index)
    found: dict[int, Scores] = {}
    for length, indices in by_length.items():
      rows = self._engine.prefill_rows(length)
      for first in range(0, len(indices), rows):
        some = indices[first : first + rows]
        tokens = np.zeros((rows, length), np.int32)
        for row, index in enumerate(some):
          tokens[row, : len(sequences[index])] = sequences[index]
        scores = jax.device_get(self._score(params, tokens))
        for row, index in enumerate(some):
          end = len(sequences[index]) - 1
          found[index] = Scores(*(array[row, :end] for array in scores))
    return [found[index] for index in range(len(sequences))]


def _score(
  model: transformer.Transformer,
  params: Params,
  tokens: Int[Array, "B S"],
  num_top: int,
) -> Scores:
  """Scores the tokens that follow each position, the last one's excepted.

  Padding at the end of a row changes nothing before it, because tokens attend
  to earlier ones alone.
  """
  B, S = tokens.shape
  positions = jnp.broadcast_to(jnp.arange(S), (B, S))
  outputs: Any = model.apply({"params": params}, tokens, positions)
  hidden_BSD, _ = outputs

  def score(
    row: tuple[Float[Array, " D"], Int[Array, ""]],
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    hidden_D, target = row
    logits = unembed(model, params, hidden_D[None])[0]
    logprobs_V = jax.nn.log_softmax(logits)
    top, ids = jax.lax.top_k(logprobs_V, num_top)
    return logprobs_V[target], ids, top

  targets = jnp.roll(tokens, -1, axis=1).reshape(-1)
  flat = hidden_BSD.reshape(B * S, -1), targets
  results = jax.lax.map(score, flat, batch_size=_CHUNK_TOKENS)
  return Scores(*(x.reshape(B, S, *x.shape[1:]) for x in results))
