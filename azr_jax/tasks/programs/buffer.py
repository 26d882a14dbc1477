"""Task buffers: what self-play has found so far (section 3.3.2)."""

import ast
import collections
import hashlib
from typing import Any

import numpy as np

from azr_jax.executor import literals
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.task import Task


class TaskBuffer:
  """Valid tasks of one type with the step that found them.

  Every valid task is added, whatever it earns. At the cap the oldest is
  dropped: published code keeps the oldest instead, and so stops taking in
  new tasks for good once it is full.
  """

  def __init__(self, cap: int):
    self._entries: collections.deque[tuple[int, Task]] = collections.deque(
      maxlen=cap
    )

  def __len__(self) -> int:
    return len(self._entries)

  def add(self, task: Task, step: int) -> None:
    """Adds a valid task found at `step`."""
    self._entries.append((step, task))

  def tasks(self) -> list[Task]:
    """All tasks, oldest first."""
    return [task for _, task in self._entries]

  def from_step(self, step: int) -> list[Task]:
    """The tasks found at `step`."""
    return [task for found, task in self._entries if found == step]

  def sample(self, rng: np.random.Generator, count: int) -> list[Task]:
    """Draws uniformly: without replacement while there are enough tasks."""
    if count <= 0 or not self._entries:
      return []
    indices = rng.choice(
      len(self._entries), size=count, replace=count > len(self._entries)
    )
    return [self._entries[index][1] for index in indices]

  def state_dict(self) -> dict[str, Any]:
    """Returns the entries as JSON values."""
    return {
      "entries": [
        {"step": step, "task": task_lib.to_json(task)}
        for step, task in self._entries
      ]
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    self._entries.clear()
    for entry in state["entries"]:
      self.add(task_lib.from_json(entry["task"]), entry["step"])


def program_key(code: str) -> str:
  """A hash of the program that ignores names, comments and layout.

  Variables, arguments and functions are numbered in order of appearance;
  attributes, constants and structure count. Text that does not parse, or is
  too deep, is hashed as it is.
  """
  try:
    text = _canonical_text(code)
  except (literals.ParseError, RecursionError):
    text = code
  return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _canonical_text(code: str) -> str:
  tree = literals.guarded_parse(code, "exec")
  defined = _defined_names(tree)
  numbers: dict[str, str] = {}

  def canonical(name: str) -> str:
    if name not in defined:
      return name
    return numbers.setdefault(name, f"name{len(numbers)}")

  for node in ast.walk(tree):
    if isinstance(node, ast.Name):
      node.id = canonical(node.id)
    elif isinstance(node, ast.arg):
      node.arg = canonical(node.arg)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
      node.name = canonical(node.name)
  return ast.dump(tree)


def _defined_names(tree: ast.AST) -> set[str]:
  """Names that the program itself binds, as against builtins."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      names.add(node.id)
    elif isinstance(node, ast.arg):
      names.add(node.arg)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
      names.add(node.name)
  return names
