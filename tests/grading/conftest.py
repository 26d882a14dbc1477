"""Fixtures of the grader tests."""

import pytest

from azr_jax.executor import Executor
from azr_jax.grading.mathematics import grader, numbers


@pytest.fixture(scope="session")
def executor():
  """Starts an executor with a short time limit: some answers never finish."""
  with Executor(workers=1, timeout_s=1.0, memory_mb=512) as pool:
    yield pool


@pytest.fixture(scope="module")
def equal(executor):
  """Returns a function that compares two answers by rules alone."""

  def equal_by_rules(reference, answer, tolerance=numbers.EXACT):
    graded = grader.submit(executor, reference, answer, "rules", tolerance)
    return bool(graded.result())

  return equal_by_rules
