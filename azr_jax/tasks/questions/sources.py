"""Reads or generates questions.

| spec | source |
| --- | --- |
| `gym:NAME`, `gym:NAME(min_digits=3)` | a generator of reasoning-gym |
| `bbh:PATH` | a file of BIG-Bench Hard, or a folder of them |
| `symbench:PATH` | a file of SymBench, or the folder of its 33 tasks |
| `symbench:gridworld` | a generator of the task without public data |
| `split:NAME`, `split:DIR/NAME` | a file of `splits.py` |
| a path | a file written by `question.write` |

Reading with `HELD_OUT_SEED` returns held-out questions. Generators make other
questions with this seed. For public files, two fifths of each task are read
only with this seed, and the rest only with other seeds. The seed has no effect
on splits and paths. Near duplicates (`duplicates.py`) are removed from public
files.
"""

import collections
import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Sequence

from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.tasks import calls
from azr_jax.tasks.questions import bbh, duplicates, gym, question, splits
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.questions.symbench import reader as symbench

_SEPARATOR = re.compile(r"\+(?=(?:gym|bbh|symbench|split):)")
HELD_OUT_SEED = 99  # No config trains on questions of this seed.
# The `accepts` of settings for training seeds: a check and its description.
TRAINING_SEED = (
  lambda seed: seed != HELD_OUT_SEED,
  f"a seed other than {HELD_OUT_SEED}, which holds questions out",
)
# The largest BIG-Bench Hard tasks have 250 questions; this holds out 100.
_HELD_OUT_FRACTION = 2, 5
# A placeholder for a file that only the user can name.
UNKNOWN = "QUESTIONS_NOT_TRAINED_ON.jsonl"


def read(spec: str, count: int, seed: int) -> list[Question]:
  """Reads or generates at most `count` questions of each task.

  Args:
    spec: a spec of the module's table.
    count: the maximum number of questions per task.
    seed: the seed of generators. `HELD_OUT_SEED` reads held-out questions.

  Raises:
    ValueError: the source does not exist or has no questions.
  """
  kind, colon, name = spec.partition(":")
  if kind == "gym" and colon:
    name, settings = calls.read(name)
    questions = gym.make(name, count, seed, settings)
  elif kind == "bbh" and colon:
    questions = _part(bbh.read(pathlib.Path(name).expanduser()), count, seed)
  elif kind == "symbench" and colon and name == symbench.GRIDWORLD:
    questions = symbench.make_gridworld(count, seed)
  elif kind == "symbench" and colon:
    path = pathlib.Path(name).expanduser()
    questions = _part(symbench.read(path), count, seed)
    if path.is_dir():
      size = min(count, symbench.GRIDWORLD_COUNT)
      questions += symbench.make_gridworld(size, seed)
  elif kind == "split" and colon:
    questions = _limit(splits.read(name), count)
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


def _part(
  questions: Sequence[Question], count: int, seed: int
) -> list[Question]:
  """Returns the part of a public file's questions that a seed may read.

  Sorts a task's questions by the SHA-256 of their texts and holds out the first
  `_HELD_OUT_FRACTION`. So the parts depend neither on the order of the file nor
  on `count`.
  """
  by_task: dict[str, list[Question]] = {}
  for candidate in duplicates.distinct(questions):
    by_task.setdefault(candidate.task, []).append(candidate)
  held_out: set[str] = set()
  for of_task in by_task.values():
    ordered = sorted(of_task, key=lambda q: _digest(duplicates.key(q.text)))
    size = len(ordered) * _HELD_OUT_FRACTION[0] // _HELD_OUT_FRACTION[1]
    held_out |= {candidate.id for candidate in ordered[:size]}
  return _limit(
    [
      candidate
      for of_task in by_task.values()
      for candidate in of_task
      if (candidate.id in held_out) == (seed == HELD_OUT_SEED)
    ],
    count,
  )


def _digest(text: str) -> str:
  return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def of_tasks(
  questions: Sequence[Question],
  names: Sequence[str],
  num_tasks: int,
  seed: int,
) -> list[Question]:
  """Returns the questions of some tasks.

  Args:
    questions: the questions of all tasks.
    names: the tasks: names, or prefixes that end in `/`. () means all.
    num_tasks: how many of these tasks to keep, chosen by the seed. 0 means all.
    seed: chooses the tasks.

  Raises:
    ValueError: a name matches no task, or there are fewer tasks.
  """
  tasks = sorted({question.task for question in questions})
  if names:
    found = {
      name: [
        task
        for task in tasks
        if task == name or (name.endswith("/") and task.startswith(name))
      ]
      for name in names
    }
    unknown = [name for name, matches in found.items() if not matches]
    if unknown:
      raise ValueError(
        f"tasks={tuple(names)!r}: {unknown[0]!r} has no question; expected "
        f"some of {', '.join(tasks)[:200]}, or their prefixes, such as gym/"
      )
    tasks = sorted({task for matches in found.values() for task in matches})
  if num_tasks > len(tasks):
    raise ValueError(
      f"num_tasks={num_tasks}: expected at most {len(tasks)}, the number of "
      "tasks that the sources have"
    )
  if num_tasks:
    order = streams.generator(seed, Purpose.TASKS).permutation(len(tasks))
    tasks = [tasks[index] for index in order[:num_tasks].tolist()]
  kept = {*tasks}
  return [question for question in questions if question.task in kept]


def held_out(specs: Sequence[str]) -> str:
  """Returns the sources to evaluate on, given the sources of training.

  Args:
    specs: specs of the module's table.

  Returns:
    Specs joined by `+`. Generators and public files are unchanged, because
    `HELD_OUT_SEED` splits them. Splits become the test split. Other files
    become `UNKNOWN`.
  """
  found: dict[str, None] = {}
  for spec in specs:
    if spec.startswith(("gym:", "bbh:", "symbench:")):
      found[spec] = None
    else:
      found[splits.held_out(spec) or UNKNOWN] = None
  return "+".join(found)


def split(specs: str) -> list[str]:
  """Splits specs joined by `+`."""
  return _SEPARATOR.split(specs)


def split_all(specs: Sequence[str]) -> list[str]:
  """Splits several texts of specs joined by `+`, into one list."""
  return [spec for joined in specs for spec in split(joined)]


def read_all(specs: Sequence[str], count: int, seed: int) -> list[Question]:
  """Reads several sources in order, at most `count` questions per task of each.

  A generator that appears with several settings repeats its question ids.
  Questions with the same id are placed next to each other, and suffixes `#2`,
  `#3`, ... make the ids unique.
  """
  by_id: dict[str, list[Question]] = {}
  for spec in split_all(specs):
    for found in read(spec, count, seed):
      by_id.setdefault(found.id, []).append(found)
  return [
    dataclasses.replace(found, id=f"{id_}#{number}") if number > 1 else found
    for id_, same in by_id.items()
    for number, found in enumerate(same, 1)
  ]
