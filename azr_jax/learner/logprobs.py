"""Log-probabilities and entropies of targets, without a [B, S, V] array.

Logits exist for one chunk of tokens at a time, and the backward pass
recomputes them. On a mesh each device scores its own rows against its own part
of the vocabulary, so the head is gathered once and its gradient is summed once,
not once per chunk.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from azr_jax.parallel import mesh as mesh_lib

# An array [B, S], or a tuple of such arrays.
_PerToken = TypeVar("_PerToken")


def chunked_logprobs(
  hidden: Float[Array, "B S D"],
  unembedding: Float[Array, "D V"],
  targets: Int[Array, "B S"],
  *,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh | None = None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Scores each target under softmax(hidden @ unembedding / temperature).

  Args:
    hidden: final hidden states.
    unembedding: the output head.
    targets: the id to score at each position.
    temperature: the sampling temperature, so that learner and sampler agree.
    chunk_tokens: tokens of a device whose logits exist at the same time.
    mesh: tokens lie over it by `mesh.TOKENS`, the vocabulary over `tensor` if
      that divides it; None: one device.

  Returns:
    log p(target), and the entropy of the distribution in nats, both float32.
  """
  return _on_mesh(
    functools.partial(
      _score_rows, temperature=temperature, chunk_tokens=chunk_tokens
    ),
    (hidden, targets),
    (unembedding.astype(hidden.dtype),),
    mesh,
  )


def chunked_kl(
  hidden: Float[Array, "B S D"],
  unembedding: Float[Array, "D V"],
  ref_hidden: Float[Array, "B S D"],
  ref_unembedding: Float[Array, "D V"],
  *,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh | None = None,
) -> Float[Array, "B S"]:
  """Returns KL(policy || reference) over the whole vocabulary, in nats.

  Args:
    hidden: final hidden states of the policy.
    unembedding: the policy's output head.
    ref_hidden: final hidden states of the reference.
    ref_unembedding: the reference's output head, of the same shape.
    temperature: the sampling temperature.
    chunk_tokens: tokens of a device whose logits exist at the same time.
    mesh: as for `chunked_logprobs`.
  """
  return _on_mesh(
    functools.partial(
      _diverge_rows, temperature=temperature, chunk_tokens=chunk_tokens
    ),
    (hidden, ref_hidden),
    (
      unembedding.astype(hidden.dtype),
      ref_unembedding.astype(ref_hidden.dtype),
    ),
    mesh,
  )


def _on_mesh(
  function: Callable[..., _PerToken],
  rows: tuple[jax.Array, ...],
  heads: tuple[jax.Array, ...],
  mesh: Mesh | None,
) -> _PerToken:
  """Runs `function(*rows, *heads, vocab_axis=...)` on each device's part."""
  if mesh is None:
    return function(*rows, *heads, vocab_axis=None)
  parts = mesh.shape["tensor"]
  divides = parts > 1 and heads[0].shape[1] % parts == 0
  vocab_axis = "tensor" if divides else None
  sharded = jax.shard_map(
    functools.partial(function, vocab_axis=vocab_axis),
    mesh=mesh,
    in_specs=(
      *[mesh_lib.TOKENS] * len(rows),
      *[PartitionSpec(None, vocab_axis)] * len(heads),
    ),
    out_specs=mesh_lib.TOKENS,
    # With the check, JAX would sum the head's gradient over devices in every
    # chunk.
    check_vma=False,
  )
  return sharded(*rows, *heads)


