"""Pallas kernels for GPUs: decode attention that reads only live pages.

XLA's loop over pages reads as many pages of every row as the longest row has.
Here, in the order of the data:
1. once per decode call, `row_shares` cuts the cached tokens of all rows into
   shares of about the same length, each from one row. Many GPU programs read a
   long row, and one reads a short row;
2. for each token and layer, a kernel reads each share's pages in place in the
   pool, and writes an unnormalized softmax;
3. a second kernel joins each row's shares with the tokens that are not in
   pages: those generated in this call, and the current token itself.

The kernels are written for Triton, in the style of JAX's `paged_attention` for
GPUs, which needs another page layout and does not return the softmax's sums
(`docs/rollouts.md`).

Axis letters are defined in `types.py`. Q is padded to the minimum size of a
matrix product.
"""

import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from azr_jax.models.attention import MASK_VALUE
from azr_jax.models.pages import Entries, Pool, RecentKV, RowShares

# Maximum tokens that a program reads at a time. With 128 channels, keys and
# values take 32 KiB, and the next block is prefetched meanwhile.
_BLOCK = 64
# Minimum rows, columns and depth of a matrix product.
_PRODUCT = 16
# Part of an error message; describes what `supports` tests.
SUPPORTED = (
  "takes pages of a multiple of 16 tokens, heads of a power of 2 and at least "
  "16 channels, and a cache in bfloat16 or float16"
)
# Programs that keep a GPU busy: four on each of 132 multiprocessors.
_PROGRAMS = 528
_PARAMS = plgpu.CompilerParams(num_warps=4, num_stages=2)
# The maximum score and the sum of weights over some tokens, and the weighted
# sum of their values.
Softmax: TypeAlias = tuple[
  Float[Array, " Q"], Float[Array, " Q"], Float[Array, "Q E"]
]


def supports(page_size: int, head_size: int, dtype: DTypeLike) -> bool:
  """Returns whether the kernels can read a pool.

  Args:
    page_size: C.
    head_size: E; Triton needs a power of 2.
    dtype: dtype of keys and values.
  """
  return (
    page_size % _PRODUCT == 0
    and head_size >= _PRODUCT
    and head_size & (head_size - 1) == 0
    and jnp.dtype(dtype) in (jnp.bfloat16, jnp.float16)
  )


