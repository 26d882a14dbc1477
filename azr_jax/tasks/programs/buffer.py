"""Buffers of the valid tasks of self-play (AZR, section 3.3.2).

When a buffer is full, each new task evicts one:

| `evict` | the evicted task |
| --- | --- |
| `newest` | the oldest task, so the newest stay |
| `diverse` | the oldest task of the most common shape |
| `learnable` | the task with the lowest potential; ties evict the oldest |

AZR's published code keeps the oldest tasks instead, so it adds no tasks to a
full buffer. The shape of a program is the set of node types in its syntax tree.
The potential is 4 p (1 - p), where p is the pass rate so far, with one correct
and one wrong response added.

Tasks to solve again are sampled uniformly, or by their pass rate p:

| `revisit` | weight |
| --- | --- |
| `uniform` | 1 |
| `potential` | 4 p (1 - p) (R1-CI, section 3.3) |
| `adaptive` | exp(-abs(p - 0.4) / 0.2) (Countdown, eq. 2 and 3) |

Non-uniform sampling still draws a tenth of its tasks uniformly.
"""

import ast
import collections
import dataclasses
import hashlib
import heapq
from typing import Any

import numpy as np
from jaxtyping import Float

from azr_jax.executor import literals
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.program_key import program_key
from azr_jax.tasks.programs.task import (
  EnvironmentTask,
  InductionTask,
  Instance,
  Task,
)

EVICTIONS = ("newest", "diverse", "learnable")
REVISITS = ("uniform", "potential", "adaptive")
_UNIFORM_FRACTION = 0.1
_TARGET, _TEMPERATURE = 0.4, 0.2
# Effective number of responses behind a pass rate. Older responses lose weight,
# because the policy changes.
_MAX_RESPONSES = 32.0


@dataclasses.dataclass
class _Entry:
  """A task of a buffer.

  Attributes:
    step: the step that added the task.
    key: the key of the task, equal if only names or layout differ.
    num_correct: the weighted number of correct responses.
    num_responses: the weighted number of responses.
    label: the solvers' majority answer. None if there was no vote.
  """

  step: int
  task: Task
  key: str
  num_correct: float = 0.0
  num_responses: float = 0.0
  label: str | None = None

  @property
  def pass_rate(self) -> float:
    """The pass rate, with one correct and one wrong response added."""
    return (self.num_correct + 1.0) / (self.num_responses + 2.0)

  @property
  def potential(self) -> float:
    """4 p (1 - p) for pass rate p."""
    return 4.0 * self.pass_rate * (1.0 - self.pass_rate)


