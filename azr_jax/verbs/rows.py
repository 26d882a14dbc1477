"""Packs data into rows of a few fixed shapes, and takes results apart again."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import flax.struct
import jax
import numpy as np
from jaxtyping import Float32

from azr_jax import types
from azr_jax.learner import packing
from azr_jax.types import Leaf
from azr_jax.verbs import losses
from azr_jax.verbs.data import Datum

# Each row length is this many times shorter than the next.
_FACTOR = 4
_SHORTEST = 128
# Batches that one program runs after each other.
_STACKED = 8


class LossRows(types.Rows):
  """Rows of packed data.

  Attributes:
    inputs: the inputs of the loss by name, of the shape of `targets`; 0 in
      padding.
  """

  inputs: dict[str, Float32[Leaf, "..."]] = flax.struct.field(
    default_factory=dict
  )


@dataclasses.dataclass(frozen=True)
class RowSpan:
  """Where a datum is in a batch.

  Attributes:
    index: the index of the datum.
    row: the row that holds it.
    start: its first column.
    stop: one past its last column.
  """

  index: int
  row: int
  start: int
  stop: int


@dataclasses.dataclass(frozen=True)
class RowShapes:
  """The shapes that programs are compiled for.

  Attributes:
    rows: by the length of a row, the numbers of rows of a batch; both ascend.
      Rows are split over devices, so these are multiples of a number of them.
    max_sequences_per_row: maximum number of sequences per row.
    width: D of the decoder.
  """

  rows: Mapping[int, tuple[int, ...]]
  max_sequences_per_row: int
  width: int

  @property
  def longest(self) -> int:
    """The length of the longest row."""
    return max(self.rows)

  def length_for(self, lengths: Sequence[int]) -> int:
    """Returns the length of rows that costs the least.

    Short rows cost less attention, long ones have less padding.

    Args:
      lengths: the tokens of each sequence, none longer than the longest row.
    """
    fitting = [one for one in self.rows if one >= max(lengths)]
    return min(fitting, key=lambda length: self._cost(length, lengths))

  def _cost(self, length: int, lengths: Sequence[int]) -> int:
    """Estimates the cost of packing sequences into rows of a length."""
    rows = max(
      -(-sum(lengths) // length),
      -(-len(lengths) // self.max_sequences_per_row),
      # No two of these share a row.
      sum(2 * one > length for one in lengths),
    )
    counts = self.rows[length]
    full, left = divmod(rows, counts[-1])
    rows = full * counts[-1]
    if left:
      rows += next(count for count in counts if count >= left)
    # A layer has about 12 D^2 weights, and a token attends to its whole row
    # with 2 D products each.
    return rows * length * (6 * self.width + length)


def shapes(
  rows: int,
  row_length: int,
  multiple: int,
  max_sequences_per_row: int,
  width: int,
) -> RowShapes:
  """Returns the shapes of batches with the tokens of `rows` longest rows.

  Args:
    rows: number of rows of the longest kind in a batch.
    row_length: the longest row.
    multiple: the number of devices that rows are split over.
    max_sequences_per_row: see `RowShapes`.
    width: D of the decoder.
  """
  lengths = [row_length]
  while lengths[0] // _FACTOR >= _SHORTEST:
    lengths.insert(0, lengths[0] // _FACTOR)
  most = [rows * (row_length // length) for length in lengths]
  return RowShapes(
    {
      length: tuple(sorted({multiple, count + -count % multiple}))
      for length, count in zip(lengths, most, strict=True)
    },
    max_sequences_per_row,
    width,
  )


def pack(
  data: Sequence[Datum], loss: str, shapes: RowShapes
) -> Iterator[tuple[LossRows, list[RowSpan]]]:
  """Yields batches of some data, and where each datum is.

  Args:
    data: the sequences, checked.
    loss: a key of `losses.LOSSES`, whose inputs are packed.
    shapes: the shapes of batches.
  """
  names = losses.find(loss).inputs
  # Batches have one number of targets per position.
  by_shape: dict[tuple[int, ...], list[int]] = {}
  for index, datum in enumerate(data):
    by_shape.setdefault(datum.targets.shape[1:], []).append(index)
  for inner, indices in by_shape.items():
    lengths = [len(data[index].tokens) for index in indices]
    length = shapes.length_for(lengths)
    rows = packing.assign_rows(lengths, length, shapes.max_sequences_per_row)
    counts = shapes.rows[length]
    most = counts[-1]
    for first in range(0, len(rows), most):
      some = rows[first : first + most]
      count = next(n for n in counts if n >= len(some))
      members = [[indices[i] for i in row] for row in some]
      yield _batch(data, names, members, (count, length), inner)


def stack(
  batches: Iterator[tuple[LossRows, list[RowSpan]]],
) -> Iterator[tuple[LossRows, list[list[RowSpan]]]]:
  """Yields batches of the same shape together, with an axis A before theirs.

  A is 1 or `_STACKED`, so that few programs are compiled; then the last batches
  may be empty.

  Args:
    batches: batches, and where each datum is.
  """
  for _, group in itertools.groupby(batches, lambda one: one[0].targets.shape):
    while some := list(itertools.islice(group, _STACKED)):
      arrays = [batch for batch, _ in some]
      if len(some) > 1:
        empty = jax.tree.map(np.zeros_like, arrays[0])
        arrays += [empty] * (_STACKED - len(some))
      stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *arrays)
      yield stacked, [places for _, places in some]


def _batch(
  data: Sequence[Datum],
  names: Sequence[str],
  members: Sequence[Sequence[int]],
  shape: tuple[int, int],
  inner: tuple[int, ...],
) -> tuple[LossRows, list[RowSpan]]:
  """Returns a batch whose rows have some data.

  Args:
    data: all data.
    names: the inputs to pack.
    members: the indices of the data of each row.
    shape: rows and tokens per row.
    inner: (K,) if positions have several targets, else ().
  """

  def zeros(*shape: int, dtype: type = np.int32) -> Any:
    return np.zeros(shape, dtype)

  inputs = {name: zeros(*shape, *inner, dtype=np.float32) for name in names}
  batch = LossRows(
    tokens=zeros(*shape),
    targets=zeros(*shape, *inner),
    positions=zeros(*shape),
    segment_ids=zeros(*shape),
    inputs=inputs,
  )
  places = []
  for row, own in enumerate(members):
    start = 0
    for segment, index in enumerate(own, start=1):
      datum = data[index]
      stop = start + len(datum.tokens)
      batch.tokens[row, start:stop] = datum.tokens
      batch.targets[row, start:stop] = datum.targets
      batch.positions[row, start:stop] = np.arange(len(datum.tokens))
      batch.segment_ids[row, start:stop] = segment
      for name in names:
        inputs[name][row, start:stop] = datum.inputs[name]
      places.append(RowSpan(index, row, start, stop))
      start = stop
  return batch, places