@jax.named_scope("logits")
def _score_rows(
  hidden: Float[Array, "B S D"],
  targets: Int[Array, "B S"],
  head: Float[Array, "D V"],
  *,
  temperature: float,
  chunk_tokens: int,
  vocab_axis: str | None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Scores one device's rows.

  With a vocab axis, the head is this device's part of the vocabulary.
  """
  # The gradients of the chunks are added in the head's type, hence float32.
  head = head.astype(jnp.float32)
  first_id = 0
  if vocab_axis is not None:
    first_id = jax.lax.axis_index(vocab_axis) * head.shape[1]

  def score(
    hidden_CBD: jax.Array, targets_CB: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    logits_CBV = _logits(hidden_CBD, head, temperature)
    weights_CBV, sum_CB, normalizer_CB = _softmax(logits_CBV, vocab_axis)
    index_CB = targets_CB - first_id
    is_here_CB = (index_CB >= 0) & (index_CB < logits_CBV.shape[-1])
    index_CB = jnp.where(is_here_CB, index_CB, 0)
    target_CB = jnp.take_along_axis(logits_CBV, index_CB[..., None], -1)[..., 0]
    target_CB = _psum(jnp.where(is_here_CB, target_CB, 0.0), vocab_axis)
    mean_CB = _psum(jnp.sum(weights_CBV * logits_CBV, axis=-1), vocab_axis)
    return target_CB - normalizer_CB, normalizer_CB - mean_CB / sum_CB

  return _over_chunks(score, (hidden, targets), chunk_tokens)


@jax.named_scope("logits")
def _diverge_rows(
  hidden: Float[Array, "B S D"],
  ref_hidden: Float[Array, "B S D"],
  head: Float[Array, "D V"],
  ref_head: Float[Array, "D V"],
  *,
  temperature: float,
  chunk_tokens: int,
  vocab_axis: str | None,
) -> Float[Array, "B S"]:
  """Returns the KL of one device's rows; the heads are as in `_score_rows`."""
  head, ref_head = head.astype(jnp.float32), ref_head.astype(jnp.float32)

  def diverge(hidden_CBD: jax.Array, ref_hidden_CBD: jax.Array) -> jax.Array:
    logits_CBV = _logits(hidden_CBD, head, temperature)
    ref_logits_CBV = _logits(ref_hidden_CBD, ref_head, temperature)
    weights_CBV, sum_CB, normalizer_CB = _softmax(logits_CBV, vocab_axis)
    _, _, ref_normalizer_CB = _softmax(ref_logits_CBV, vocab_axis)
    gap_CB = jnp.sum(weights_CBV * (logits_CBV - ref_logits_CBV), axis=-1)
    mean_gap_CB = _psum(gap_CB, vocab_axis) / sum_CB
    return mean_gap_CB - normalizer_CB + ref_normalizer_CB

  return _over_chunks(diverge, (hidden, ref_hidden), chunk_tokens)


def _logits(
  hidden: Float[Array, "C B D"],
  head: Float[Array, "D V"],
  temperature: float,
) -> Float[Array, "C B V"]:
  """Returns float32 logits, from a product in the type of `hidden`."""
  logits = jnp.matmul(
    hidden, head.astype(hidden.dtype), preferred_element_type=jnp.float32
  )
  return logits / temperature


def _psum(x: jax.Array, vocab_axis: str | None) -> jax.Array:
  """Sums over the devices that the vocabulary is sharded over, if it is."""
  return x if vocab_axis is None else jax.lax.psum(x, vocab_axis)


def _softmax(
  logits: Float[Array, "C B V"], vocab_axis: str | None
) -> tuple[Float[Array, "C B V"], Float[Array, "C B"], Float[Array, "C B"]]:
  """Returns a softmax over a vocabulary that may be sharded over devices.

  Returns:
    Unnormalised weights of this device's part, their sum over all parts, and
    the log-normalizer.
  """
  maximum = jnp.max(jax.lax.stop_gradient(logits), axis=-1)
  if vocab_axis is not None:
    maximum = jax.lax.pmax(maximum, vocab_axis)
  weights = jnp.exp(logits - maximum[..., None])
  total = _psum(jnp.sum(weights, axis=-1), vocab_axis)
  return weights, total, maximum + jnp.log(total)


def _over_chunks(
  function: Callable[..., _PerToken],
  arrays: tuple[jax.Array, ...],
  chunk_tokens: int,
) -> _PerToken:
  """Maps a function over chunks of tokens; the backward pass recomputes it.

  Args:
    function: takes arrays [C, B, ...] and returns arrays [C, B].
    arrays: arrays [B, S, ...].
    chunk_tokens: C x B at most, but C is at least 1.

  Returns:
    What `function` returns, as arrays [B, S].
  """
  B, S = arrays[0].shape[:2]
  chunk = min(max(1, chunk_tokens // B), S)

  def to_chunks(x: jax.Array) -> jax.Array:
    padding = [(0, 0), (0, -S % chunk), *[(0, 0)] * (x.ndim - 2)]
    return (
      jnp.pad(x, padding).swapaxes(0, 1).reshape(-1, chunk, B, *x.shape[2:])
    )

  def from_chunks(x: jax.Array) -> jax.Array:
    return x.reshape(-1, B)[:S].swapaxes(0, 1)

  checkpointed = jax.checkpoint(function)
  results = jax.lax.map(
    lambda parts: checkpointed(*parts), tuple(map(to_chunks, arrays))
  )
  return jax.tree.map(from_chunks, results)
