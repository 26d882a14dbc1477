"""A Pallas kernel for TPUs: attention of decoding, which reads live pages only.

XLA's loop over pages reads as many pages of every row as the longest row has.
Here the live pages of all rows are one list, and the grid is as long as the
list, so a long row costs others nothing. Each step of the grid handles several
pages, of any rows, because one is read in less time than a step takes. Their
copies into the chip's memory overlap with the products of the step before.

Queries, and the softmax of each row over the pages so far, stay in that memory
from the first step to the last.

Axis letters are those of `types.py` and `pages.py`.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int

from azr_jax.models.attention import HIDDEN_SCORE
from azr_jax.models.pages import LivePages, Pool, entries_of_page

# Pages of a step of the grid: of 512 tokens and a key head of 128 channels they
# have 2 MiB, which take longer to read than the step's own overhead.
PAGES_PER_STEP = 8
# Rows of a register, to which the queries of a key head are padded, and the
# width at which a number per query is kept.
_SUBLANES, _LANES = 8, 128


def live_pages(
  table: Int[Array, "B M"], length: Int[Array, " B"], page_size: int
) -> LivePages:
  """Lists the pages that hold entries.

  Args:
    table: the pages of each row of a device.
    length: how many entries of each row are filled.
    page_size: C, the entries of a page.
  """
  B, M = table.shape
  W = B * M + -(B * M) % PAGES_PER_STEP
  pages_of_row = -(-length // page_size)
  ends = jnp.cumsum(pages_of_row)
  index = jnp.arange(W, dtype=jnp.int32)
  row = jnp.searchsorted(ends, index, side="right").astype(jnp.int32)
  begun = jnp.minimum(row, B - 1)
  number = index - (ends - pages_of_row)[begun]
  is_live = row < B
  page = table[begun, jnp.clip(number, 0, M - 1)]
  seen = jnp.clip(length[begun] - number * page_size, 0, page_size)
  return LivePages(
    page=jnp.where(is_live, page, 0),
    row=row,
    seen=jnp.where(is_live, seen, 0),
    count=ends[-1:],
  )


def attend(
  q: Float[Array, "B K G E"],
  pool: Pool,
  live: LivePages,
  layer: Int[Array, ""],
  interpret: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns the softmax of one query per head over the cached entries.

  Args:
    q: scaled queries, those of a key head together.
    pool: the device's pages.
    live: which of them hold entries; a row without any is left out.
    layer: which layer of the pool to read.
    interpret: run the kernel step by step on any device, for tests.

  Returns:
    The largest score [B, K, G], the sum of weights [B, K, G] and the weighted
    sum of values [B, K, G, E], float32; of a row without pages
    `HIDDEN_SCORE`, 0 and 0.
  """
  B, K, G, E = q.shape
  C = entries_of_page(pool)
  padded = G + -G % _SUBLANES
  # Row B takes the pages past the end of the list.
  q = jnp.pad(q, ((0, 1), (0, 0), (0, padded - G), (0, 0)))
  steps = jnp.maximum(1, -(-live.count[0] // PAGES_PER_STEP))

  def whole(*shape: int) -> pl.BlockSpec:
    return pl.BlockSpec(shape, lambda *_: (0,) * len(shape))

  def page_of(number: int, *shape: int) -> pl.BlockSpec:
    def index(step: Any, layer: Any, page: Any, *_: Any) -> tuple[Any, ...]:
      return layer[0], page[step * PAGES_PER_STEP + number], 0, 0, 0

    return pl.BlockSpec((None, None, *shape), index)

  numbers = range(PAGES_PER_STEP)
  maximum, total, weighted = pl.pallas_call(
    functools.partial(_kernel, heads=K),
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=4,
      grid=(steps,),
      in_specs=[
        whole(*q.shape),
        *(page_of(number, K, E, C) for number in numbers),
        *(page_of(number, K, C, E) for number in numbers),
      ],
      out_specs=[
        whole(B + 1, K, padded, _LANES),
        whole(B + 1, K, padded, _LANES),
        whole(B + 1, K, padded, E),
      ],
    ),
    out_shape=[
      jax.ShapeDtypeStruct((B + 1, K, padded, _LANES), jnp.float32),
      jax.ShapeDtypeStruct((B + 1, K, padded, _LANES), jnp.float32),
      jax.ShapeDtypeStruct((B + 1, K, padded, E), jnp.float32),
    ],
    # For one page of every row: how many there are depends on the data.
    cost_estimate=pl.CostEstimate(
      flops=4 * B * K * padded * E * C,
      bytes_accessed=2 * B * K * E * C * pool[0].dtype.itemsize,
      transcendentals=B * K * padded * C,
    ),
    name="decode_attention",
    interpret=interpret,
  )(
    layer.reshape(1),
    live.page,
    live.row,
    live.seen,
    q,
    *[pool[0]] * PAGES_PER_STEP,
    *[pool[1]] * PAGES_PER_STEP,
  )
  return maximum[:B, :, :G, 0], total[:B, :, :G, 0], weighted[:B, :, :G]


def _kernel(
  layer_ref: Any,
  page_ref: Any,
  row_ref: Any,
  seen_ref: Any,
  q_ref: Any,
  *refs: Any,
  heads: int,
) -> None:
  """Adds the pages of one step of the grid to the softmax of their rows."""
  del layer_ref, page_ref  # The block specifications read them.
  step = pl.program_id(0)
  k_refs, v_refs = refs[:PAGES_PER_STEP], refs[PAGES_PER_STEP:-3]
  maximum_ref, total_ref, weighted_ref = refs[-3:]

  @pl.when(step == 0)
  def _begin() -> None:
    maximum_ref[...] = jnp.full_like(maximum_ref, HIDDEN_SCORE)
    total_ref[...] = jnp.zeros_like(total_ref)
    weighted_ref[...] = jnp.zeros_like(weighted_ref)

  # No page of a step depends on another until the sums are joined, so their
  # products overlap.
  parts = []
  for number in range(PAGES_PER_STEP):
    entry = step * PAGES_PER_STEP + number
    row, seen = row_ref[entry], seen_ref[entry]
    for head in range(heads):
      part = _attend_page(
        q_ref[row, head], k_refs[number][head], v_refs[number][head], seen
      )
      parts.append((row, head, part))
  for row, head, (maximum, total, weighted) in parts:
    old = maximum_ref[row, head]
    new = jnp.maximum(old, maximum)
    keep, add = jnp.exp(old - new), jnp.exp(maximum - new)
    maximum_ref[row, head] = new
    total_ref[row, head] = total_ref[row, head] * keep + total * add
    weighted_ref[row, head] = (
      weighted_ref[row, head] * keep[:, :1] + weighted * add[:, :1]
    )


def _attend_page(
  q: jax.Array, k: jax.Array, v: jax.Array, seen: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns the softmax of queries over one page and head.

  Args:
    q: [G, E].
    k: [E, C].
    v: [C, E].
    seen: entries of the page that are filled.

  Returns:
    The largest score and the sum of weights, each [G, lanes], and the weighted
    sum of values [G, E].
  """
  scores = jnp.dot(q, k.astype(q.dtype), preferred_element_type=jnp.float32)
  entry = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
  scores = jnp.where(entry < seen, scores, HIDDEN_SCORE)
  maximum = jnp.max(scores, axis=-1, keepdims=True)
  weights = jnp.exp(scores - maximum)
  total = jnp.sum(weights, axis=-1, keepdims=True)
  weighted = jnp.dot(
    weights.astype(q.dtype),
    v.astype(q.dtype),
    preferred_element_type=jnp.float32,
  )
  lanes = (q.shape[0], _LANES)
  return (
    jnp.broadcast_to(maximum, lanes),
    jnp.broadcast_to(total, lanes),
    weighted,
  )
