"""`experiments/elicitation/gradients.py`: unbiased against noise."""

import numpy as np
import pytest

from experiments.elicitation import gradients
from experiments.elicitation.gradients import Moments

SIZE, COUNT, BLOCKS = 200, 400, 8
NOISE = 8.0


def blocks(expected, noise, true=None):
  """Returns the blocks of gradients `expected` + `noise` [COUNT, SIZE]."""
  found = [Moments() for _ in range(BLOCKS)]
  for index in range(COUNT):
    own = expected + noise[index]
    other = None if true is None else true[index]
    found[index * BLOCKS // COUNT].add(own, other)
  return found


@pytest.fixture
def drawn():
  rng = np.random.default_rng(0)
  aim = np.zeros(SIZE)
  aim[0] = 1.0
  return aim, NOISE * rng.normal(size=(2, COUNT, SIZE)) / np.sqrt(SIZE)


def test_shared_noise_does_not_count_as_alignment(drawn):
  aim, (noise, _) = drawn
  expected = np.zeros(SIZE)
  expected[:2] = 0.6, 0.8
  true = blocks(aim, noise, aim + noise)
  own = blocks(expected, noise, aim + noise)
  found = gradients.with_errors(own, true, shared=True)
  assert found["alignment"] == pytest.approx(0.6, abs=0.1)
  assert found["signal"] == pytest.approx(1 / NOISE, rel=0.1)
  cosine = np.mean(
    [(expected + n)[0] / np.linalg.norm(expected + n) for n in noise]
  )
  assert found["progress"] == pytest.approx(cosine, abs=0.02)
  # Naively, the means of both look much more alike than 0.6.
  means = [
    np.sum([np.asarray(block.total) for block in one], axis=0)
    for one in (own, true)
  ]
  naive = np.dot(means[0], means[1]) / np.prod(
    [np.linalg.norm(mean) for mean in means]
  )
  assert naive > 0.63


def test_other_batches_have_no_noise_in_common(drawn):
  aim, (noise, other) = drawn
  true = blocks(aim, noise, aim + noise)
  found = gradients.with_errors(blocks(-aim, other), true, shared=False)
  assert found["alignment"] == pytest.approx(-1.0, abs=0.1)


def test_errors_are_those_of_repeated_measurements():
  rng = np.random.default_rng(1)
  aim = np.zeros(SIZE)
  aim[0] = 1.0
  values, errors = [], []
  for _ in range(20):
    noise, other = NOISE * rng.normal(size=(2, COUNT, SIZE)) / np.sqrt(SIZE)
    true = blocks(aim, noise, aim + noise)
    found = gradients.with_errors(blocks(aim, other), true, shared=False)
    values.append(found["alignment"])
    errors.append(found["alignment_error"])
  assert np.mean(errors) == pytest.approx(np.std(values), rel=0.5)


def test_a_variant_without_signal_has_none(drawn):
  aim, (noise, other) = drawn
  true = blocks(aim, noise, aim + noise)
  found = gradients.numbers(blocks(np.zeros(SIZE), other), true, shared=False)
  assert abs(found["progress"]) < 3 / np.sqrt(SIZE * COUNT / NOISE)
