"""Packing keeps every token once, in its sequence, with its weight."""

import typing

import beartype.door
import jaxtyping
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typed import present

from azr_jax import types
from azr_jax.learner import packing, update

LENGTHS = st.lists(st.integers(2, 17), min_size=1, max_size=30)


def sequences_of(lengths):
  out, start = [], 1
  for index, length in enumerate(lengths):
    ids = np.arange(start, start + length, dtype=np.int32)
    mask = np.arange(length) >= length // 2
    logprobs = (ids * 0.1).astype(np.float32)
    out.append(packing.TrainingExample(ids, mask, index + 1.0, logprobs))
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
    batch.targets[trained], present(batch.advantages)[trained], strict=True
  ):
    assert owner[int(target)] == advantage


def test_a_batch_has_the_shapes_and_dtypes_that_it_states():
  batch = packing.pack(
    sequences_of([4, 9]),
    row_length=16,
    rows_multiple=4,
    aggregation="token_mean",
  )
  fields = typing.get_type_hints(types.Batch)
  for arrays in (batch, update.to_micro_batches(batch, 2)):
    with jaxtyping.jaxtyped("context"):
      for name, hint in fields.items():
        assert beartype.door.is_bearable(getattr(arrays, name), hint), name


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


@given(LENGTHS, st.integers(1, 4))
def test_a_row_is_as_packed_attention_expects_it(
  lengths, max_sequences_per_row
):
  """Segments ascend from 1 up to the maximum, with padding at the end."""
  batch = packing.pack(
    sequences_of(lengths),
    row_length=16,
    rows_multiple=1,
    aggregation="token_mean",
    max_sequences_per_row=max_sequences_per_row,
  )
  for row in batch.segment_ids:
    ids = row[row > 0]
    assert not row[len(ids) :].any()
    assert set(np.diff(ids, prepend=0)) <= {0, 1}
    assert ids.max() <= max_sequences_per_row


@pytest.mark.parametrize(
  "aggregation, want",
  [
    ("token_mean", [1 / 6] * 2),
    ("sequence_mean", [1 / 4, 1 / 8]),
    ("fixed_length", [1 / 20] * 2),
  ],
)
def test_aggregation_weights(aggregation, want):
  # Two and four of these tokens are trained on, respectively.
  sequences = sequences_of([4, 8])
  weights = packing.loss_weights(sequences, [[0, 1]], aggregation, 10)
  assert weights == pytest.approx(want)


def responses(lengths, groups=None):
  """Returns sequences of one prompt token and a response of each length."""
  return [
    packing.TrainingExample(
      np.ones(length + 1, np.int32),
      np.arange(length + 1) > 0,
      1.0,
      np.zeros(length + 1, np.float32),
      group=None if groups is None else groups[index],
    )
    for index, length in enumerate(lengths)
  ]


# Mean response length at the end of training, read off AZR's figures 15
# (abduction), 16 (induction) and 17 (deduction).
AZR_LENGTHS = {
  ("abduction", "solve"): 3500,
  ("induction", "solve"): 1700,
  ("deduction", "solve"): 1200,
  ("abduction", "propose"): 900,
  ("induction", "propose"): 600,
  ("deduction", "propose"): 600,
}


@pytest.mark.parametrize(
  "aggregation, want",
  [
    # Eq. 9 divides each response's summed loss by its length.
    ("sequence_mean", [1 / 6] * 6),
    # The published code: a token mean in micro-batches of one task and role.
    ("group_mean", [1 / 6] * 6),
    # A single token mean: the longest solver gets 0.41, all proposers 0.25.
    ("token_mean", [length / 8500 for length in AZR_LENGTHS.values()]),
  ],
)
def test_shares_of_azr_s_roles_in_the_loss(aggregation, want):
  groups = [group for group in AZR_LENGTHS for _ in range(4)]
  # Responses within a role also differ in length.
  spread = [0.5, 0.8, 1.2, 1.5] * len(AZR_LENGTHS)
  lengths = [
    round(AZR_LENGTHS[group] * factor / 10)
    for group, factor in zip(groups, spread, strict=True)
  ]
  batch = packing.pack(
    responses(lengths, groups),
    row_length=600,
    rows_multiple=1,
    aggregation=aggregation,
  )
  weights = packing.loss_weights(
    responses(lengths, groups), [], aggregation, 600
  )
  fractions = {group: 0.0 for group in AZR_LENGTHS}
  for group, length, weight in zip(groups, lengths, weights, strict=True):
    fractions[group] += length * weight
  assert list(fractions.values()) == pytest.approx(want, abs=1e-3)
  assert batch.loss_weights.sum() == pytest.approx(1.0, rel=1e-5)
  proposers = [s for (_, role), s in fractions.items() if role == "propose"]
  wanted = 2100 / 8500 if aggregation == "token_mean" else 1 / 2
  assert sum(proposers) == pytest.approx(wanted, abs=1e-3)


