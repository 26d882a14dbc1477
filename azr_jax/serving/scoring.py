"""Scores sequences: each token, and the likeliest tokens in its position.

The sampler only returns the log-probability of the sampled token. Requests for
the likeliest tokens, or for log-probabilities of a prompt, run a second forward
pass over the whole sequence. Scores are at temperature 1 and ignore top-p and
top-k.

Axis letters are in `types.py`.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Float32, Int, Int32, Shaped

from azr_jax.models import transformer
from azr_jax.models.attention import AttentionFn
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.steps import unembed
from azr_jax.types import Params

# Tokens per device whose logits exist at the same time, instead of [B, S, V].
_CHUNK_TOKENS = 256
_PART = 128


class Scores(NamedTuple):
  """Scores of a sequence of S tokens, except its first token.

  Attributes:
    logprobs: the log-probability of each token given the earlier ones, in nats;
      0 before the first requested token.
    top_ids: the likeliest tokens, likeliest first.
    top_logprobs: the log-probabilities of `top_ids`.
    chosen: the log-probabilities of `SamplingJob.prompt_targets`, 0 where these
      are -1. None without.
  """

  logprobs: Float32[np.ndarray, " S-1"]
  top_ids: Int32[np.ndarray, "S-1 top"]
  top_logprobs: Float32[np.ndarray, "S-1 top"]
  chosen: Float32[np.ndarray, "_P K"] | None = None


class _Row(NamedTuple):
  """A row to score.

  Attributes:
    tokens: the inputs.
    targets: the token to score after each of them.
    is_wanted: where to score.
    adapter: the index of the adapter.
  """

  tokens: Sequence[int]
  targets: Sequence[int] | Int32[np.ndarray, " S"]
  is_wanted: Bool[np.ndarray, " S"]
  adapter: int


# The arrays of `Scores` for the targets of some rows: S tokens, or a chunk of
# C.
_OfRows: TypeAlias = tuple[
  Float32[Array, "B S"], Int32[Array, "B S top"], Float32[Array, "B S top"]
]
_OfChunk: TypeAlias = tuple[
  Float32[Array, "B C"], Int32[Array, "B C top"], Float32[Array, "B C top"]
]


class Scorer:
  """Scores sequences with the sampler's weights."""

  def __init__(self, engine: Engine, num_top: int, attend: AttentionFn):
    """Builds the scoring function, which compiles when it is first called.

    Args:
      engine: the sampler's engine. Sequences may be one token longer than its
        longest.
      num_top: number of likeliest tokens, limited to the vocabulary size.
      attend: the attention for whole rows, on the sampler's mesh.
    """
    shapes = engine.shapes
    self._shapes = shapes
    self._lengths = _lengths(shapes.prompt_buckets, shapes.longest)
    replicated: Any = mesh_lib.replicated(engine.mesh)
    by_row: Any = mesh_lib.batch_sharding(engine.mesh)
    num_top = min(num_top, engine.model.config.vocab_size)
    self._score = jax.jit(
      functools.partial(
        _score,
        engine.model.clone(attend=attend),
        engine.mesh,
        num_top=num_top,
        chunk_tokens=_CHUNK_TOKENS * mesh_lib.batch_devices(engine.mesh),
      ),
      in_shardings=(engine.param_shardings, *[by_row] * 4),
      out_shardings=replicated,
    )

  def warm_up(self, params: Params) -> None:
    """Compiles the program of every row length."""
    for length in self._lengths:
      tokens = np.zeros((self._shapes.prefill_rows(length), length), np.int32)
      is_wanted = np.zeros(tokens.shape, bool)
      adapter = np.zeros(len(tokens), np.int32)
      jax.block_until_ready(
        self._score(params, tokens, tokens, is_wanted, adapter)
      )

  def score(
    self,
    params: Params,
    sequences: Sequence[Sequence[int]],
    firsts: Sequence[int] | None = None,
    adapters: Sequence[int] | None = None,
  ) -> list[Scores]:
    """Scores sequences in batches of similar length.

    Args:
      params: the parameters from `engine.compute_params`.
      sequences: non-empty sequences of token ids. They may be one token longer
        than the sampler's longest, because the last token is not an input.
      firsts: for each sequence, the index of the first token to score. None
        scores all tokens.
      adapters: for each sequence, the index of its adapter in the stack. None
        scores by the base model.
    """
    firsts = [0] * len(sequences) if firsts is None else firsts
    adapters = [0] * len(sequences) if adapters is None else adapters
    return self._run(
      params,
      [
        _Row(ids[:-1], ids[1:], np.arange(1, len(ids)) >= first, adapter)
        for ids, first, adapter in zip(sequences, firsts, adapters, strict=True)
      ],
    )

  def score_targets(
    self,
    params: Params,
    prompt: Sequence[int],
    targets: Int32[np.ndarray, "_P K"],
    adapter: int = 0,
  ) -> Float32[np.ndarray, "_P K"]:
    """Returns log-probabilities of chosen tokens, 0 where their id is -1.

    It runs a row for each of the K columns.

    Args:
      params: as for `score`.
      prompt: S ids.
      targets: ids to score at each position after the first; -1 scores nothing.
      adapter: the index of the adapter.
    """
    scores = self._run(
      params,
      [
        _Row(prompt[:-1], np.maximum(column, 0), column >= 0, adapter)
        for column in targets.T
      ],
    )
    logprobs = np.stack([one.logprobs for one in scores], axis=1)
    return np.where(targets >= 0, logprobs, 0).astype(np.float32)

  def _run(self, params: Params, wanted: Sequence[_Row]) -> list[Scores]:
    """Scores rows in batches of similar length."""
    by_length: dict[int, list[int]] = {}
    for index, one in enumerate(wanted):
      length = next(n for n in self._lengths if n >= len(one.tokens))
      by_length.setdefault(length, []).append(index)
    found: dict[int, Scores] = {}
    for length, indices in by_length.items():
      rows = self._shapes.prefill_rows(length)
      for first in range(0, len(indices), rows):
        some = indices[first : first + rows]
        tokens = np.zeros((rows, length), np.int32)
        targets, is_wanted = tokens.copy(), np.zeros((rows, length), bool)
        adapter = np.zeros(rows, np.int32)
        for row, index in enumerate(some):
          one, end = wanted[index], len(wanted[index].tokens)
          tokens[row, :end], targets[row, :end] = one.tokens, one.targets
          is_wanted[row, :end], adapter[row] = one.is_wanted, one.adapter
        scores = jax.device_get(
          self._score(params, tokens, targets, is_wanted, adapter)
        )
        for row, index in enumerate(some):
          end = len(wanted[index].tokens)
          found[index] = Scores(*(array[row, :end] for array in scores))
    return [found[index] for index in range(len(wanted))]


