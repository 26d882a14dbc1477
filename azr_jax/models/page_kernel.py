"""A Pallas kernel for TPUs: decode attention that reads only live pages.

XLA's loop over pages reads as many pages of every row as the longest row has.
This kernel lists the live pages of all rows, and its grid is as long as the
list, so a long row does not slow down the others. A grid step handles several
pages of any rows, because reading one page takes less time than a step's
overhead. Copies into VMEM overlap with the matrix products of the step before.

Queries, and each row's running softmax over the pages so far, stay in VMEM
from the first step to the last. The final steps add the tokens that are not in
pages yet: those generated in this decode call, and the current token itself.

Axis letters are defined in `types.py`.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int, Num

from azr_jax.models import quantization
from azr_jax.models.attention import MASK_VALUE
from azr_jax.models.pages import (
  Entries,
  LivePages,
  Pool,
  RecentKV,
)

# Pages per grid step, times key heads. With 512 tokens and 128 channels they
# take 2 MiB, which takes longer to read than the step's own overhead.
PAGES_PER_STEP = 8
# Maximum rows of a step that adds recent tokens.
_ROWS_PER_STEP = 8
# VMEM that a kernel may use on every TPU by default.
_VMEM_BYTES = 16 * 2**20
# Sublanes of a register, to which the queries of a key head are padded, and
# lanes, over which each per-query scalar is broadcast.
_SUBLANES, _LANES = 8, 128
# The maximum score and the sum of weights of the queries, in each lane, and the
# weighted sum of values.
Softmax: TypeAlias = tuple[
  Float[Array, "Q lanes"], Float[Array, "Q lanes"], Float[Array, "Q E"]
]


def live_pages(
  table: Int[Array, "B M"],
  length: Int[Array, " B"],
  page_size: int,
  window: int | None = None,
) -> LivePages:
  """Lists the pages that hold entries, and that the window reaches.

  Args:
    table: the pages of each row of a device.
    length: number of filled entries of each row.
    page_size: C, the entries per page.
    window: number of tokens that a token attends to, including itself.
  """
  B, M = table.shape
  W = B * M + -(B * M) % PAGES_PER_STEP
  pages_of_row = -(-length // page_size)
  lower = first = hidden = None
  if window is not None:
    lower = length - window + 1
    first = jnp.maximum(lower, 0) // page_size
    pages_of_row -= first
  ends = jnp.cumsum(pages_of_row)
  index = jnp.arange(W, dtype=jnp.int32)
  row = jnp.searchsorted(ends, index, side="right").astype(jnp.int32)
  begun = jnp.minimum(row, B - 1)
  number = index - (ends - pages_of_row)[begun]
  if lower is not None and first is not None:
    number += first[begun]
    hidden = lower[begun] - number * page_size
  is_live = row < B
  page = table[begun, jnp.clip(number, 0, M - 1)]
  seen = jnp.clip(length[begun] - number * page_size, 0, page_size)
  return LivePages(
    page=jnp.where(is_live, page, 0),
    row=row,
    seen=jnp.where(is_live, seen, 0),
    count=ends[-1:],
    hidden=hidden,
  )


def _whole(*shape: int) -> pl.BlockSpec:
  """Returns the block spec of a whole array, the same for every grid step."""
  return pl.BlockSpec(shape, lambda *_: (0,) * len(shape))


def _page_blocks(pages: int, *shape: int) -> list[pl.BlockSpec]:
  """Returns the block specs of a step's pages, for one array of the pool.

  Args:
    pages: pages per step.
    shape: shape of a page in one layer.
  """

  def block(number: int) -> pl.BlockSpec:
    def index(step: Any, scalars: Any, page: Any, *_: Any) -> tuple[Any, ...]:
      # Past the last page, repeat its block: an unchanged block is not copied.
      at = jnp.clip(step, 0, jnp.maximum(scalars[1] - 1, 0))
      return scalars[0], page[at * pages + number], *[0] * len(shape)

    return pl.BlockSpec((None, None, *shape), index)

  return [block(number) for number in range(pages)]


def _recent_block(*shape: int) -> pl.BlockSpec:
  """Returns the block spec of recent tokens, for the rows a step finishes."""

  def index(step: Any, scalars: Any, *_: Any) -> tuple[Any, ...]:
    row = jnp.maximum(step - scalars[1], 0)
    return scalars[0], row, *[0] * (len(shape) - 1)

  return pl.BlockSpec((None, *shape), index)


def _vmem_bytes(
  pool: Pool, padded: int, rows: int, pages: int, recent: int
) -> int:
  """Returns the VMEM limit of the kernel: twice the size of its blocks.

  Args:
    pool: the device's pages.
    padded: padded number of queries per key head.
    rows: rows of the device.
    pages: pages per step.
    recent: recent tokens of a step that finishes rows.
  """
  _, _, K, C, E = pool.v.shape
  # Keys and values, double-buffered.
  blocks = 4 * K * E * pool.v.dtype.itemsize * (pages * C + recent)
  whole = 4 * rows * K * padded * (2 * _LANES + 3 * E)
  return max(_VMEM_BYTES, 2 * (blocks + whole))


def attend(
  q: Float[Array, "B K Q E"],
  new: Entries,
  pool: Pool,
  live: LivePages,
  recent: RecentKV,
  layer: Int[Array, ""],
  interpret: bool = False,
  window: Int[Array, ""] | None = None,
  sinks: Float[Array, "K Q"] | None = None,
) -> Float[Array, "B K Q E"]:
  """Returns causal attention of S tokens per row, including earlier tokens.

  Args:
    q: scaled queries, grouped by key head, Q = G x S.
    new: keys and values of the same tokens. S is above 1 with drafts.
    pool: the device's pages.
    live: the pages that hold entries.
    recent: tokens after those in pages and before the new ones.
    layer: index of the layer in the pool and recent tokens.
    interpret: run the kernel in interpret mode on any device, for tests.
    window: number of tokens that a token attends to; the pages are listed for
      it. None: all earlier ones.
    sinks: the score of one more key, without a value, of each query.
  """
  B, K, Q, E = q.shape
  S, N = new.v.shape[2], recent.entries.v.shape[3]
  padded = Q + -Q % _SUBLANES
  # Pages past the end of the list go to an extra row, B.
  q = jnp.pad(q, ((0, 1), (0, 0), (0, padded - Q), (0, 0)))
  pages = max(1, PAGES_PER_STEP // K)
  rows = max(n for n in range(1, _ROWS_PER_STEP + 1) if B % n == 0)
  page_steps = -(-live.count[0] // pages)
  own = [q, *_own(new), *_in_lanes(sinks, padded)]
  in_pages, in_recent = jax.tree.leaves(pool), jax.tree.leaves(recent.entries)

  scalars = [layer, page_steps, *([] if window is None else [window])]
  scalars = jnp.stack(scalars).astype(jnp.int32)
  counts = jnp.broadcast_to(recent.count, B)
  hidden = _hidden(live, counts, window)
  scratch = [
    pltpu.VMEM((B + 1, K, padded, n), jnp.float32) for n in (_LANES, _LANES, E)
  ]
  out = pl.pallas_call(
    functools.partial(
      _kernel,
      tokens=S,
      heads=K,
      pages=pages,
      rows=rows,
      arrays=len(in_pages),
      windowed=window is not None,
      sunk=sinks is not None,
    ),
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=5 + len(hidden),
      grid=(page_steps + B // rows,),
      in_specs=[
        *(_whole(*x.shape) for x in own),
        *(_recent_block(rows, *x.shape[2:]) for x in in_recent),
        *(
          block for x in in_pages for block in _page_blocks(pages, *x.shape[2:])
        ),
      ],
      out_specs=_whole(B, K, padded, E),
      scratch_shapes=scratch,
    ),
    out_shape=jax.ShapeDtypeStruct((B, K, padded, E), q.dtype),
    cost_estimate=_cost(pool, padded, B),
    compiler_params=pltpu.CompilerParams(
      vmem_limit_bytes=_vmem_bytes(pool, padded, B, pages, rows * N)
    ),
    name="decode_attention",
    interpret=interpret,
  )(
    *(scalars, live.page, live.row, live.seen, counts, *hidden),
    *(*own, *in_recent),
    *(x for x in in_pages for _ in range(pages)),
  )
  return out[:, :, :Q]


def _in_lanes(
  sinks: Float[Array, "K Q"] | None, padded: int
) -> list[Float[Array, "K padded lanes"]]:
  """Returns the sinks in each lane; the list is empty without sinks."""
  if sinks is None:
    return []
  sinks = jnp.pad(sinks, ((0, 0), (0, padded - sinks.shape[1])))
  return [jnp.broadcast_to(sinks[..., None], (*sinks.shape, _LANES))]


def _hidden(
  live: LivePages, counts: Int[Array, " B"], window: Int[Array, ""] | None
) -> list[Int[Array, " W"]]:
  """Returns the number of entries of each page before the next token's window.

  The window moves on with each recent token. The list is empty without windows.
  """
  if window is None:
    return []
  assert live.hidden is not None
  # Pages past the end of the list have row B, which has no tokens.
  return [live.hidden + jnp.pad(counts, (0, 1))[live.row]]


def _cost(pool: Pool, padded: int, rows: int) -> pl.CostEstimate:
  """Estimates the cost as one page per row.

  The page count is known only at run time.

  Args:
    pool: the device's pages.
    padded: padded number of queries per key head.
    rows: rows of the device.
  """
  _, _, K, C, E = pool.v.shape
  pages = jax.tree.leaves(pool)
  page_bytes = sum(math.prod(x.shape[2:]) * x.dtype.itemsize for x in pages)
  return pl.CostEstimate(
    flops=4 * rows * K * padded * E * C,
    bytes_accessed=rows * page_bytes,
    transcendentals=rows * K * padded * C,
  )


def _own(
  new: Entries,
) -> tuple[Num[Array, "B K *S E"], Num[Array, "B K *S E"]]:
  """Returns keys and values of the new tokens.

  The axis S is missing with one token per row.
  """
  k, v = new.k, new.v
  if new.k_scale is not None and new.v_scale is not None:
    k = quantization.dequantize(k, new.k_scale, (3,))
    v = quantization.dequantize(v, new.v_scale, (3,))
  if k.shape[2] == 1:
    return k[:, :, 0], v[:, :, 0]
  return k, v


def _kernel(
  scalars_ref: Any,
  page_ref: Any,
  row_ref: Any,
  seen_ref: Any,
  count_ref: Any,
  *refs: Any,
  tokens: int,
  heads: int,
  pages: int,
  rows: int,
  arrays: int,
  windowed: bool,
  sunk: bool,
) -> None:
  """Adds pages to the running softmax of their rows, or finishes some rows."""
  del page_ref  # The block specifications read it.
  window_refs = (refs[0], scalars_ref, count_ref) if windowed else None
  q_ref, k_ref, v_ref, *blocks = refs[windowed:-4]
  sink_ref = blocks.pop(0) if sunk else None
  queries = q_ref.shape[2], tokens
  step, page_steps = pl.program_id(0), scalars_ref[1]
  recent_refs, page_refs = blocks[:arrays], blocks[arrays:]
  out_ref, maximum_ref, total_ref, sum_ref = refs[-4:]

  @pl.when(step == 0)
  def _begin() -> None:
    _start(sink_ref, maximum_ref, total_ref, sum_ref)

  @pl.when(step < page_steps)
  def _add_pages() -> None:
    # A step's pages are independent until their sums are joined, so their
    # products overlap.
    parts = []
    for number in range(pages):
      row = row_ref[step * pages + number]
      seen = seen_ref[step * pages + number]
      first = _first_in_page(window_refs, step * pages + number, *queries)
      for head in range(heads):
        read = _read(page_refs[number::pages], (), head)
        part = _softmax(q_ref[row, head], *read, 0, seen, first)
        parts.append(((row, head), part))
    for at, part in parts:
      old = maximum_ref[at], total_ref[at], sum_ref[at]
      maximum_ref[at], total_ref[at], sum_ref[at] = _joined(old, part)

  @pl.when(step >= page_steps)
  def _end_rows() -> None:
    for number in range(rows):
      row = (step - page_steps) * rows + number
      for head in range(heads):
        q = q_ref[row, head]
        read = _read(recent_refs, (number,), head)
        first = _first_newer(window_refs, row, *queries)
        part = _joined(
          (maximum_ref[row, head], total_ref[row, head], sum_ref[row, head]),
          _softmax(q, *read, 1, count_ref[row], first),
        )
        if tokens == 1:
          own = pl.ds(head, 1)
          own = _of_itself(q, k_ref[row, own, :], v_ref[row, own, :])
        else:
          seen = _index_of_token(*queries) + 1
          first = _first_newer(window_refs, None, *queries)
          k, v = k_ref[row, head], v_ref[row, head]
          own = _softmax(q, k, v, (), 1, seen, first)
        _, total, weighted = _joined(part, own)
        out_ref[row, head] = (weighted / total[:, :1]).astype(out_ref.dtype)


def _start(
  sink_ref: Any | None, maximum_ref: Any, total_ref: Any, sum_ref: Any
) -> None:
  """Writes the softmax over nothing or, with sinks, over these."""
  if sink_ref is None:
    maximum_ref[...] = jnp.full_like(maximum_ref, MASK_VALUE)
    total_ref[...] = jnp.zeros_like(total_ref)
  else:
    maximum_ref[...] = jnp.broadcast_to(sink_ref[...], maximum_ref.shape)
    total_ref[...] = jnp.ones_like(total_ref)
  sum_ref[...] = jnp.zeros_like(sum_ref)


def _index_of_token(queries: int, tokens: int) -> Int[Array, "Q 1"]:
  """Returns which of the row's new tokens each query belongs to."""
  query = jax.lax.broadcasted_iota(jnp.int32, (queries, 1), 0)
  return jax.lax.rem(query, tokens)


