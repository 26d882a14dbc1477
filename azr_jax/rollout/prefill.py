"""Chunked prefill of prompts, tool output and resumed sequences.

It runs between calls of the decode loop, and writes into pages.
"""

import functools

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from azr_jax.models import pages, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.steps import forward
from azr_jax.types import Leaf, Params


class PrefillBatch(flax.struct.PyTreeNode):
  """The next tokens of some sequences, one row each.

  Rows are split over devices in equal parts, and a sequence's pages lie on the
  device of its row.

  Attributes:
    tokens: int32 [R, S], right-padded.
    starts: int32 [R], the position of each row's first token.
    counts: int32 [R], how many tokens it has; 0 where a row is unused.
    table: int32 [R, M], the pages of each sequence, those of these tokens
      included.
  """

  tokens: Leaf
  starts: Leaf
  counts: Leaf
  table: Leaf


def prefill(
  model: transformer.Transformer,
  params: Params,
  pool: pages.Pool,
  batch: PrefillBatch,
  mesh: Mesh,
  pool_spec: PartitionSpec,
) -> pages.Pool:
  """Writes the keys and values of tokens into pages.

  Args:
    model: the decoder.
    params: its parameters.
    pool: keys and values in pages.
    batch: the tokens, and where they go.
    mesh: where rows and pages lie.
    pool_spec: how the pages are split over the mesh.
  """
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)
  per_device = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
  order = per_device(pages.by_length, in_specs=by_row, out_specs=by_row)(
    batch.starts
  )
  S = batch.tokens.shape[1]
  positions = batch.starts[:, None] + jnp.arange(S)[None, :]
  cache = pages.PagedCache(pool, batch.table, batch.starts, order)
  _, new = forward(model, params, batch.tokens, positions, cache)
  return per_device(
    pages.write_entries,
    in_specs=(pool_spec, pool_spec, by_row, by_row, by_row),
    out_specs=pool_spec,
  )(pool, new, batch.table, batch.starts, batch.counts)
