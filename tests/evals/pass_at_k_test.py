"""pass@k against enumeration of all subsets of k samples."""

import itertools
import math

import numpy as np
import pytest

from azr_jax.evals import pass_at_k

CORRECT = np.array(
  [[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]], bool
)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_unbiased_is_the_fraction_of_subsets_with_a_correct_sample(k):
  expected = [
    np.mean([any(subset) for subset in itertools.combinations(row, k)])
    for row in CORRECT
  ]
  assert pass_at_k.unbiased(CORRECT, k) == pytest.approx(expected)


def test_first_k_reads_only_the_first_samples():
  assert pass_at_k.first_k(CORRECT, 1).tolist() == [0, 0, 1, 1]
  assert pass_at_k.first_k(CORRECT, 2).tolist() == [0, 1, 1, 1]


def test_scores_are_means_with_errors_over_items():
  metrics = pass_at_k.scores(CORRECT, (1, 4, 16), "x")
  assert metrics["x/pass@1/unbiased"] == pytest.approx((0 + 0.25 + 0.5 + 1) / 4)
  assert metrics["x/pass@1/first"] == 0.5
  error = np.std([0, 0, 1, 1], ddof=1) / math.sqrt(4)
  assert metrics["x/pass@1/first_stderr"] == pytest.approx(error)
  assert not any("@16" in name for name in metrics)  # only four samples
