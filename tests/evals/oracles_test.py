"""Which outputs are correct by EvalPlus's rules."""

import pytest

from azr_jax.evals import oracles


@pytest.mark.parametrize(
  "entry, inputs, expected, output, correct",
  [
    ("f", "1", "[1.0]", "[1.0000005]", True),
    ("f", "1", "[1.0]", "[1.00001]", False),
    ("f", "1", "0.0", "1e-17", True),
    ("f", "1", "[1, 2]", "(1, 2)", False),
    ("similar_elements", "(1,)", "(4, 5)", "[5, 4, 4]", True),
    ("similar_elements", "(1,)", "(4, 5)", "[5]", False),
    ("Diff", "[1]", "[1]", "None", False),
    ("check_str", "'a'", "True", "'match'", True),
    ("check_str", "'a'", "False", "None", True),
    ("check_str", "'a'", "False", "True", False),
    ("find_zero", "[-6, 11, -6, 1]", "1.0", "2.0", True),
    ("find_zero", "[-6, 11, -6, 1]", "1.0", "2.5", False),
    ("find_zero", "[1, 2]", "-0.5", "'x'", False),
    ("digit_distance_nums", "123, 256", "99", "7", True),
    ("surface_Area", "3, 4", "33", "35", True),
    ("surface_Area", "3, 4", "33", "34", False),
  ],
)
def test_outputs_are_judged_as_evalplus_does(
  entry, inputs, expected, output, correct
):
  assert oracles.is_correct(entry, inputs, expected, output, 0.0) == correct