def _lengths(buckets: Sequence[int], longest: int) -> list[int]:
  """Returns the row lengths to compile.

  Args:
    buckets: the sampler's prompt lengths.
    longest: the longest row.
  """
  found = {*buckets, longest}
  length = max(buckets)
  while (length := 2 * length) < longest:
    found.add(length)
  # Attention kernels read long rows in blocks of this length.
  return sorted({n if n <= _PART else -(-n // _PART) * _PART for n in found})


def _score(
  model: transformer.Transformer,
  mesh: Mesh,
  params: Params,
  tokens: Int[Array, "B S"],
  targets: Int[Array, "B S"],
  is_wanted: Bool[Array, "B S"],
  adapter: Int[Array, " B"],
  num_top: int,
  chunk_tokens: int,
) -> _OfRows:
  """Scores the token that follows each position, where it is wanted.

  Padding at the end of a row does not affect the scores before it, because
  attention is causal.

  Returns:
    The arrays of `Scores` for B rows, 0 where no score is wanted. The logits of
    about `chunk_tokens` tokens exist at the same time.
  """
  B, S = tokens.shape
  positions = jnp.broadcast_to(jnp.arange(S), (B, S))
  outputs: Any = model.apply(
    {"params": params},
    tokens,
    positions,
    adapter_ids=adapter[:, None] if model.has_stack else None,
  )
  hidden_BSD, _ = outputs

  def score(
    hidden_BCD: Float[Array, "B C D"], targets_BC: Int[Array, "B C"]
  ) -> _OfChunk:
    # Without shard_map the compiler gives every device the logits of all rows.
    by_row = PartitionSpec(mesh_lib.BATCH_AXES)
    of_rows = jax.shard_map(
      functools.partial(_of_logits, num_top=num_top),
      mesh=mesh,
      in_specs=by_row,
      out_specs=by_row,
      check_vma=False,
    )
    hidden_BCD = jax.lax.with_sharding_constraint(
      hidden_BCD, mesh_lib.batch_sharding(mesh)
    )
    return of_rows(unembed(model, params, hidden_BCD), targets_BC)

  def nothing(
    hidden_BCD: Float[Array, "B C D"], targets_BC: Int[Array, "B C"]
  ) -> _OfChunk:
    return jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype),
      jax.eval_shape(score, hidden_BCD, targets_BC),
    )

  def step(
    carry: None, chunk: tuple[jax.Array, jax.Array, jax.Array]
  ) -> tuple[None, _OfChunk]:
    *inputs, is_wanted_BC = chunk
    # The head is most of the work, and few requests want scores of prompts.
    return carry, jax.lax.cond(jnp.any(is_wanted_BC), score, nothing, *inputs)

  chunk = min(S, max(1, chunk_tokens // B))
  _, results = jax.lax.scan(
    step,
    None,
    (
      _chunks(hidden_BSD, chunk),
      _chunks(targets, chunk),
      _chunks(is_wanted, chunk),
    ),
  )
  logprobs, top_ids, top_logprobs = (_whole(x, S) for x in results)
  return logprobs, top_ids, top_logprobs


def _of_logits(
  logits_BCV: Float[Array, "B C V"], targets_BC: Int[Array, "B C"], num_top: int
) -> _OfChunk:
  """Returns log-probabilities of targets, top ids and their log-probs."""
  logprobs_BCV = jax.nn.log_softmax(logits_BCV)
  top, ids = jax.lax.top_k(logprobs_BCV, num_top)
  drawn = jnp.take_along_axis(logprobs_BCV, targets_BC[..., None], -1)
  return drawn[..., 0], ids, top


def _chunks(
  x: Shaped[Array, "B S ..."], chunk: int
) -> Shaped[Array, "chunks B C ..."]:
  """Cuts the tokens of rows into chunks, padded at the end.

  The batch axis is not split, because it is sharded over devices.
  """
  rows = jnp.pad(
    x, ((0, 0), (0, -x.shape[1] % chunk), *[(0, 0)] * (x.ndim - 2))
  )
  rows = rows.reshape(len(x), -1, chunk, *x.shape[2:])
  return jnp.moveaxis(rows, 1, 0)


def _whole(
  x: Shaped[Array, "chunks B C ..."], length: int
) -> Shaped[Array, "B S ..."]:
  """Undoes `_chunks`: joins chunks to rows of `length` tokens."""
  rows = jnp.moveaxis(x, 0, 1)
  return rows.reshape(len(rows), -1, *x.shape[3:])[:, :length]
