"""Questions by the name of where they come from.

| spec | what it is |
| --- | --- |
| `gym:NAME`, `gym:NAME(min_digits=3)` | reasoning-gym, made on the spot |
| `bbh:PATH` | a file of BIG-Bench Hard, or a folder of them |
| `symbench:PATH` | a file of SymBench, or the folder of its 33 tasks |
| `symbench:gridworld` | the one without data, made on the spot |
| a path | a file of questions, as `question.write` writes it |
"""

import collections
import pathlib
import re
from collections.abc import Sequence

from azr_jax.tasks import calls
from azr_jax.tasks.questions import bbh, gym, question
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.questions.symbench import reader as symbench

_JOINT = re.compile(r"\+(?=(?:gym|bbh|symbench):)")


def read(spec: str, count: int, seed: int) -> list[Question]:
  """Reads or makes at most `count` questions of each task.

  What is made depends on `seed`.

  Raises:
    ValueError: there is no such source, or it has no question.
  """
  kind, found, name = spec.partition(":")
  if kind == "gym" and found:
    name, settings = calls.read(name)
    questions = gym.make(name, count, seed, settings)
  elif kind == "bbh" and found:
    questions = _some(bbh.read(pathlib.Path(name).expanduser()), count)
  elif kind == "symbench" and found and name == symbench.GRIDWORLD:
    questions = symbench.make_gridworld(count, seed)
  elif kind == "symbench" and found:
    questions = _some(symbench.read(pathlib.Path(name).expanduser()), count)
  else:
    questions = _some(question.read(pathlib.Path(spec).expanduser()), count)
  if not questions:
    raise ValueError(f"{spec!r}: expected at least one question")
  return questions


def _some(questions: Sequence[Question], count: int) -> list[Question]:
  """The first `count` of each task."""
  seen: dict[str, int] = collections.Counter()
  kept = []
  for one in questions:
    seen[one.task] += 1
    if seen[one.task] <= count:
      kept.append(one)
  return kept


def split(specs: str) -> list[str]:
  """Sources that are joined by `+`."""
  return _JOINT.split(specs)


def read_all(specs: Sequence[str], count: int, seed: int) -> list[Question]:
  """Reads several sources after one another, at most `count` of each."""
  return [q for spec in specs for q in read(spec, count, seed)]
