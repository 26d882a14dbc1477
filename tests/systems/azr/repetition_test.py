"""BLEU and clusters of proposals, against values computed by hand."""

import math

import pytest

from azr_jax.systems.azr.extensions import repetition
from azr_jax.tasks.programs.task import InductionTask, Triplet


@pytest.mark.parametrize(
  "candidate, reference, want",
  [
    ("a b c d e", "a b c d e", 1.0),
    # Precisions 3/4, 2/3 and 1/2; the only 4-gram does not match.
    ("a b c d", "a b c e", (3 / 4 * 2 / 3 * 1 / 2 * 0.1) ** 0.25),
    # A token counts at most as often as in the reference.
    ("a a a a", "a b", (1 / 4 * 0.1 / 3 * 0.1 / 2 * 0.1) ** 0.25),
    # The candidate is half as long: exp(1 - 8 / 4).
    ("a b c d", "a b c d e f g h", math.exp(-1.0)),
    # Two tokens only have n-grams of orders 1 and 2.
    ("a b", "a b", 1.0),
    ("f(x)", "f(y)", (3 / 4 * 1 / 3 * 0.1 / 2 * 0.1) ** 0.25),
    ("", "", 1.0),
    ("", "a", 0.0),
  ],
)
def test_bleu(candidate, reference, want):
  assert repetition.bleu(candidate, reference) == pytest.approx(want)


def test_texts_that_are_near_are_one_cluster():
  near = ["a b c d e f g h", "a b c d e f g i", "a b c d e f g h"]
  assert repetition.cluster_sizes([*near, "x y z"], 0.5) == [3, 3, 3, 1]
  # Only equal texts have distance 0.
  assert repetition.cluster_sizes([*near, "x y z"], 0.0) == [2, 1, 2, 1]
  assert repetition.cluster_sizes(["a", "b"], 1.0) == [2, 2]
  assert repetition.cluster_sizes(["a"], 0.5) == [1]
  assert repetition.cluster_sizes([], 0.5) == []


def test_a_chain_of_texts_is_no_cluster():
  """The ends of a chain are far apart, and average linkage counts them."""
  words = [chr(ord("a") + index) for index in range(17)]
  texts = [" ".join(words[first : first + 10]) for first in (0, 3, 7)]
  distances = [
    1 - (repetition.bleu(x, y) + repetition.bleu(y, x)) / 2
    for x, y in ((texts[0], texts[1]), (texts[1], texts[2]))
  ]
  assert max(distances) < 0.5
  assert repetition.cluster_sizes(texts, 0.5) == [2, 2, 1]


def test_clusters_do_not_depend_on_the_order():
  texts = ["a b c d e f", "a b c d e g", "p q r s t", "a b c h i j", "p q r s"]
  sizes = dict(zip(texts, repetition.cluster_sizes(texts, 0.5), strict=True))
  turned = texts[::-1]
  again = dict(zip(turned, repetition.cluster_sizes(turned, 0.5), strict=True))
  assert again == sizes


def triplet(body):
  return Triplet(f"def f(x):\n  return {body}", "1", "2")


def test_a_penalty_is_the_fraction_of_the_cluster_among_all_of_the_type():
  proposed = [
    ("deduction", triplet("x + 1")),
    ("deduction", None),
    ("deduction", triplet("x + 1")),
    ("deduction", triplet("sorted(set(str(x)))[::-1] * 3 or [None, 'abc']")),
    ("abduction", triplet("x + 1")),
    ("induction", InductionTask("", ("1", "2"), ("1", "2"), "adds one")),
  ]
  lost = repetition.penalties(proposed, penalty=0.5, distance=0.3)
  assert lost == [0.25, 0.0, 0.25, 0.125, 0.5, 0.5]
  assert repetition.penalties(proposed, 0.0, 0.3) == [0.0] * 6