def _first_in_page(
  refs: tuple[Any, ...] | None, at: Int[Array, ""], queries: int, tokens: int
) -> Int[Array, "Q 1"] | None:
  """Returns the first entry of a page in each query's window.

  Args:
    refs: the hidden entries of pages, scalars and counts. None: no windows.
    at: index of the page in the list.
    queries: number of queries.
    tokens: number of the row's new tokens.
  """
  if refs is None:
    return None
  return refs[0][at] + _index_of_token(queries, tokens)


def _first_newer(
  refs: tuple[Any, ...] | None,
  row: Int[Array, ""] | None,
  queries: int,
  tokens: int,
) -> Int[Array, "Q 1"] | None:
  """Returns the first newer token in each query's window.

  Args:
    refs: as for `_first_in_page`.
    row: the row whose recent tokens are counted. None counts its new tokens.
    queries: number of queries.
    tokens: number of the row's new tokens.
  """
  if refs is None:
    return None
  _, scalars_ref, count_ref = refs
  start = 0 if row is None else count_ref[row]
  return start + _index_of_token(queries, tokens) + 1 - scalars_ref[2]


def _of_itself(
  q: Float[Array, "Q E"], k: Num[Array, "1 E"], v: Num[Array, "1 E"]
) -> Softmax:
  """Returns the softmax over a single token, given its key and value."""
  # The compiler does not treat a product with a single key as a matrix product.
  score = jnp.sum(
    q.astype(jnp.float32) * k.astype(jnp.float32), axis=-1, keepdims=True
  )
  lanes = (q.shape[0], _LANES)
  return (
    jnp.broadcast_to(score, lanes),
    jnp.ones(lanes, jnp.float32),
    jnp.broadcast_to(v.astype(jnp.float32), q.shape),
  )