class TaskBuffer:
  """The valid tasks of one type, regardless of their proposals' rewards."""

  def __init__(self, cap: int, evict: str = "newest", revisit: str = "uniform"):
    """Creates an empty buffer.

    Args:
      cap: the maximum number of tasks.
      evict: one of `EVICTIONS`.
      revisit: one of `REVISITS`.

    Raises:
      ValueError: `evict` or `revisit` is unknown.
    """
    if evict not in EVICTIONS or revisit not in REVISITS:
      raise ValueError(
        f"evict={evict!r}, revisit={revisit!r}: expected one of {EVICTIONS} "
        f"and one of {REVISITS}"
      )
    self._cap, self._evict, self._revisit = cap, evict, revisit
    # Keys are consecutive numbers, so the first entry is always the oldest.
    self._entries: dict[int, _Entry] = {}
    self._next_number = 0
    self._numbers: dict[Task, list[int]] = {}
    # The values are ordered sets of entry numbers.
    self._shapes: dict[str, dict[int, None]] = {}
    self._shape_of: dict[int, str] = {}
    # A heap of (potential, number), possibly with outdated pairs.
    self._by_potential: list[tuple[float, int]] = []
    self._keys: collections.Counter[str] = collections.Counter()

  def __len__(self) -> int:
    return len(self._entries)

  def add(self, task: Task, step: int) -> None:
    """Adds a valid task that was proposed at `step`."""
    self._insert(_Entry(step, task, task_key(task)))

  def _insert(self, entry: _Entry) -> None:
    number, self._next_number = self._next_number, self._next_number + 1
    self._entries[number] = entry
    self._numbers.setdefault(entry.task, []).append(number)
    self._keys[entry.key] += 1
    if self._evict == "diverse":
      shape = _shape(entry.task.code)
      self._shapes.setdefault(shape, {})[number] = None
      self._shape_of[number] = shape
    self._push_potential(number)
    if len(self._entries) > self._cap:
      self._remove(self._choose_evicted())

  def _push_potential(self, number: int) -> None:
    if self._evict != "learnable":
      return
    heap = self._by_potential
    heapq.heappush(heap, (self._entries[number].potential, number))
    if len(heap) > 4 * self._cap + 16:  # Most pairs are outdated by now.
      heap = [(entry.potential, n) for n, entry in self._entries.items()]
      heapq.heapify(heap)
      self._by_potential = heap

  def _choose_evicted(self) -> int:
    """Returns the number of the entry to remove."""
    if self._evict == "diverse":
      largest = max(
        self._shapes.values(),
        key=lambda numbers: (len(numbers), -next(iter(numbers))),
      )
      return next(iter(largest))
    while self._evict == "learnable":
      potential, number = heapq.heappop(self._by_potential)
      entry = self._entries.get(number)
      if entry is not None and entry.potential == potential:
        return number
    return next(iter(self._entries))

  def _remove(self, number: int) -> None:
    entry = self._entries.pop(number)
    numbers = self._numbers[entry.task]
    numbers.remove(number)
    if not numbers:
      del self._numbers[entry.task]
    self._keys[entry.key] -= 1
    if not self._keys[entry.key]:
      del self._keys[entry.key]
    if self._evict == "diverse":
      shape = self._shape_of.pop(number)
      same_shape = self._shapes[shape]
      del same_shape[number]
      if not same_shape:
        del self._shapes[shape]

  def keys(self) -> set[str]:
    """Returns the `task_key`s of all tasks."""
    return set(self._keys)

  def has_equivalent(self, task: Task) -> bool:
    """Returns whether the buffer holds this task up to renaming and layout."""
    return task_key(task) in self._keys

  def update(self, task: Task, num_correct: int, num_responses: int) -> None:
    """Adds responses to a task's pass rate. Ignores evicted tasks.

    Args:
      num_correct: the number of correct responses.
      num_responses: the number of all responses.
    """
    for number in self._numbers.get(task, ()):
      entry = self._entries[number]
      total = entry.num_responses + num_responses
      scale = min(1.0, _MAX_RESPONSES / total)
      entry.num_correct = (entry.num_correct + num_correct) * scale
      entry.num_responses = total * scale
      self._push_potential(number)

  def label(self, task: Task) -> str | None:
    """Returns the solvers' majority answer, or None if there was no vote."""
    numbers = self._numbers.get(task)
    return self._entries[numbers[-1]].label if numbers else None

  def set_label(self, task: Task, label: str) -> None:
    """Stores the solvers' majority answer. Ignores evicted tasks."""
    for number in self._numbers.get(task, ()):
      self._entries[number].label = label

  @property
  def unverified_fraction(self) -> float:
    """The fraction of tasks admitted without verification; 0 if empty."""
    count = sum(not task_lib.is_verified(task) for task in self.tasks())
    return count / max(len(self._entries), 1)

  def tasks(self) -> list[Task]:
    """Returns all tasks, oldest first."""
    return [entry.task for entry in self._entries.values()]

  def from_step(self, step: int) -> list[Task]:
    """Returns the tasks that were added at `step`."""
    return [
      entry.task for entry in self._entries.values() if entry.step == step
    ]

  def fraction_since(self, step: int) -> float:
    """Returns the fraction of tasks added at `step` or later; 0 if empty."""
    fresh = sum(entry.step >= step for entry in self._entries.values())
    return fresh / max(len(self._entries), 1)

  def sample(self, rng: np.random.Generator, count: int) -> list[Task]:
    """Samples tasks uniformly, without replacement if there are enough."""
    return self._sample(rng, count, None)

  def recent(self, rng: np.random.Generator, count: int) -> list[Task]:
    """Samples tasks; weights fall linearly from the newest to the oldest."""
    if not self._entries:
      return []
    weights = np.arange(1.0, len(self._entries) + 1)
    return self._sample(rng, count, weights / weights.sum())

  def revisit(
    self, rng: np.random.Generator, count: int, before: int
  ) -> list[Task]:
    """Samples tasks to solve again, weighted by the `revisit` rule.

    Args:
      rng: the random generator.
      count: the number of tasks; 0 or less returns none.
      before: only tasks added before this step are sampled.
    """
    old = {n: e for n, e in self._entries.items() if e.step < before}
    if self._revisit == "uniform" or not old:
      return self._sample(rng, count, None, old)
    rates = np.array([entry.pass_rate for entry in old.values()])
    if self._revisit == "potential":
      weights = rates * (1.0 - rates)
    else:
      weights = np.exp(-np.abs(rates - _TARGET) / _TEMPERATURE)
    weights = (1.0 - _UNIFORM_FRACTION) * weights / weights.sum()
    weights += _UNIFORM_FRACTION / len(rates)
    return self._sample(rng, count, weights, old)

  def _sample(
    self,
    rng: np.random.Generator,
    count: int,
    weights: Float[np.ndarray, " entries"] | None,
    entries: dict[int, _Entry] | None = None,
  ) -> list[Task]:
    """Samples tasks, without replacement if there are enough.

    Args:
      rng: the random generator.
      count: the number of tasks.
      weights: the probability of each entry. None samples uniformly.
      entries: the entries to sample from. None samples from all.
    """
    entries = self._entries if entries is None else entries
    if count <= 0 or not entries:
      return []
    numbers = np.fromiter(entries, np.int64, len(entries))
    indices = rng.choice(
      len(numbers), size=count, replace=count > len(numbers), p=weights
    )
    return [self._entries[number].task for number in numbers[indices].tolist()]

  def state_dict(self) -> dict[str, Any]:
    """Returns the buffer's entries as JSON values."""
    return {
      "entries": [
        {
          "step": entry.step,
          "task": task_lib.to_json(entry.task),
          "key": entry.key,
          "num_correct": entry.num_correct,
          "num_responses": entry.num_responses,
          **({} if entry.label is None else {"label": entry.label}),
        }
        for entry in self._entries.values()
      ]
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores the entries from the result of `state_dict`."""
    restored = TaskBuffer(self._cap, self._evict, self._revisit)
    for entry in state["entries"]:
      restored._insert(
        _Entry(
          entry["step"],
          task_lib.from_json(entry["task"]),
          entry["key"],
          entry["num_correct"],
          entry["num_responses"],
          entry.get("label"),
        )
      )
    self.__dict__.update(restored.__dict__)


def task_key(task: Task) -> str:
  """Returns a key of a task's inputs and program that ignores names.

  Environments are alike if they do the same.
  """
  if isinstance(task, EnvironmentTask):
    return task.behavior
  assert not isinstance(task, Instance), "buffers hold environments"
  if isinstance(task, InductionTask):
    inputs = "\n".join(task.inputs)
  else:
    inputs = task.input
  return f"{program_key(task.code)} {inputs}"


def _shape(code: str) -> str:
  """Returns a hash of the set of node types in a program's syntax tree."""
  try:
    tree = literals.guarded_parse(code, "exec")
    node_types = sorted({type(node).__name__ for node in ast.walk(tree)})
  except (ValueError, RecursionError):
    node_types = []
  text = " ".join(node_types).encode()
  return hashlib.blake2b(text, digest_size=8).hexdigest()
