"""Divergences of two policies' next-token distributions, token by token.

With p the policy's distribution at a token and q the other's:

| name | divergence |
| --- | --- |
| `reverse_kl` | KL(p, q) = sum of p log(p / q) |
| `forward_kl` | KL(q, p) |
| `jensen_shannon` | (KL(p, m) + KL(q, m)) / 2, where m = (p + q) / 2 |

Over the top k, the ids other than p's k most likely ones count as one event,
the tail, whose probability is theirs together. The choice of the k ids gets no
gradient. No [B, S, V] array exists (`chunks.py`).
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float

from azr_jax.learner import chunks
from azr_jax.learner.chunks import Found, Heads, TokenRows

REVERSE_KL, FORWARD_KL, JENSEN_SHANNON = DIVERGENCES = (
  "reverse_kl",
  "forward_kl",
  "jensen_shannon",
)
# The least probability of a tail, so that its logarithm is finite.
_LEAST = 1e-30


def chunked_divergence(
  kind: str,
  hidden: Float[Array, "B S D"],
  unembedding: Float[Array, "D V"],
  other_hidden: Float[Array, "B S _D"],
  other_unembedding: Float[Array, "_D V"],
  *,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh | None = None,
  mask: Float[Array, "B S"] | None = None,
  top_k: int = 0,
) -> Float[Array, "B S"]:
  """Returns a divergence at each token, in nats, float32.

  Only the policy gets a gradient.

  Args:
    kind: one of `DIVERGENCES`.
    hidden: final hidden states of the policy.
    unembedding: the policy's output head.
    other_hidden: final hidden states of the other model, which may be wider.
    other_unembedding: the other model's output head.
    temperature: the sampling temperature; divides the logits of both.
    chunk_tokens: maximum tokens per device whose logits exist at a time.
    mesh: see `logprobs.chunked_logprobs`.
    mask: see `logprobs.chunked_logprobs`.
    top_k: number of ids that count apart from the tail; 0: the whole
      vocabulary. Ids as likely as the last of them count, too.
  """
  (divergence,) = chunks.on_mesh(
    functools.partial(
      _diverge_rows,
      kind=kind,
      temperature=temperature,
      chunk_tokens=chunk_tokens,
      top_k=top_k if top_k < unembedding.shape[1] else 0,
    ),
    mask,
    (hidden, other_hidden),
    (
      unembedding.astype(hidden.dtype),
      other_unembedding.astype(other_hidden.dtype),
    ),
    mesh,
  )
  return divergence


@jax.named_scope("logits")
def _diverge_rows(
  mask: Float[Array, "B S"] | None,
  rows: TokenRows,
  heads: Heads,
  vocab_axis: str | None,
  *,
  kind: str,
  temperature: float,
  chunk_tokens: int,
  top_k: int,
) -> Found:
  """Returns the divergence of one device's rows.

  With a vocab axis, the heads are this device's parts of the vocabulary.
  """

  def both(rows: TokenRows, heads: Heads) -> tuple[jax.Array, jax.Array]:
    first, second = (
      chunks.logits(hidden, head, temperature)
      for hidden, head in zip(rows, heads, strict=True)
    )
    return first, second

  def mean(logps: jax.Array, x: jax.Array) -> jax.Array:
    return chunks.psum(jnp.sum(jnp.exp(logps) * x, axis=1), vocab_axis)

  def diverge(rows: TokenRows, heads: Heads) -> Found:
    logits = both(rows, heads)
    normalizers = tuple(chunks.softmax(x, vocab_axis)[-1] for x in logits)
    logps, logqs = (
      x - norm[:, None] for x, norm in zip(logits, normalizers, strict=True)
    )
    least, tails = None, ()
    if top_k:
      least = _below_largest(logps, top_k, vocab_axis)
      outside = logps < least[:, None]
      tails = tuple(_log_tail(x, outside, vocab_axis) for x in (logps, logqs))
    events = _events(logps, logqs, least, tails)
    inner = mean(logps, _log_slope(kind, *events))
    value = inner
    if kind == FORWARD_KL:
      value = mean(logqs, events[1] - events[0])
    if kind == JENSEN_SHANNON:
      value = inner + 0.5 * mean(logqs, events[1] - _log_middle(*events))
    extras = () if least is None else (least, *tails)
    return value, inner, *normalizers, *extras

  def slope(
    rows: TokenRows, heads: Heads, found: Found, grads: Found
  ) -> jax.Array:
    _, inner, *normalizers = found[:4]
    logps, logqs = (
      x - norm[:, None]
      for x, norm in zip(both(rows, heads), normalizers, strict=True)
    )
    least = found[4] if top_k else None
    events = _events(logps, logqs, least, found[5:])
    # The gradient by a logit is p (g - mean of g under p), where g is the
    # gradient by p. In KL(q, p), p g = -q, whose mean is -1.
    if kind == FORWARD_KL:
      slopes = jnp.exp(logps) - jnp.exp(logps + events[1] - events[0])
    else:
      slopes = jnp.exp(logps) * (_log_slope(kind, *events) - inner[:, None])
    return grads[0][:, None] * slopes

  return chunks.over_chunks(
    diverge, slope, 1, mask, rows, heads, temperature, chunk_tokens, vocab_axis
  )


def _log_middle(
  logps: Float[Array, "C V"], logqs: Float[Array, "C V"]
) -> Float[Array, "C V"]:
  """Returns log m of the mean of two distributions."""
  return jnp.logaddexp(logps, logqs) - math.log(2)


def _log_slope(
  kind: str, logps: Float[Array, "C V"], logqs: Float[Array, "C V"]
) -> Float[Array, "C V"]:
  """Returns a divergence's gradient by p up to a constant per token.

  Of KL(p, q) and of the Jensen-Shannon divergence; 0 for KL(q, p).
  """
  if kind == REVERSE_KL:
    return logps - logqs
  if kind == JENSEN_SHANNON:
    return 0.5 * (logps - _log_middle(logps, logqs))
  return jnp.zeros_like(logps)


def _events(
  logps: Float[Array, "C V"],
  logqs: Float[Array, "C V"],
  least: Float[Array, " C"] | None,
  tails: tuple[Float[Array, " C"], ...],
) -> tuple[Float[Array, "C V"], Float[Array, "C V"]]:
  """Returns each id's log-probability, or its tail's, under both models.

  Args:
    logps: log-probabilities under the policy.
    logqs: log-probabilities under the other model.
    least: the log-probability from which on an id is outside of the tail. None
      without a tail.
    tails: log-probabilities of the tail under both models; () without one.
  """
  if least is None:
    return logps, logqs
  outside = logps < least[:, None]
  first, second = (
    jnp.where(outside, tail[:, None], x)
    for x, tail in zip((logps, logqs), tails, strict=True)
  )
  return first, second


def _log_tail(
  logps: Float[Array, "C V"],
  outside: Bool[Array, "C V"],
  vocab_axis: str | None,
) -> Float[Array, " C"]:
  """Returns the log-probability of the ids outside of the top k."""
  # A sum, and not 1 minus the rest, which would cancel.
  total = chunks.psum(
    jnp.sum(jnp.where(outside, jnp.exp(logps), 0.0), axis=1), vocab_axis
  )
  return jnp.log(jnp.maximum(total, _LEAST))


def _below_largest(
  x: Float[Array, "C V"], k: int, vocab_axis: str | None
) -> Float[Array, " C"]:
  """Returns a number between the k-th and the next largest of a vocabulary.

  The vocabulary may be sharded. XLA may round x in another way where it is
  compared, which a number halfway between two of them survives.
  """
  largest = jax.lax.top_k(x, min(k + 1, x.shape[1]))[0]
  if vocab_axis is not None:
    largest = jax.lax.all_gather(largest, vocab_axis, axis=1, tiled=True)
    largest = jax.lax.top_k(largest, k + 1)[0]
  return (largest[:, k - 1] + largest[:, k]) / 2
