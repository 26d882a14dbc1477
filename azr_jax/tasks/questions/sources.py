"""Reads questions from sources, or generates them.

| spec | source |
| --- | --- |
| `gym:NAME`, `gym:NAME(min_digits=3)` | a generator of reasoning-gym |
| `bbh:PATH` | a file of BIG-Bench Hard, or a folder of them |
| `symbench:PATH` | a file of SymBench, or the folder of its 33 tasks |
| `symbench:gridworld` | a generator of the task without public data |
| a path | a file that `question.write` wrote |
"""

import collections
import pathlib
import re
from collections.abc import Sequence

from azr_jax.tasks import calls
from azr_jax.tasks.questions import bbh, gym, question
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.questions.symbench import reader as symbench

_SEPARATOR = re.compile(r"\+(?=(?:gym|bbh|symbench):)")


def read(spec: str, count: int, seed: int) -> list[Question]:
  """Reads or generates at most `count` questions of each task.

  Args:
    spec: one of the specs in the module's table.
    count: maximum number of questions of a task.
    seed: seed for the generated questions.

  Raises:
    ValueError: the source does not exist, or it has no question.
  """
  kind, colon, name = spec.partition(":")
  if kind == "gym" and colon:
    name, settings = calls.read(name)
    questions = gym.make(name, count, seed, settings)
  elif kind == "bbh" and colon:
    questions = _limit(bbh.read(pathlib.Path(name).expanduser()), count)
  elif kind == "symbench" and colon and name == symbench.GRIDWORLD:
    questions = symbench.make_gridworld(count, seed)
  elif kind == "symbench" and colon:
    questions = _limit(symbench.read(pathlib.Path(name).expanduser()), count)
  else:
    questions = _limit(question.read(pathlib.Path(spec).expanduser()), count)
  if not questions:
    raise ValueError(f"{spec!r}: expected at least one question")
  return questions


def _limit(questions: Sequence[Question], count: int) -> list[Question]:
  """Returns the first `count` questions of each task."""
  counts: dict[str, int] = collections.Counter()
  kept = []
  for candidate in questions:
    counts[candidate.task] += 1
    if counts[candidate.task] <= count:
      kept.append(candidate)
  return kept


def split(specs: str) -> list[str]:
  """Splits specs that are joined by `+`."""
  return _SEPARATOR.split(specs)


def read_all(specs: Sequence[str], count: int, seed: int) -> list[Question]:
  """Reads several sources in order, at most `count` questions of each task."""
  return [q for spec in specs for q in read(spec, count, seed)]
