"""The verification load has the size of the AZR paper's step."""

import pytest

from azr_jax.lab.bench import verification_load
from azr_jax.tasks.programs.task import Triplet

TRIPLETS = [
  Triplet(f"def f(x):\n  return x * {n}", str(n + 1), str(n * (n + 1)))
  for n in range(192)
]


def test_half_of_the_learnability_answers_are_correct(executor):
  before = executor.counters()
  step = verification_load.measure(executor, TRIPLETS)
  assert step.answers == 1536 + 192
  assert step.correct == 1536 // 2 + 192
  programs = executor.counters()["programs"] - before["programs"]
  # One program runs per proposal, induction answer and distinct input. Four of
  # the eight inputs answered to an abduction task equal its own, as does the
  # training answer.
  assert programs == 192 + 64 * (8 + 1) + 64 * (5 + 1)


@pytest.mark.slow
def test_answers_that_never_end_are_wrong_ones(executor):
  before = executor.counters()
  step = verification_load.measure(executor, TRIPLETS, endless=2)
  assert step.correct == 1536 // 2 + 192
  assert executor.counters()["timeout"] == before["timeout"] + 2


def test_too_few_programs_are_named(executor):
  with pytest.raises(ValueError, match="191 triplets; expected at least 192"):
    verification_load.measure(executor, TRIPLETS[1:])