def row_shares(
  length: Int[Array, " B"],
  page_size: int,
  kv_heads: int,
  window: int | None = None,
) -> RowShares:
  """Cuts the cached tokens of a device's rows into shares of similar length.

  Args:
    length: number of filled entries of each row.
    page_size: C, the entries per page.
    kv_heads: K of the device.
    window: number of tokens that a token attends to, including itself. The
      shares then begin where the window of the row's next token does.
  """
  block = _block(page_size)
  B = length.shape[0]
  # With this many shares, none is longer than a mean row, and none is empty.
  wanted = max(B, -(-_PROGRAMS // kv_heads))
  blocks = -(-length // block)
  lower = skipped = None
  if window is not None:
    lower = length - window + 1
    skipped = jnp.maximum(lower, 0) // block
    blocks -= skipped
  size = jnp.maximum(1, -(-jnp.sum(blocks) // wanted))
  ends = jnp.cumsum(-(-blocks // size))
  index = jnp.arange(B + wanted, dtype=jnp.int32)
  row = jnp.searchsorted(ends, index, side="right").astype(jnp.int32)
  is_live = row < B
  row = jnp.minimum(row, B - 1)
  first = jnp.concatenate([jnp.zeros(1, jnp.int32), ends.astype(jnp.int32)])
  start = (index - first[row]) * (size * block)
  if skipped is not None:
    start += skipped[row] * block
  end = jnp.minimum(start + size * block, length[row])
  return RowShares(
    row=row,
    start=jnp.where(is_live, start, 0).astype(jnp.int32),
    end=jnp.where(is_live, end, 0).astype(jnp.int32),
    first=first,
    lower=None if lower is None else lower[row].astype(jnp.int32),
  )


def _block(page_size: int) -> int:
  """Returns the number of tokens read at a time, all in one page."""
  return min(page_size & -page_size, _BLOCK)


def attend(
  q: Float[Array, "B K Q E"],
  new: Entries,
  pool: Pool,
  table: Int[Array, "B M"],
  shares: RowShares,
  recent: RecentKV,
  layer: Int[Array, ""],
  interpret: bool = False,
  window: Int[Array, ""] | None = None,
  sinks: Float[Array, "K Q"] | None = None,
) -> Float[Array, "B K Q E"]:
  """Returns causal attention of S tokens per row, including earlier tokens.

  Args:
    q: queries, grouped by key head, Q = G x S; scores are scaled.
    new: keys and values of the same tokens. S is above 1 with drafts.
    pool: the device's pages.
    table: the pages of each row.
    shares: the tokens that each program reads.
    recent: tokens after those in pages and before the new ones.
    layer: index of the layer in the pool and recent tokens.
    interpret: run the kernels in interpret mode on any device, for tests.
    window: number of tokens that a token attends to; the shares are made for
      it. None: all earlier ones.
    sinks: the score of one more key, without a value, of each query.
  """
  B, K, Q, E = q.shape
  C, W = pool.v.shape[3], shares.row.shape[0]
  padded = max(_PRODUCT, pl.next_power_of_2(Q))
  # As one array, because XLA launches an operation for each that it writes.
  qkv = jnp.concatenate([q, new.k, new.v], axis=2)
  at_layer = jnp.reshape(layer, 1).astype(jnp.int32)
  lower, reach = None, None
  if window is not None:
    assert shares.lower is not None
    # The window moves on with each recent token.
    lower = shares.lower + jnp.broadcast_to(recent.count, B)[shares.row]
    reach = jnp.reshape(window, 1)
  if sinks is not None:
    sinks = jnp.pad(sinks, ((0, 0), (0, padded - Q)))
  number = jax.ShapeDtypeStruct((W, K, padded), jnp.float32)
  parts = pl.pallas_call(
    functools.partial(
      _read_share,
      queries=Q,
      block=_block(C),
      page_size=C,
      tokens=new.v.shape[2],
    ),
    grid=(W, K),
    out_shape=(
      number,
      number,
      jax.ShapeDtypeStruct((W, K, padded, E), jnp.float32),
    ),
    compiler_params=_PARAMS,
    name="decode_attention",
    interpret=interpret,
  )(
    *(at_layer, shares.row, shares.start, shares.end, lower, table),
    *(qkv, pool.k, pool.v),
  )
  return pl.pallas_call(
    functools.partial(_join_row, queries=Q),
    grid=(B, K),
    out_shape=jax.ShapeDtypeStruct((B, K, Q, E), q.dtype),
    compiler_params=_PARAMS,
    name="decode_attention_join",
    interpret=interpret,
  )(
    *(at_layer, shares.first, jnp.reshape(recent.count, -1), reach, sinks),
    *(qkv, recent.entries.k, recent.entries.v),
    *parts,
  )


def _read_share(
  layer_ref: Any,
  row_ref: Any,
  start_ref: Any,
  end_ref: Any,
  lower_ref: Any | None,
  table_ref: Any,
  qkv_ref: Any,
  k_ref: Any,
  v_ref: Any,
  maximum_ref: Any,
  total_ref: Any,
  sum_ref: Any,
  *,
  queries: int,
  block: int,
  page_size: int,
  tokens: int,
) -> None:
  """Writes a row's softmax over the tokens of a share, for one key head."""
  share, head = pl.program_id(0), pl.program_id(1)
  start, end = start_ref[share], end_ref[share]

  @pl.when(start < end)
  def _read() -> None:
    layer, row = layer_ref[0], row_ref[share]
    q = _queries(qkv_ref, row, head, queries, maximum_ref.shape[2])
    in_page = page_size // block

    def add(number: jax.Array, softmax: Softmax) -> Softmax:
      page = table_ref[row, number // in_page]
      # Written as a product, so that the compiler can see the alignment and
      # read 16 bytes at once.
      entries = pl.ds(jax.lax.rem(number, in_page) * block, block)
      entry = number * block + jnp.arange(block)
      seen = entry < end
      if lower_ref is not None:
        first = lower_ref[share] + _index_of_token(q, tokens)
        seen = seen[None, :] & (entry[None, :] >= first)
      return _with_tokens(
        softmax,
        q,
        k_ref[layer, page, head, :, entries],
        v_ref[layer, page, head, entries, :],
        seen,
      )

    softmax = jax.lax.fori_loop(
      start // block, pl.cdiv(end, block), add, _nothing(q)
    )
    maximum_ref[share, head], total_ref[share, head] = softmax[:2]
    sum_ref[share, head] = softmax[2]


def _join_row(
  layer_ref: Any,
  first_ref: Any,
  count_ref: Any,
  window_ref: Any | None,
  sink_ref: Any | None,
  qkv_ref: Any,
  recent_k_ref: Any,
  recent_v_ref: Any,
  maximum_ref: Any,
  total_ref: Any,
  sum_ref: Any,
  out_ref: Any,
  *,
  queries: int,
) -> None:
  """Writes the outputs of one row and key head."""
  row, head = pl.program_id(0), pl.program_id(1)
  layer, padded = layer_ref[0], maximum_ref.shape[2]
  # A single count applies to all rows.
  count = count_ref[row if count_ref.shape[0] > 1 else 0]
  q = _queries(qkv_ref, row, head, queries, padded)
  tokens = (qkv_ref.shape[2] - queries) // 2
  room = pl.next_power_of_2(recent_k_ref.shape[3])
  block = min(max(room, _PRODUCT), _BLOCK)

  def add_recent(number: jax.Array, softmax: Softmax) -> Softmax:
    entries = pl.ds(number * block, block)
    entry = number * block + jnp.arange(block)
    filled = seen = entry < count
    if window_ref is not None:
      oldest = count + _index_of_token(q, tokens) + 1 - window_ref[0]
      seen = seen[None, :] & (entry[None, :] >= oldest)
    # The last block may extend past the end of the array.
    k, v = (
      plgpu.load(
        ref.at[layer, row, head, entries], mask=filled[:, None], other=0
      )
      for ref in (recent_k_ref, recent_v_ref)
    )
    return _with_tokens(softmax, q, k.T, v, seen)

  def add_share(share: jax.Array, softmax: Softmax) -> Softmax:
    part = maximum_ref[share, head], total_ref[share, head]
    return _joined(softmax, (*part, sum_ref[share, head]))

  softmax = _nothing(q)
  if sink_ref is not None:
    ones = jnp.ones(padded, jnp.float32)
    softmax = sink_ref[head], ones, softmax[2]
  softmax = jax.lax.fori_loop(0, pl.cdiv(count, block), add_recent, softmax)
  softmax = jax.lax.fori_loop(
    first_ref[row], first_ref[row + 1], add_share, softmax
  )
  query = jnp.arange(padded)
  for token in range(tokens):
    k = qkv_ref[row, head, queries + token]
    v = qkv_ref[row, head, queries + tokens + token]
    score = jnp.sum(
      q.astype(jnp.float32) * k.astype(jnp.float32)[None, :], axis=1
    )
    # A query sees its own token and earlier ones, so it always sees the first
    # unless a window hides it.
    seen = jax.lax.rem(query, tokens) >= token
    if window_ref is not None:
      seen &= jax.lax.rem(query, tokens) - token < window_ref[0]
    score = jnp.where(seen, score, MASK_VALUE)
    value = jnp.broadcast_to(v.astype(jnp.float32)[None, :], q.shape)
    softmax = _joined(softmax, (score, jnp.ones_like(score), value))
  _, total, weighted = softmax
  plgpu.store(
    out_ref.at[row, head, pl.ds(0, padded)],
    (weighted / total[:, None]).astype(out_ref.dtype),
    mask=(query < queries)[:, None],
  )


def _index_of_token(q: Float[Array, "Q E"], tokens: int) -> Int[Array, "Q 1"]:
  """Returns which of a row's new tokens each query belongs to."""
  return jax.lax.rem(jnp.arange(q.shape[0]), tokens)[:, None]


def _queries(
  qkv_ref: Any,
  row: Int[Array, ""],
  head: Int[Array, ""],
  queries: int,
  padded: int,
) -> Float[Array, "Q E"]:
  """Returns a row's scaled queries of a key head, followed by zeros."""
  is_query = jnp.arange(padded) < queries
  q = plgpu.load(
    qkv_ref.at[row, head, pl.ds(0, padded)], mask=is_query[:, None], other=0
  )
  return q * q.shape[-1] ** -0.5


def _nothing(q: Float[Array, "Q E"]) -> Softmax:
  """Returns the softmax over no tokens."""
  return (
    jnp.full(q.shape[0], MASK_VALUE, jnp.float32),
    jnp.zeros(q.shape[0], jnp.float32),
    jnp.zeros(q.shape, jnp.float32),
  )


def _with_tokens(
  softmax: Softmax,
  q: Float[Array, "Q E"],
  k: Float[Array, "E T"],
  v: Float[Array, "T E"],
  seen: Bool[Array, "*Q T"],
) -> Softmax:
  """Adds tokens to a softmax.

  Args:
    softmax: the softmax over the tokens so far.
    k: keys of T tokens.
    v: values of the T tokens.
    seen: which tokens are visible, to all queries or to each. If none is, the
      result counts for nothing beside a visible token.
  """
  seen = seen[None, :] if seen.ndim == 1 else seen
  scores = jnp.where(seen, plgpu.dot(q, k), MASK_VALUE)
  maximum = jnp.maximum(softmax[0], jnp.max(scores, axis=1))
  weights = jnp.exp(scores - maximum[:, None])
  scale = jnp.exp(softmax[0] - maximum)
  return (
    maximum,
    softmax[1] * scale + jnp.sum(weights, axis=1),
    softmax[2] * scale[:, None] + plgpu.dot(weights.astype(v.dtype), v),
  )


def _joined(one: Softmax, other: Softmax) -> Softmax:
  """Returns the softmax over the union of two sets of tokens."""
  maximum = jnp.maximum(one[0], other[0])
  scales = [jnp.exp(part[0] - maximum) for part in (one, other)]
  return (
    maximum,
    one[1] * scales[0] + other[1] * scales[1],
    one[2] * scales[0][:, None] + other[2] * scales[1][:, None],
  )
