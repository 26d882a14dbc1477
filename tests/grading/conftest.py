"""The pool of the graders' tests."""

import pytest

from azr_jax.executor import Executor
from azr_jax.grading.mathematics import grader, numbers


@pytest.fixture(scope="session")
def executor():
  """Starts a pool with a short time limit, because some answers never end."""
  with Executor(workers=2, timeout_s=1.0, memory_mb=512) as pool:
    yield pool


@pytest.fixture(scope="module")
def equal(executor):
  """Returns a function that says whether rules find two answers the same."""

  def equal_by_rules(reference, answer, tolerance=numbers.EXACT):
    graded = grader.submit(executor, reference, answer, "rules", tolerance)
    return bool(graded.result())

  return equal_by_rules
