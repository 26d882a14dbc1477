"""Packing: many sequences of different length into fixed-shape rows.

The life of a sequence here:
1. prompt and completion ids are joined; targets are the ids shifted by one;
2. sequences are laid first-fit, longest first, into rows of `row_length`;
3. rows are padded to a multiple of `rows_multiple` and cut into
   micro-batches [A, rows, length].
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from azr_jax import types

AGGREGATIONS = ("token_mean", "sequence_mean", "sequence_sum", "fixed_length")


@dataclasses.dataclass(frozen=True)
class TrainingExample:
  """One training sequence.

  Attributes:
    token_ids: int32 [S + 1], prompt and completion.
    loss_mask: bool [S + 1], true on ids the model is trained to write.
    advantage: the advantage of each of those ids.
    logprobs: float32 [S + 1], sampling log-probabilities (0 on the prompt).
    repeats_from: the id from which the sequence repeats itself, or None.
  """

  token_ids: np.ndarray
  loss_mask: np.ndarray
  advantage: float
  logprobs: np.ndarray
  repeats_from: int | None = None


def from_trajectory(
  trajectory: types.Trajectory, advantage: float
) -> TrainingExample:
  """Joins a trajectory's prompt and completion."""
  prompt = np.asarray(trajectory.prompt.token_ids, np.int32)
  completion = trajectory.completion
  before = len(prompt)
  return TrainingExample(
    token_ids=np.concatenate([prompt, completion.token_ids]),
    loss_mask=np.concatenate([np.zeros(before, bool), completion.loss_mask]),
    advantage=advantage,
    logprobs=np.concatenate(
      [np.zeros(before, np.float32), completion.logprobs]
    ),
    repeats_from=(
      None
      if trajectory.repeats_from is None
      else before + trajectory.repeats_from
    ),
  )


def loss_weights(
  sequences: Sequence[TrainingExample], aggregation: str, fixed_length: int
) -> list[float]:
  """The weight of each trained token, per sequence; losses are then summed.

  token_mean: 1 / all trained tokens. sequence_mean: 1 / (sequences x own
  trained tokens). sequence_sum: 1 / sequences, so that long ones weigh more.
  fixed_length: 1 / (sequences x `fixed_length`).
  """
  counts = [int(sequence.loss_mask.sum()) for sequence in sequences]
  if aggregation == "token_mean":
    return [1.0 / max(sum(counts), 1)] * len(counts)
  if aggregation == "sequence_mean":
    return [1.0 / (len(counts) * max(count, 1)) for count in counts]
  if aggregation == "sequence_sum":
    return [1.0 / len(counts)] * len(counts)
  if aggregation == "fixed_length":
    return [1.0 / (len(counts) * fixed_length)] * len(counts)
  raise ValueError(
    f"aggregation={aggregation!r}: expected one of {AGGREGATIONS}"
  )


def assign_rows(lengths: Sequence[int], row_length: int) -> list[list[int]]:
  """First-fit decreasing bin packing; returns sequence indices per row.

  Raises:
    ValueError: a sequence is longer than a row.
  """
  rows: list[list[int]] = []
  free: list[int] = []
  for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
    length = lengths[index]
    if length > row_length:
      raise ValueError(
        f"a sequence of {length} tokens does not fit learner.row_length="
        f"{row_length}; expected at most the row length"
      )
    for row, space in enumerate(free):
      if length <= space:
        rows[row].append(index)
        free[row] -= length
        break
    else:
      rows.append([index])
      free.append(row_length - length)
  return rows


def pack(
  sequences: Sequence[TrainingExample],
  *,
  row_length: int,
  rows_multiple: int,
  aggregation: str,
  regularizer_aggregation: str = "token_mean",
  rng: np.random.Generator | None = None,
) -> types.Batch:
  """Lays the sequences into rows.

  Args:
    sequences: what to train on; each of at most `row_length` + 1 ids.
    row_length: tokens per row.
    rows_multiple: the row count is padded with empty rows to a multiple.
    aggregation: one of `AGGREGATIONS`; becomes the batch's loss weights.
    regularizer_aggregation: likewise, of entropy and KL terms.
    rng: shuffles the rows, which matters where parts of a batch are learned
      from one after another; None: those of the longest sequences come first.

  Returns:
    A batch of NumPy arrays [rows, row_length].
  """
  rows = assign_rows([len(s.token_ids) - 1 for s in sequences], row_length)
  if rng is not None:
    rows = [rows[place] for place in rng.permutation(len(rows)).tolist()]
  count = max(len(rows), 1)
  count += -count % rows_multiple
  weights = loss_weights(sequences, aggregation, row_length)
  regularizer_weights = loss_weights(
    sequences, regularizer_aggregation, row_length
  )

  def empty(dtype: type) -> np.ndarray:
    return np.zeros((count, row_length), dtype)

  batch = types.Batch(
    tokens=empty(np.int32),
    targets=empty(np.int32),
    positions=empty(np.int32),
    segment_ids=empty(np.int32),
    loss_mask=empty(np.float32),
    loss_weights=empty(np.float32),
    regularizer_weights=empty(np.float32),
    advantages=empty(np.float32),
    old_logprobs=empty(np.float32),
    repetition=empty(np.float32),
  )
  for row, members in enumerate(rows):
    start = 0
    for segment, index in enumerate(members, start=1):
      sequence = sequences[index]
      length = len(sequence.token_ids) - 1
      place = (row, slice(start, start + length))
      mask = sequence.loss_mask[1:].astype(np.float32)
      batch.tokens[place] = sequence.token_ids[:-1]
      batch.targets[place] = sequence.token_ids[1:]
      batch.positions[place] = np.arange(length)
      batch.segment_ids[place] = segment
      batch.loss_mask[place] = mask
      batch.loss_weights[place] = mask * weights[index]
      batch.regularizer_weights[place] = mask * regularizer_weights[index]
      batch.advantages[place] = mask * sequence.advantage
      batch.old_logprobs[place] = mask * sequence.logprobs[1:]
      if sequence.repeats_from is not None:
        first = start + max(sequence.repeats_from - 1, 0)
        batch.repetition[row, first : start + length] = 1
      start += length
  return batch