def _read(
  refs: Sequence[Any], at: tuple[int, ...], head: int
) -> tuple[
  Num[Array, "..."], Num[Array, "T E"], tuple[Float[Array, "1 T"], ...]
]:
  """Returns a head's keys, values and, if there are any, their scales.

  Keys are [E, T] in pages and [T, E] elsewhere.

  Args:
    refs: references to keys, values and, if they are quantized, scales.
    at: indices before the head's index.
    head: index of the key head.
  """
  k_ref, v_ref, *scale_refs = refs
  whole = (*at, pl.ds(head, 1), slice(None))
  scales = tuple(ref[whole] for ref in scale_refs)
  return k_ref[(*at, head)], v_ref[(*at, head)], scales


def _softmax(
  q: Float[Array, "Q E"],
  k: Num[Array, "T E"] | Num[Array, "E T"],
  v: Num[Array, "T E"],
  scales: tuple[Float[Array, "1 T"], ...],
  axis: int,
  seen: Int[Array, ""] | Int[Array, "Q 1"],
  first: Int[Array, "Q 1"] | None = None,
) -> Softmax:
  """Returns the softmax over T tokens.

  Args:
    k: keys of the T tokens.
    v: values of the T tokens.
    scales: scales of keys and of values; empty if not quantized.
    axis: the channel axis of the keys.
    seen: number of visible tokens, of all queries or per query.
    first: the first visible token of each query. None: the first of all.
  """
  scores = jax.lax.dot_general(
    q,
    k.astype(q.dtype),
    (((1,), (axis,)), ((), ())),
    preferred_element_type=jnp.float32,
  )
  if scales:
    scores *= scales[0]
  token = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
  visible = token < seen
  if first is not None:
    visible &= token >= first
  scores = jnp.where(visible, scores, MASK_VALUE)
  maximum = jnp.max(scores, axis=-1, keepdims=True)
  # If no token is visible, the maximum comes from masked scores.
  weights = jnp.where(visible, jnp.exp(scores - maximum), 0.0)
  total = jnp.sum(weights, axis=-1, keepdims=True)
  if scales:
    weights *= scales[1]
  weighted = jnp.dot(
    weights.astype(q.dtype),
    v.astype(q.dtype),
    preferred_element_type=jnp.float32,
  )
  lanes = (scores.shape[0], _LANES)
  return (
    jnp.broadcast_to(maximum, lanes),
    jnp.broadcast_to(total, lanes),
    weighted,
  )


def _joined(one: Softmax, other: Softmax) -> Softmax:
  """Returns the softmax over the union of two sets of tokens."""
  maximum = jnp.maximum(one[0], other[0])
  scales = [jnp.exp(part[0] - maximum) for part in (one, other)]
  return (
    maximum,
    one[1] * scales[0] + other[1] * scales[1],
    one[2] * scales[0][:, :1] + other[2] * scales[1][:, :1],
  )
