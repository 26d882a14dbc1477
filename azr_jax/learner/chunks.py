"""Functions of logits over chunks of tokens, without a [B, S, V] array.

Logits exist for one chunk of tokens at a time, and the backward pass
recomputes them. Products have the type of the hidden states in both passes,
and sums over chunks are float32. Tokens that no loss reads are sorted to the
end, and chunks with only such tokens are skipped. On a mesh, each device scores
its own rows against its own part of the vocabulary, so the head is gathered
once and its gradient is summed once, not once per chunk.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int, Num

from azr_jax.parallel import mesh as mesh_lib

# An array [B, S], or a tuple of such arrays.
_PerToken = TypeVar("_PerToken")
# The carry of a loop over chunks.
_Arrays = TypeVar("_Arrays")
# Arrays of a device's tokens: [B, S, ...], or [C, ...] in a chunk.
TokenRows = tuple[Num[Array, "..."], ...]
# The device's part of each output head.
Heads = tuple[Float[Array, "_D V"], ...]
# Results per token, then values per token that only the backward pass needs.
Found = tuple[Float[Array, "..."], ...]


def on_mesh(
  function: Callable[..., _PerToken],
  mask: Float[Array, "B S"] | None,
  rows: TokenRows,
  heads: Heads,
  mesh: Mesh | None,
) -> _PerToken:
  """Runs `function(mask, rows, heads, vocab_axis)` on each device's part."""
  if mesh is None:
    return function(mask, rows, heads, None)
  parts = mesh.shape["tensor"]
  divides = parts > 1 and heads[0].shape[1] % parts == 0
  vocab_axis = "tensor" if divides else None
  sharded = jax.shard_map(
    functools.partial(function, vocab_axis=vocab_axis),
    mesh=mesh,
    in_specs=(
      mesh_lib.TOKENS,
      mesh_lib.TOKENS,
      PartitionSpec(None, vocab_axis),
    ),
    out_specs=mesh_lib.TOKENS,
    # With the check, JAX would sum the head's gradient over devices in every
    # chunk.
    check_vma=False,
  )
  return sharded(mask, rows, heads)


def logits(
  hidden: Float[Array, "C D"], head: Float[Array, "D V"], temperature: float
) -> Float[Array, "C V"]:
  """Returns float32 logits; the product's inputs have the type of `hidden`."""
  product = jnp.matmul(hidden, head, preferred_element_type=jnp.float32)
  return product / temperature


def psum(x: Float[Array, "*B"], vocab_axis: str | None) -> Float[Array, "*B"]:
  """Sums over the devices that share the vocabulary, if any do."""
  return x if vocab_axis is None else jax.lax.psum(x, vocab_axis)


def softmax(
  logits: Float[Array, "C V"], vocab_axis: str | None
) -> tuple[
  Float[Array, "C V"],
  Float[Array, "C V"],
  Float[Array, " C"],
  Float[Array, " C"],
]:
  """Returns a softmax over a vocabulary that may be sharded over devices.

  Returns:
    Logits minus their maximum, the unnormalized weights of this device's part,
    the sum of the weights over all parts, and the log-normalizer.
  """
  maximum = jnp.max(logits, axis=1)
  if vocab_axis is not None:
    maximum = jax.lax.pmax(maximum, vocab_axis)
  shifted = logits - maximum[:, None]
  weights = jnp.exp(shifted)
  total = psum(jnp.sum(weights, axis=1), vocab_axis)
  return shifted, weights, total, maximum + jnp.log(total)


