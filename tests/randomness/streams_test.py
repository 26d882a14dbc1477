"""Random generators of the host."""

import itertools

import numpy as np
import pytest

from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose

# NumPy seeds (1,), (1, 0) and (1, 0, 0) alike, and (2**32,) like (0, 1).
NUMBERS = ((), (0,), (0, 0), (1,), (1, 0), (1, 0, 0), (0, 1), (11,), (2**32,))


def draw(*parts):
  return streams.generator(*parts).integers(1 << 62, size=2).tolist()


def test_every_seed_purpose_and_tuple_of_numbers_has_its_own_stream():
  drawn = [
    tuple(draw(seed, purpose, *numbers))
    for seed, purpose, numbers in itertools.product(
      (0, 1, 10, 2**32), Purpose, NUMBERS
    )
  ]
  assert len({*drawn}) == len(drawn)
  assert len({first for first, _ in drawn}) == len(drawn)


def test_a_stream_is_repeated():
  assert draw(3, Purpose.PACKING, 5) == draw(3, Purpose.PACKING, 5)
  assert draw(3, Purpose.PACKING, 5) == draw(3, 201, np.int64(5))


@pytest.mark.parametrize("count", [2, 7])
def test_streams_of_neighbouring_steps_are_independent(count):
  steps = 4000
  first = [
    streams.generator(0, Purpose.PACKING, step).integers(count)
    for step in range(steps)
  ]
  pairs = np.bincount(
    count * np.array(first[1:]) + first[:-1], minlength=count**2
  )
  # The chi-squared statistic has mean and standard deviation d and sqrt(2 d).
  expected, freedom = (steps - 1) / count**2, count**2 - 1
  statistic = np.sum((pairs - expected) ** 2 / expected)
  assert statistic < freedom + 5 * np.sqrt(2 * freedom)
