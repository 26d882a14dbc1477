"""Lengths and starts of the sequences in packed rows, from segments."""

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Int32

from azr_jax.types import Leaf


class Spans(flax.struct.PyTreeNode):
  """Lengths and starts of the sequences of all rows, as one list.

  The lists have room for B x `max_sequences_per_row` sequences. Existing
  sequences come first.

  Attributes:
    lengths: tokens of each sequence; 0 past the last sequence.
    starts: the first token of each sequence, counted through all rows. Past the
      last sequence, the total number of tokens.
  """

  lengths: Int32[Leaf, " sequences"]
  starts: Int32[Leaf, " sequences+1"]


def has_spans(
  segments: Int[Array, "B S"], max_sequences_per_row: int
) -> Bool[Array, " B"]:
  """Returns whether each row satisfies the assumptions of `sequence_spans`."""
  last = jnp.iinfo(segments.dtype).max
  in_order = jnp.where(segments > 0, segments, last)
  ascends = jnp.all(in_order[:, 1:] >= in_order[:, :-1], axis=1)
  return ascends & jnp.all(segments <= max_sequences_per_row, axis=1)


def sequence_spans(
  segments: Int[Array, "B S"], max_sequences_per_row: int
) -> Spans:
  """Returns lengths and starts of the sequences in packed rows.

  Args:
    segments: the segment of each token, from 1 to `max_sequences_per_row`,
      ascending along the row, and 0 for padding at its end.
    max_sequences_per_row: sizes the result, with B.
  """
  B, S = segments.shape
  numbers = jnp.arange(1, max_sequences_per_row + 1)
  lengths = jnp.sum(
    segments[:, None] == numbers[None, :, None], axis=2, dtype=jnp.int32
  )
  first = jnp.arange(B, dtype=jnp.int32)[:, None] * S
  starts = first + jnp.cumsum(lengths, axis=1) - lengths
  lengths, starts = lengths.reshape(-1), starts.reshape(-1)
  order = jnp.argsort(lengths == 0, stable=True)
  lengths = lengths[order]
  starts = jnp.where(lengths > 0, starts[order], B * S)
  return Spans(lengths, jnp.append(starts, B * S).astype(jnp.int32))