def over_chunks(
  value: Callable[[TokenRows, Heads], Found],
  slope: Callable[[TokenRows, Heads, Found, Found], Float[Array, "C V"]],
  results: int,
  mask: Float[Array, "B S"] | None,
  rows: TokenRows,
  heads: Heads,
  temperature: float,
  chunk_tokens: int,
  vocab_axis: str | None,
) -> Found:
  """Maps a function of logits over chunks of tokens.

  Args:
    value: `(rows, heads) -> found`, from arrays [C, ...] to arrays [C].
    slope: `(rows, heads, found, gradients of the results) -> gradient`, of the
      first head's logits, [C, V].
    results: number of leading arrays of `found` that are results; only `slope`
      reads the others.
    mask: 0 where a position may be left out, or None.
    rows: arrays [B, S, ...], first the hidden states that the first head reads.
    heads: the output heads.
    temperature: divides the logits.
    chunk_tokens: the maximum C.
    vocab_axis: the mesh axis that shards the vocabulary, or None.

  Returns:
    The results, as arrays [B, S].
  """
  B, S = rows[0].shape[:2]
  tokens = B * S
  count = -(-tokens // min(max(1, chunk_tokens), tokens))
  chunk = -(-tokens // count)
  live = None
  order = places = jnp.arange(tokens)
  if mask is not None and count > 1:
    flat = mask.reshape(tokens)
    order = jnp.argsort(flat == 0, stable=True)
    places = places.at[order].set(places, unique_indices=True)
    live = -(-jnp.sum(flat != 0, dtype=jnp.int32) // chunk)
    if vocab_axis is not None:  # These devices sum every chunk together.
      live = jax.lax.pmax(live, mesh_lib.AXES)

  def to_chunks(x: jax.Array) -> jax.Array:
    x = x.reshape(tokens, *x.shape[2:])
    if live is not None:
      x = _permuted(x, order, places)
    padding = [(0, count * chunk - tokens), *[(0, 0)] * (x.ndim - 1)]
    return jnp.pad(x, padding).reshape(count, chunk, *x.shape[1:])

  def from_chunks(x: jax.Array) -> jax.Array:
    x = x.reshape(count * chunk)[:tokens]
    if live is not None:
      x = _permuted(x, places, order)
    return x.reshape(B, S)

  chunked = _chunked(value, slope, results, temperature, vocab_axis)
  found = chunked(tuple(map(to_chunks, rows)), heads, live)
  return tuple(map(from_chunks, found))


@jax.custom_vjp
def _permuted(
  x: Num[Array, "tokens ..."],
  order: Int[Array, " tokens"],
  places: Int[Array, " tokens"],
) -> Num[Array, "tokens ..."]:
  """Returns x[order]. With `places`, its inverse, the gradient gathers too."""
  return x[order]


_permuted.defvjp(
  lambda x, order, places: (x[order], places),
  lambda places, grad: (grad[places], None, None),
)


def _chunked(
  value: Callable[[TokenRows, Heads], Found],
  slope: Callable[[TokenRows, Heads, Found, Found], Float[Array, "C V"]],
  results: int,
  temperature: float,
  vocab_axis: str | None,
) -> Callable[[TokenRows, Heads, Int[Array, ""] | None], Found]:
  """Returns the differentiable map of `over_chunks` over arrays [n, C, ...].

  Its last argument is the number of chunks to compute; None computes all.
  """

  @jax.custom_vjp
  def run(rows: TokenRows, heads: Heads, live: jax.Array | None) -> Found:
    return forward(rows, heads, live)[0]

  def forward(
    rows: TokenRows, heads: Heads, live: jax.Array | None
  ) -> tuple[Found, tuple[Any, ...]]:
    count = rows[0].shape[0]

    def add(index: jax.Array, found: Found) -> Found:
      new = value(tuple(_take(x, index) for x in rows), heads)
      return tuple(_put(x, y, index) for x, y in zip(found, new, strict=True))

    shapes = jax.eval_shape(value, tuple(x[0] for x in rows), heads)
    zeros = tuple(jnp.zeros((count, *x.shape), x.dtype) for x in shapes)
    found = _loop(count, live, add, zeros)
    return found[:results], (rows, heads, live, found)

  def backward(
    kept: tuple[Any, ...], grads: Found
  ) -> tuple[tuple[jax.Array | None, ...] | None, ...]:
    rows, heads, live, found = kept
    # Each device's logits affect every device's results, so gradients are
    # summed.
    grads = tuple(psum(x, vocab_axis) for x in grads)
    head = heads[0]

    def add(
      index: jax.Array, total: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
      parts, known, grad = (
        tuple(_take(x, index) for x in arrays)
        for arrays in (rows, found, grads)
      )
      slopes = slope(parts, heads, known, grad) / temperature
      slopes = slopes.astype(parts[0].dtype)
      of_head = jax.lax.dot_general(
        parts[0],
        slopes,
        (((0,), (0,)), ((), ())),
        preferred_element_type=jnp.float32,
      )
      return total[0] + of_head, _put(total[1], slopes @ head.T, index)

    start = jnp.zeros(head.shape, jnp.float32), jnp.zeros_like(rows[0])
    of_head, of_hidden = _loop(rows[0].shape[0], live, add, start)
    return (
      (of_hidden, *[None] * (len(rows) - 1)),
      (of_head.astype(head.dtype), *[None] * (len(heads) - 1)),
      None,
    )

  run.defvjp(forward, backward)
  return run


def _loop(
  count: int,
  live: Int[Array, ""] | None,
  body: Callable[[Int[Array, ""], _Arrays], _Arrays],
  start: _Arrays,
) -> _Arrays:
  """Runs a body for the first `live` of `count` chunks; None runs all."""
  if count == 1:
    return body(jnp.zeros((), jnp.int32), start)
  if live is None:
    return jax.lax.fori_loop(0, count, body, start)
  # `compile_check` reads the bound from the condition.
  _, result = jax.lax.while_loop(
    lambda carry: (carry[0] < count) & (carry[0] < live),
    lambda carry: (carry[0] + 1, body(*carry)),
    (jnp.zeros((), jnp.int32), start),
  )
  return result


def _take(
  x: Num[Array, "chunks ..."], index: Int[Array, ""]
) -> Num[Array, "..."]:
  return jax.lax.dynamic_index_in_dim(x, index, keepdims=False)


def _put(
  x: Num[Array, "chunks ..."], part: Num[Array, "..."], index: Int[Array, ""]
) -> Num[Array, "chunks ..."]:
  return jax.lax.dynamic_update_index_in_dim(x, part, index, 0)
