"""Both meanings of pass@k, beside counting every choice of k samples."""

import itertools
import math

import numpy as np
import pytest

from azr_jax.evals import pass_at_k

CORRECT = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]])


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_unbiased_is_the_share_of_choices_with_a_right_one(k):
  want = [
    np.mean([any(chosen) for chosen in itertools.combinations(row, k)])
    for row in CORRECT
  ]
  assert pass_at_k.unbiased(CORRECT, k) == pytest.approx(want)


def test_first_k_looks_at_the_first_alone():
  assert pass_at_k.first_k(CORRECT, 1).tolist() == [0, 0, 1, 1]
  assert pass_at_k.first_k(CORRECT, 2).tolist() == [0, 1, 1, 1]


def test_scores_name_both_with_errors_over_tasks():
  found = pass_at_k.scores(CORRECT, (1, 4, 16), "x")
  assert found["x/pass@1/unbiased"] == pytest.approx((0 + 0.25 + 0.5 + 1) / 4)
  assert found["x/pass@1/first"] == 0.5
  error = np.std([0, 0, 1, 1], ddof=1) / math.sqrt(4)
  assert found["x/pass@1/first_error"] == pytest.approx(error)
  assert not any("@16" in name for name in found)  # Four samples are too few.
