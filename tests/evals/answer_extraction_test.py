"""Extracting answers from responses."""

import pytest

from azr_jax.evals import answer_extraction


def test_only_the_answering_part_is_read():
  response = "\\boxed{1}</think> then <answer>\\boxed{2}</answer>"
  assert answer_extraction.math(response) == "2"
  assert answer_extraction.math("\\boxed{1}</think> so 3 or 4,") == "4"
  assert answer_extraction.math("nothing") is None


@pytest.mark.parametrize(
  "response, letter",
  [
    ("\\boxed{B}", "B"),
    ("\\boxed{\\text{(C)}}", "C"),
    ("I think the answer is (D).", "D"),
    ("<answer>A</answer>", "A"),
    ("B", "B"),
    ("no letter here", None),
    ("I think it is (C).", "C"),
    ("A careful look shows (B)", "B"),
    ("The answer is (C).\nLet me know if this answer helps.", "C"),
    ("The answer is: I would choose (C)", "C"),
    ("A careful look", None),
    ("Answer: B", "B"),
    ("Answer: **B**", "B"),
    ("The correct answer is **C**.", "C"),
    ("The answer is B because x", "B"),
    ("the answer is option C", "C"),
    ("The answer is $\\mathbf{D}$", "D"),
    ("B. Paris", "B"),
    ("A. Rome\nB. Paris", None),
    ("\\boxed{\\textbf{C}}", "C"),
    ("\\boxed{\\mathrm{(C)}}", "C"),
    ("The answer is I think hard to say", None),
  ],
)
def test_letters_are_found(response, letter):
  assert answer_extraction.choice(response) == letter
