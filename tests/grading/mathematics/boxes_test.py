"""Finding the box that holds the answer of a response."""

import pytest

from azr_jax.grading.mathematics import extraction


@pytest.mark.parametrize(
  "text, box",
  [
    (r"so \boxed{5}", "5"),
    (r"\boxed{1} then \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
    (r"\boxed{\boxed{7}}", r"\boxed{7}"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}"),
    (r"\boxed{4} and \boxed{cut off", "4"),
    (r"\fbox{8} \framebox{9}", "9"),
    (r"\boxed 6$", "6"),
    ("no box", None),
    (r"\boxed{", None),
    (r"\boxed{" * 3000, None),
    (r"\boxed{1} \boxed{\boxed{2}", "2"),
  ],
)
def test_the_last_balanced_box_is_found(text, box):
  assert extraction.last_boxed(text) == box


def test_only_the_last_closed_answer_tag_counts():
  tagged = r"<answer>\boxed{1}</answer> <answer>\boxed{2}</answer>"
  assert extraction.find_answer(tagged) == "2"
  assert extraction.find_answer(tagged + r" <answer>\boxed{3}") == "2"
  assert extraction.find_answer(r"\boxed{3}") is None
  assert extraction.find_answer(r"<answer>3</answer> \boxed{3}") is None
  assert extraction.find_answer(r"\boxed{3}", "anywhere") == "3"
