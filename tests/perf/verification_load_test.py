"""The paper-sized step asks for what the paper's step asks for."""

import pytest

from azr_jax.perf import verification_load
from azr_jax.tasks.programs.task import Triplet

TRIPLETS = [
  Triplet(f"def f(x):\n  return x * {n}", str(n + 1), str(n * (n + 1)))
  for n in range(192)
]


def test_half_of_the_answers_and_the_training_answers_are_right(executor):
  before = executor.counters()
  step = verification_load.measure(executor, TRIPLETS)
  assert step.answers == 1536 + 192
  assert step.right == 1536 // 2 + 192
  programs = executor.counters()["programs"] - before["programs"]
  # A verdict for each proposal, each program of induction, and once for all
  # the inputs that an abduction task is given.
  assert programs == 192 + 64 * (8 + 1) + 64 * (1 + 1)


def test_too_few_programs_are_named(executor):
  with pytest.raises(ValueError, match="191 triplets; expected at least 192"):
    verification_load.measure(executor, TRIPLETS[1:])
