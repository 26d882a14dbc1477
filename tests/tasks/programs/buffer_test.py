"""Buffers: growth, cap, sampling, saving; and the key of a program."""

import json

import numpy as np
import pytest

from azr_jax.tasks.programs.buffer import TaskBuffer, program_key
from azr_jax.tasks.programs.task import InductionTask, Triplet


def triplet(number):
  return Triplet(f"def f(x):\n  return x + {number}", "1", str(number + 1))


def filled(count, cap=100):
  buffer = TaskBuffer(cap)
  for number in range(count):
    buffer.add(triplet(number), step=number // 2)
  return buffer


def test_the_oldest_leaves_at_the_cap():
  buffer = filled(7, cap=5)
  assert buffer.tasks() == [triplet(n) for n in range(2, 7)]


def test_from_step():
  assert filled(5).from_step(1) == [triplet(2), triplet(3)]


def test_sampling_is_uniform_without_replacement():
  buffer = filled(6)
  drawn = buffer.sample(np.random.default_rng(0), 6)
  assert sorted(t.output for t in drawn) == [str(n) for n in range(1, 7)]
  rng = np.random.default_rng(1)
  counts = np.zeros(6)
  for _ in range(3000):
    counts[int(buffer.sample(rng, 1)[0].output) - 1] += 1
  np.testing.assert_allclose(counts / 3000, 1 / 6, atol=0.03)
  assert len(buffer.sample(rng, 20)) == 20
  assert TaskBuffer(3).sample(rng, 2) == []


def test_save_and_restore_through_json():
  buffer = filled(4)
  buffer.add(InductionTask("c", ("1", "2"), ("3", "4"), "m"), step=9)
  restored = TaskBuffer(100)
  restored.load_state_dict(json.loads(json.dumps(buffer.state_dict())))
  assert restored.tasks() == buffer.tasks()
  assert restored.from_step(9) == buffer.from_step(9)


@pytest.mark.parametrize(
  "one, other, same",
  [
    ("def f(a):\n  return a", "def f(bb):\n    return bb  # b", True),
    ("def f(a):\n  b = a\n  return b", "def f(x):\n  y = x\n  return y", True),
    ("def f(a):\n  return a + 1", "def f(a):\n  return a + 2", False),
    ("def f(a):\n  return len(a)", "def f(a):\n  return max(a)", False),
    ("def f(a, b):\n  return a", "def f(a, b):\n  return b", False),
  ],
)
def test_program_key(one, other, same):
  assert (program_key(one) == program_key(other)) is same


@pytest.mark.parametrize("code", ["x = 1" + " + 1" * 5000, "x = '\ud800'"])
def test_a_program_that_is_too_deep_or_odd_has_a_key_all_the_same(code):
  assert len(program_key(code)) == 64
