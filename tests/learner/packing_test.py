"""Packing keeps every token once, in its sequence, with its weight."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.learner import packing

LENGTHS = st.lists(st.integers(2, 17), min_size=1, max_size=30)


def sequences_of(lengths):
  out, start = [], 1
  for index, length in enumerate(lengths):
    ids = np.arange(start, start + length, dtype=np.int32)
    mask = np.arange(length) >= length // 2
    out.append(packing.TrainingExample(ids, mask, index + 1.0, ids * 0.1))
    start += length
  return out


@given(LENGTHS)
def test_every_target_appears_once_beside_its_input(lengths):
  sequences = sequences_of(lengths)
  batch = packing.pack(
    sequences, row_length=16, rows_multiple=4, aggregation="token_mean"
  )
  assert len(batch.tokens) % 4 == 0
  live = batch.segment_ids > 0
  want = [(a, a + 1) for s in sequences for a in s.token_ids[:-1]]
  got = zip(batch.tokens[live], batch.targets[live], strict=True)
  assert sorted(got) == sorted(want)
  trained = batch.loss_mask > 0
  ids = {int(i) for s in sequences for i in s.token_ids[1:][s.loss_mask[1:]]}
  assert set(batch.targets[trained].tolist()) == ids
  assert (batch.positions[live] < 16).all()
  owner = {int(i): s.advantage for s in sequences for i in s.token_ids}
  for target, advantage in zip(
    batch.targets[trained], batch.advantages[trained], strict=True
  ):
    assert owner[int(target)] == advantage


@given(LENGTHS)
def test_segments_are_contiguous_and_count_from_zero(lengths):
  batch = packing.pack(
    sequences_of(lengths),
    row_length=16,
    rows_multiple=1,
    aggregation="token_mean",
  )
  for row in range(len(batch.tokens)):
    for segment in set(batch.segment_ids[row]) - {0}:
      positions = batch.positions[row][batch.segment_ids[row] == segment]
      np.testing.assert_array_equal(positions, np.arange(len(positions)))


@pytest.mark.parametrize(
  "aggregation, want",
  [
    ("token_mean", [1 / 6] * 2),
    ("sequence_mean", [1 / 4, 1 / 8]),
    ("fixed_length", [1 / 20] * 2),
  ],
)
def test_aggregation_weights(aggregation, want):
  # Two and four of these tokens are trained on.
  sequences = sequences_of([4, 8])
  assert packing.loss_weights(sequences, aggregation, 10) == pytest.approx(want)


def test_a_sequence_longer_than_a_row_is_named():
  with pytest.raises(ValueError, match="row_length=8"):
    packing.pack(
      sequences_of([12]),
      row_length=8,
      rows_multiple=1,
      aggregation="token_mean",
    )


def test_shuffled_rows_hold_the_same_sequences():
  sequences = [
    packing.TrainingExample(
      np.full(length, length, np.int32),
      np.ones(length, bool),
      0.5,
      np.zeros(length, np.float32),
    )
    for length in range(4, 12)
  ]
  settings = dict(row_length=12, rows_multiple=4, aggregation="token_mean")
  plain = packing.pack(sequences, **settings)
  shuffled = packing.pack(sequences, **settings, rng=np.random.default_rng(0))
  assert (plain.tokens != shuffled.tokens).any()
  assert sorted(map(tuple, plain.tokens.tolist())) == sorted(
    map(tuple, shuffled.tokens.tolist())
  )
  live = shuffled.segment_ids.any(axis=1)
  assert live[: live.sum()].all()  # Empty rows stay last.
