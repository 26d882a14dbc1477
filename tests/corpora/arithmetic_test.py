"""Arithmetic conversations are correct in every solution style."""

import re

import numpy as np
import pytest
import training

from azr_jax.corpora import arithmetic
from azr_jax.grading.mathematics import extraction
from azr_jax.systems import text_metrics
from azr_jax.tasks.mathematics import prompts, sources
from azr_jax.tasks.mathematics.problem import Problem

SUMS = "gym:chain_sum(min_terms=3, max_terms=4, max_digits=2)"

training.needs("reasoning_gym", extra="gym")


@pytest.mark.parametrize("style", arithmetic.SOLUTION_STYLES)
def test_responses_to_sums_are_correct(style):
  for problem in sources.read(SUMS, 40):
    response = arithmetic.write_response(problem, style)
    box = extraction.find_answer(response)
    has_box = style in ("chain_of_thought", "guessed")
    assert box == (problem.answer if has_box else None)
    for left, right in re.findall(r"(\S+)=(-?\d+)", response):
      assert eval(left) == int(right)
    assert prompts.well_formatted(response) == has_box
    repeats = text_metrics.repetition_onset(np.array([*response.encode()]))
    assert (repeats is not None) == (style == "circular")


def test_a_wrong_reference_answer_is_refused():
  with pytest.raises(ValueError, match="sum"):
    arithmetic.write_response(Problem("2 + 2 =", "5"), "chain_of_thought")


def test_solution_styles_are_mixed_by_their_weights():
  settings = arithmetic.ArithmeticSettings(
    seed=0, count=300, data=SUMS, style_weights=(1.0, 0.0, 1.0, 0.0)
  )
  responses = [text for _, text in arithmetic.conversations(**vars(settings))]
  boxed = sum("boxed" in text for text in responses) / len(responses)
  assert 0.4 < boxed < 0.6
  assert all("=" in text for text in responses)