def test_eq_9_and_the_published_code_differ_inside_of_a_role():
  """Both give a role the same share; the code weights its tokens equally."""
  sequences = responses([2, 6, 3], ["a", "a", "b"])
  by_paper = packing.loss_weights(sequences, [], "sequence_mean", 0)
  assert by_paper == pytest.approx([1 / 6, 1 / 18, 1 / 9])
  by_code = packing.loss_weights(sequences, [], "group_mean", 0)
  assert by_code == pytest.approx([1 / 16, 1 / 16, 1 / 6])


def test_group_mean_over_the_micro_batches_of_the_published_code():
  """A mean of each part's token mean; groups may be interleaved."""
  lengths = [2, 6, 3, 5, 7, 1]
  sequences = responses(lengths, ["a", "a", "b", "a", "a", "a"])
  parts = packing.in_parts(sequences, 2)
  weights = packing.loss_weights(parts, [], "group_mean", 0)
  want = [[2, 6], [5, 7], [1], [3]]  # tokens of each part, four parts in all
  by_part = {length: 4 * sum(part) for part in want for length in part}
  assert weights == pytest.approx([1 / by_part[length] for length in lengths])
  whole = packing.in_parts(sequences, 5)
  assert packing.loss_weights(whole, [], "group_mean", 0) == pytest.approx(
    packing.loss_weights(sequences, [], "group_mean", 0)
  )


@pytest.mark.parametrize(
  "aggregation, want",
  [
    # ORZ, eq. 2 and 3: the mean over trajectories of the sum over tokens.
    ("sequence_sum", [[2 / 4, 4 / 4], [6 / 4], [8 / 4]]),
    # ORZ's published code: every packed row has the same weight.
    ("row_mean", [[2 / 18, 4 / 18], [6 / 18], [8 / 24]]),
    # Every token has the same weight, which matches neither.
    ("token_mean", [[2 / 20, 4 / 20], [6 / 20], [8 / 20]]),
  ],
)
def test_weight_of_a_sequence_by_orz_s_paper_and_code(aggregation, want):
  lengths = [2, 4, 6, 8]
  rows = [[0, 1], [2], [3]]
  weights = packing.loss_weights(responses(lengths), rows, aggregation, 8)
  sums = [[lengths[i] * weights[i] for i in row] for row in rows]
  flat = [x for row in want for x in row]
  assert [x for row in sums for x in row] == pytest.approx(flat)


def test_a_row_weighs_the_same_however_full_it_is():
  sequences = responses([2, 4, 6, 8])
  batch = packing.pack(
    sequences, row_length=8, rows_multiple=4, aggregation="row_mean"
  )
  fractions = batch.loss_weights.sum(axis=1)
  # Three rows of 8, 6 + 2 and 4 tokens, and an empty one.
  np.testing.assert_allclose(fractions, [1 / 3, 1 / 3, 1 / 3, 0.0], rtol=1e-5)


@pytest.mark.parametrize("aggregation", packing.AGGREGATIONS)
def test_a_response_without_tokens_breaks_no_aggregation(aggregation):
  sequences = responses([0, 3], ["a", "b"])
  weights = packing.loss_weights(sequences, [[0, 1]], aggregation, 5)
  assert np.isfinite(weights).all() and weights[1] > 0


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
