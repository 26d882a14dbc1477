"""Task buffers: what self-play has found so far (section 3.3.2).

At the cap a task leaves for every one that comes:

| `evict` | who leaves |
| --- | --- |
| `newest` | the oldest |
| `diverse` | the oldest of the shape that most of them have |
| `learnable` | the one with least potential; the oldest of equals |

Published code keeps the oldest instead, and so stops taking in new tasks for
good once it is full. A shape is the set of kinds of nodes in the program's
tree. Potential is 4 p (1 - p), p being the share of right answers so far, with
one right and one wrong answer added.

Tasks to be solved again are drawn evenly, or by their p:

| `revisit` | weight |
| --- | --- |
| `uniform` | 1 |
| `potential` | 4 p (1 - p) (seed 001, section 3.3) |
| `adaptive` | exp(-abs(p - 0.4) / 0.2) (seed 003, eq. 2 and 3) |

A tenth of the draws is even in any case.
"""

import ast
import collections
import dataclasses
import hashlib
import heapq
from typing import Any

import numpy as np

from azr_jax.executor import literals
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.program_key import program_key
from azr_jax.tasks.programs.task import InductionTask, Task

EVICTIONS = ("newest", "diverse", "learnable")
REVISITS = ("uniform", "potential", "adaptive")
_EVEN_SHARE = 0.1
_TARGET, _TEMPERATURE = 0.4, 0.2
# Answers that count fully; older ones fade, for the policy changes.
_MEMORY = 32.0


@dataclasses.dataclass
class _Entry:
  """A task, the step that found it, its key, and how it was answered."""

  step: int
  task: Task
  key: str
  right: float = 0.0
  asked: float = 0.0

  @property
  def rate(self) -> float:
    """p, between 0 and 1 exclusively."""
    return (self.right + 1.0) / (self.asked + 2.0)

  @property
  def potential(self) -> float:
    """4 p (1 - p)."""
    return 4.0 * self.rate * (1.0 - self.rate)


