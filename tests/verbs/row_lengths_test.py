"""The shapes of batches, and which data they hold."""

import numpy as np
import pytest

from azr_jax.verbs import rows
from azr_jax.verbs.data import Datum

SHAPES = rows.shapes(4, 2048, 1, 32, width=64)


def datum(length):
  ids = np.arange(length, dtype=np.int32)
  return Datum(ids, ids + 1, {"weights": np.ones(length, np.float32)})


def test_batches_of_all_lengths_have_the_same_number_of_tokens():
  assert SHAPES.rows == {128: (1, 64), 512: (1, 16), 2048: (1, 4)}
  assert rows.shapes(3, 500, 4, 32, 64).rows == {500: (4,)}
  assert SHAPES.longest == 2048


@pytest.mark.parametrize(
  "lengths, width, want",
  [
    ([100] * 64, 64, 128),  # Attention would cost most in longer rows.
    ([129] * 64, 64, 512),
    ([600, 40], 64, 2048),
    ([300] * 64, 64, 512),  # Padding costs less than attention,
    ([300] * 64, 4096, 2048),  # except in a wide model.
    ([60] * 8, 4096, 512),  # 4 rows of 128 would be padded to 64.
  ],
)
def test_rows_have_the_length_that_costs_the_least(lengths, width, want):
  shapes = rows.shapes(4, 2048, 1, 32, width)
  assert shapes.length_for(lengths) == want


def test_every_datum_is_in_one_place():
  drawn = np.random.default_rng(0)
  data = [datum(int(n)) for n in drawn.integers(1, 700, 90)]
  seen = []
  for batch, places in rows.pack(data, "cross_entropy", SHAPES):
    count, length = batch.tokens.shape
    assert count in SHAPES.rows[length]
    filled = np.zeros(batch.tokens.shape, bool)
    for place in places:
      ids = data[place.index].tokens
      where = (place.row, slice(place.start, place.stop))
      np.testing.assert_array_equal(batch.tokens[where], ids)
      np.testing.assert_array_equal(batch.positions[where], ids)
      assert len({*batch.segment_ids[where]}) == 1 and not filled[where].any()
      filled[where] = True
      seen.append(place.index)
    np.testing.assert_array_equal(batch.segment_ids > 0, filled)
    np.testing.assert_array_equal(batch.inputs["weights"] > 0, filled)
  assert sorted(seen) == [*range(90)]
  packed = [*rows.pack(data, "cross_entropy", SHAPES)]
  stacked = [*rows.stack(iter(packed))]
  assert [p for _, places in stacked for p in places] == [p for _, p in packed]
  for batches, places in stacked:
    assert len(batches.tokens) == (1 if len(places) == 1 else 8)
    assert not batches.segment_ids[len(places) :].any()


def test_only_batches_of_one_shape_are_stacked():
  data = [datum(100)] * 641
  several = [
    len(places)
    for _, places in rows.stack(rows.pack(data, "cross_entropy", SHAPES))
  ]
  assert several == [8, 2, 1]
