"""`experiments/elicitation/gradient_moments.py`: unbiased against noise."""

import numpy as np
import pytest

from experiments.elicitation import gradient_moments
from experiments.elicitation.gradient_moments import Moments

SIZE, COUNT, BLOCKS = 200, 400, 8
NOISE = 8.0


def blocks(expected, noise, true=None):
  """Returns the blocks of gradients `expected` + `noise` [COUNT, SIZE]."""
  found = [Moments() for _ in range(BLOCKS)]
  for index in range(COUNT):
    own = expected + noise[index]
    other = None if true is None else true[index]
    found[index * BLOCKS // COUNT].add(own, other, {"number": index})
  return found


def unit(*values):
  return np.concatenate([values, np.zeros(SIZE - len(values))])


def draw(rng):
  return NOISE * rng.normal(size=(2, COUNT, SIZE)) / np.sqrt(SIZE)


@pytest.fixture
def drawn():
  return draw(np.random.default_rng(0))


def test_shared_noise_does_not_count_as_alignment(drawn):
  aim, expected, noise = unit(1.0), unit(0.6, 0.8), drawn[0]
  true = blocks(aim, noise, aim + noise)
  own = blocks(expected, noise, aim + noise)
  found = gradient_moments.numbers(own, true, is_shared=True)
  assert found["alignment"] == pytest.approx(0.6, abs=0.1)
  assert found["signal2"] == pytest.approx(1 / NOISE**2, rel=0.2)
  assert found["length"] == pytest.approx(1.0, abs=0.1)
  assert found["number"] == (COUNT - 1) / 2
  cosines = [(expected + n)[0] / np.linalg.norm(expected + n) for n in noise]
  assert found["progress"] == pytest.approx(np.mean(cosines), abs=0.02)
  # The means of both look more alike than they should.
  means = [
    np.sum([np.asarray(block.total) for block in one], axis=0)
    for one in (own, true)
  ]
  naive = np.dot(means[0], means[1]) / np.prod(np.linalg.norm(means, axis=1))
  assert naive > 0.63


def test_averages_of_19_batches_have_less_noise(drawn):
  aim, expected = unit(1.0), unit(0.6, 0.8)
  found = gradient_moments.numbers(
    blocks(expected, drawn[0]), blocks(aim, drawn[1]), is_shared=False
  )
  groups = drawn[0][: 19 * (COUNT // 19)].reshape(-1, 19, SIZE).mean(1)
  cosines = [(expected + n)[0] / np.linalg.norm(expected + n) for n in groups]
  assert found["averaged"] == pytest.approx(np.mean(cosines), abs=0.05)


def test_other_batches_have_no_noise_in_common(drawn):
  aim = unit(1.0)
  true = blocks(aim, drawn[0], aim + drawn[0])
  found = gradient_moments.numbers(
    blocks(-aim, drawn[1]), true, is_shared=False
  )
  assert found["alignment"] == pytest.approx(-1.0, abs=0.1)


def test_without_signal_there_is_no_alignment(drawn):
  still = drawn[1] - drawn[1].mean(0)
  found = gradient_moments.numbers(
    blocks(np.zeros(SIZE), still), blocks(unit(1.0), drawn[0]), is_shared=False
  )
  assert np.isnan(found["alignment"]) and np.isnan(found["length"])
  assert abs(found["progress"]) < 0.02


def test_without_a_true_direction_there_is_no_progress(drawn):
  still = drawn[1] - drawn[1].mean(0)
  found = gradient_moments.numbers(
    blocks(unit(1.0), drawn[0]), blocks(np.zeros(SIZE), still), is_shared=False
  )
  assert np.isnan(found["progress"]) and found["signal2"] > 0


@pytest.mark.parametrize("is_shared", [False, True])
def test_errors_are_those_of_repeated_measurements(is_shared):
  rng = np.random.default_rng(1)
  aim, expected = unit(1.0), unit(0.6, 0.8)
  values, rows = [], []
  for _ in range(20):
    noise, other = draw(rng)
    mixed = (noise + other) / 2 if is_shared else other
    true = blocks(aim, noise, aim + noise)
    own = blocks(expected, mixed, aim + noise if is_shared else None)
    base = blocks(aim, mixed, aim + noise if is_shared else None)
    row = gradient_moments.compared(
      {"own": own, "base": base}, true, "base", is_shared
    )
    rows.append(row["own"])
    assert row["base"]["averaged_minus"] == 0.0
  for key in ("alignment", "averaged_minus"):
    values = [row[key] for row in rows]
    errors = [row[f"{key}_error"] for row in rows]
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.5)
