"""Task buffers: cap, sampling, saving, and the keys of programs."""

import dataclasses
import json

import numpy as np
import pytest
from typed import instance_of

from azr_jax.systems.azr.extensions import rewriting
from azr_jax.tasks.programs.buffer import EVICTIONS, REVISITS, TaskBuffer
from azr_jax.tasks.programs.program_key import program_key
from azr_jax.tasks.programs.task import InductionTask, Triplet


def output_of(task):
  return instance_of(Triplet, task).output


def triplet(number):
  return Triplet(f"def f(x):\n  return x + {number}", "1", str(number + 1))


def filled(count, cap=100):
  buffer = TaskBuffer(cap)
  for number in range(count):
    buffer.add(triplet(number), step=number // 2)
  return buffer


def test_a_full_buffer_evicts_the_oldest_task():
  buffer = filled(7, cap=5)
  assert buffer.tasks() == [triplet(n) for n in range(2, 7)]


def test_tasks_of_a_step():
  assert filled(5).from_step(1) == [triplet(2), triplet(3)]


def test_sampling_is_uniform_without_replacement():
  buffer = filled(6)
  sampled = buffer.sample(np.random.default_rng(0), 6)
  assert sorted(output_of(t) for t in sampled) == [str(n) for n in range(1, 7)]
  rng = np.random.default_rng(1)
  counts = np.zeros(6)
  for _ in range(3000):
    counts[int(output_of(buffer.sample(rng, 1)[0])) - 1] += 1
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


def test_tasks_that_differ_in_names_only_are_alike():
  buffer = TaskBuffer(2)
  buffer.add(triplet(1), 0)
  renamed = Triplet("def f(other):  # why\n  return other + 1", "1", "2")
  assert buffer.has_equivalent(renamed)
  assert not buffer.has_equivalent(dataclasses.replace(renamed, input="2"))
  buffer.add(triplet(2), 0)
  buffer.add(triplet(3), 0)
  assert not buffer.has_equivalent(renamed)


def test_programs_with_huge_integers_are_accepted():
  code = f"def f(x):\n  y = 0x{'f' * 4000}\n  return x + y % 7"
  task = Triplet(code, "1", "2")
  for evict in EVICTIONS:
    buffer = TaskBuffer(2, evict)
    buffer.add(task, 0)
    assert buffer.has_equivalent(task)
    assert rewriting.strip(code, rewriting.STRIPPED) == code


def test_the_most_common_shape_is_evicted():
  buffer = TaskBuffer(3, evict="diverse")
  loop = Triplet("def f(x):\n  for i in x: pass\n  return x", "[]", "[]")
  for number, task in enumerate([loop, triplet(1), triplet(2), triplet(3)]):
    buffer.add(task, number)
  assert buffer.tasks() == [loop, triplet(2), triplet(3)]
  odd = Triplet("def f(", "1", "1")  # Unparsable programs share a shape.
  buffer.add(odd, 4)
  assert buffer.tasks() == [loop, triplet(3), odd]
  buffer.add(triplet(4), 5)
  assert buffer.tasks() == [loop, odd, triplet(4)]


def test_the_task_with_the_lowest_potential_is_evicted():
  buffer = TaskBuffer(3, evict="learnable")
  for number in range(3):
    buffer.add(triplet(number), 0)
  buffer.update(triplet(0), 4, 8)
  buffer.update(triplet(1), 8, 8)
  buffer.update(triplet(2), 1, 8)
  buffer.update(triplet(9), 1, 8)  # not in the buffer
  buffer.add(triplet(3), 1)
  assert buffer.tasks() == [triplet(0), triplet(2), triplet(3)]
  for _ in range(20):  # The task was hard at first; now it is always solved.
    buffer.update(triplet(0), 8, 8)
  buffer.add(triplet(4), 1)
  assert buffer.tasks() == [triplet(2), triplet(3), triplet(4)]


def test_old_responses_lose_weight():
  buffer = TaskBuffer(2)
  buffer.add(triplet(1), 0)
  entry = {}
  # The task is always solved at first, then never.
  for num_correct in [8] * 20 + [0] * 12:
    buffer.update(triplet(1), num_correct, 8)
    (entry,) = buffer.state_dict()["entries"]
    assert entry["num_correct"] <= entry["num_responses"] <= 32
  assert entry["num_responses"] == 32
  assert entry["num_correct"] == pytest.approx(32 * 0.8**12)


@pytest.mark.parametrize(
  "revisit, most_sampled",
  [("potential", 0), ("adaptive", 0), ("uniform", None)],
)
def test_tasks_are_revisited_by_their_weights(revisit, most_sampled):
  buffer = TaskBuffer(10, revisit=revisit)
  for number, num_correct in enumerate((13, 0, 30)):
    buffer.add(triplet(number), 0)
    buffer.update(triplet(number), num_correct, 30)
  rng = np.random.default_rng(0)
  counts = np.zeros(3)
  for _ in range(2000):
    (sampled,) = buffer.revisit(rng, 1, before=99)
    counts[int(output_of(sampled)) - 1] += 1
  rates = np.array([14, 1, 31]) / 32
  weights = {
    "potential": rates * (1 - rates),
    "adaptive": np.exp(-np.abs(rates - 0.4) / 0.2),
    "uniform": np.ones(3),
  }[revisit]
  expected = 0.9 * weights / weights.sum() + 0.1 / 3
  np.testing.assert_allclose(counts / 2000, expected, atol=0.03)
  if most_sampled is not None:
    assert counts.argmax() == most_sampled
  assert len(buffer.revisit(rng, 7, before=99)) == 7
  assert TaskBuffer(3, revisit=revisit).revisit(rng, 2, 99) == []


@pytest.mark.parametrize("evict", EVICTIONS)
def test_ten_thousand_tasks_pass_through_a_small_buffer(evict):
  buffer = TaskBuffer(250, evict=evict)
  rng = np.random.default_rng(0)
  codes = [
    "def f(x):\n  return x + {}",
    "def f(x):\n  return [x] * {}",
    "def f(x):\n  for i in range({}):\n    x += i\n  return x",
    "def f(x):\n  return x if x > {} else -x",
  ]
  kinds = rng.choice(4, 10_000, p=(0.7, 0.2, 0.09, 0.01))
  sizes = []
  for number, kind in enumerate(kinds.tolist()):
    task = Triplet(codes[kind].format(number), "1", "2")
    buffer.add(task, step=number // 50)
    buffer.update(task, int(rng.integers(9)), 8)
    if number % 2_500 == 2_499:
      indices = (buffer._numbers, buffer._shape_of, buffer._keys)
      sizes.append(sum(map(len, indices)))
      sizes.append(len(buffer._by_potential) // 1_500)
  assert len(buffer) == 250
  # The indices do not grow.
  assert sizes[:2] == sizes[-2:]
  # The fraction of tasks from the last 50 steps of 200.
  fresh = buffer.fraction_since(150)
  if evict == "newest":
    assert fresh == 1.0
  elif evict == "diverse":
    # About a quarter each, although seven in ten tasks had the first shape.
    counts = [
      sum(task.code.startswith(code.split("{}")[0]) for task in buffer.tasks())
      for code in codes
    ]
    assert min(counts) >= 60 and fresh > 0.8
  else:
    # The newest tasks that are solved half of the time stay. The last task was
    # just added, so its potential is excluded.
    potentials = [e.potential for e in buffer._entries.values()]
    assert sorted(potentials)[1] > 0.9
    assert fresh > 0.8


@pytest.mark.parametrize("evict", EVICTIONS)
@pytest.mark.parametrize("revisit", REVISITS)
def test_a_restored_buffer_continues_the_same(evict, revisit):
  buffers = [TaskBuffer(6, evict, revisit) for _ in range(2)]
  for number in range(9):
    buffers[0].add(triplet(number), number)
    buffers[0].update(triplet(number // 2), number % 3, 4)
  buffers[1].load_state_dict(json.loads(json.dumps(buffers[0].state_dict())))
  for buffer in buffers:
    for number in range(20, 24):
      buffer.add(triplet(number), number)
  assert buffers[0].tasks() == buffers[1].tasks()
  sampled = [b.revisit(np.random.default_rng(3), 4, 99) for b in buffers]
  assert sampled[0] == sampled[1]
  with pytest.raises(ValueError, match="evict='oldest'"):
    TaskBuffer(3, evict="oldest")


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
def test_programs_that_are_too_deep_or_not_unicode_have_a_key(code):
  assert len(program_key(code)) == 64


def test_recent_tasks_are_sampled_more_often():
  buffer = filled(4)
  rng = np.random.default_rng(0)
  counts = np.zeros(4)
  for _ in range(3000):
    counts[int(output_of(buffer.recent(rng, 1)[0])) - 1] += 1
  expected = np.arange(1, 5) / 10
  np.testing.assert_allclose(counts / 3000, expected, atol=0.03)
  assert TaskBuffer(3).recent(rng, 2) == []