class TaskBuffer:
  """Valid tasks of one type; every one is added, whatever it earns."""

  def __init__(self, cap: int, evict: str = "newest", revisit: str = "uniform"):
    """Makes an empty buffer.

    Args:
      cap: most tasks.
      evict: one of `EVICTIONS`.
      revisit: one of `REVISITS`.

    Raises:
      ValueError: one of them is unknown.
    """
    if evict not in EVICTIONS or revisit not in REVISITS:
      raise ValueError(
        f"evict={evict!r}, revisit={revisit!r}: expected one of {EVICTIONS} "
        f"and one of {REVISITS}"
      )
    self._cap, self._evict, self._revisit = cap, evict, revisit
    # By a running number, so that the first is always the oldest.
    self._entries: dict[int, _Entry] = {}
    self._next = 0
    self._places: dict[Task, list[int]] = {}
    self._shapes: dict[str, dict[int, None]] = {}
    self._shape_of: dict[int, str] = {}
    self._least: list[tuple[float, int]] = []  # A heap; some are out of date.
    self._keys: collections.Counter[str] = collections.Counter()

  def __len__(self) -> int:
    return len(self._entries)

  def add(self, task: Task, step: int) -> None:
    """Adds a valid task found at `step`."""
    self._insert(_Entry(step, task, _key(task)))

  def _insert(self, entry: _Entry) -> None:
    number, self._next = self._next, self._next + 1
    self._entries[number] = entry
    self._places.setdefault(entry.task, []).append(number)
    self._keys[entry.key] += 1
    if self._evict == "diverse":
      shape = _shape(entry.task.code)
      self._shapes.setdefault(shape, {})[number] = None
      self._shape_of[number] = shape
    self._rank(number)
    if len(self._entries) > self._cap:
      self._remove(self._leaving())

  def _rank(self, number: int) -> None:
    if self._evict != "learnable":
      return
    heapq.heappush(self._least, (self._entries[number].potential, number))
    if len(self._least) > 4 * self._cap + 16:  # Mostly out of date.
      self._least = [(e.potential, n) for n, e in self._entries.items()]
      heapq.heapify(self._least)

  def _leaving(self) -> int:
    if self._evict == "diverse":
      largest = max(
        self._shapes.values(), key=lambda own: (len(own), -next(iter(own)))
      )
      return next(iter(largest))
    while self._evict == "learnable":
      potential, number = heapq.heappop(self._least)
      entry = self._entries.get(number)
      if entry is not None and entry.potential == potential:
        return number
    return next(iter(self._entries))

  def _remove(self, number: int) -> None:
    entry = self._entries.pop(number)
    places = self._places[entry.task]
    places.remove(number)
    if not places:
      del self._places[entry.task]
    self._keys[entry.key] -= 1
    if not self._keys[entry.key]:
      del self._keys[entry.key]
    if self._evict == "diverse":
      shape = self._shape_of.pop(number)
      own = self._shapes[shape]
      del own[number]
      if not own:
        del self._shapes[shape]

  def has_like(self, task: Task) -> bool:
    """Whether there is a task that differs in names or layout alone."""
    return _key(task) in self._keys

  def update(self, task: Task, right: int, asked: int) -> None:
    """Counts answers to a task; one that has left is nobody's business."""
    for number in self._places.get(task, ()):
      entry = self._entries[number]
      fading = min(1.0, _MEMORY / (entry.asked + asked))
      entry.right = (entry.right + right) * fading
      entry.asked = (entry.asked + asked) * fading
      self._rank(number)

  def tasks(self) -> list[Task]:
    """All tasks, oldest first."""
    return [entry.task for entry in self._entries.values()]

  def from_step(self, step: int) -> list[Task]:
    """The tasks found at `step`."""
    return [e.task for e in self._entries.values() if e.step == step]

  def share_since(self, step: int) -> float:
    """The share of tasks found at `step` or later; 0 of none."""
    fresh = sum(entry.step >= step for entry in self._entries.values())
    return fresh / max(len(self._entries), 1)

  def sample(self, rng: np.random.Generator, count: int) -> list[Task]:
    """Draws evenly: without replacement while there are enough tasks."""
    return self._draw(rng, count, None)

  def recent(self, rng: np.random.Generator, count: int) -> list[Task]:
    """Draws with weights that fall evenly from the newest to the oldest."""
    if not self._entries:
      return []
    weights = np.arange(1.0, len(self._entries) + 1)
    return self._draw(rng, count, weights / weights.sum())

  def revisit(self, rng: np.random.Generator, count: int) -> list[Task]:
    """Draws what to solve again; without replacement while there are enough."""
    if self._revisit == "uniform" or not self._entries:
      return self._draw(rng, count, None)
    rates = np.array([entry.rate for entry in self._entries.values()])
    if self._revisit == "potential":
      weights = rates * (1.0 - rates)
    else:
      weights = np.exp(-np.abs(rates - _TARGET) / _TEMPERATURE)
    weights = (1.0 - _EVEN_SHARE) * weights / weights.sum()
    return self._draw(rng, count, weights + _EVEN_SHARE / len(rates))

  def _draw(
    self, rng: np.random.Generator, count: int, weights: np.ndarray | None
  ) -> list[Task]:
    if count <= 0 or not self._entries:
      return []
    numbers = np.fromiter(self._entries, np.int64, len(self._entries))
    drawn = rng.choice(
      len(numbers), size=count, replace=count > len(numbers), p=weights
    )
    return [self._entries[number].task for number in numbers[drawn].tolist()]

  def state_dict(self) -> dict[str, Any]:
    """Returns the entries as JSON values."""
    return {
      "entries": [
        {
          "step": entry.step,
          "task": task_lib.to_json(entry.task),
          "key": entry.key,
          "right": entry.right,
          "asked": entry.asked,
        }
        for entry in self._entries.values()
      ]
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    fresh = TaskBuffer(self._cap, self._evict, self._revisit)
    for entry in state["entries"]:
      fresh._insert(
        _Entry(
          entry["step"],
          task_lib.from_json(entry["task"]),
          entry["key"],
          entry["right"],
          entry["asked"],
        )
      )
    self.__dict__.update(fresh.__dict__)


def _key(task: Task) -> str:
  if isinstance(task, InductionTask):
    asked = "\n".join(task.inputs)
  else:
    asked = task.input
  return f"{program_key(task.code)} {asked}"


def _shape(code: str) -> str:
  """A hash of which kinds of nodes a program has."""
  try:
    tree = literals.guarded_parse(code, "exec")
    kinds = sorted({type(node).__name__ for node in ast.walk(tree)})
  except (ValueError, RecursionError):
    kinds = []
  return hashlib.blake2b(" ".join(kinds).encode(), digest_size=8).hexdigest()
