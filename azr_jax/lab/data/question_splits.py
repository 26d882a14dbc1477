"""Builds the question files of the 144 tasks (R1-CI, sections 2 and 4).

A build has four steps:
1. Each task's questions are generated until enough of them differ, or read from
   its public files. Generated questions are stored in the folder `pools`, so
   that an interrupted build can resume.
2. Near duplicates are dropped, within a task and across tasks. A question that
   a test task and a train task share stays in the test task.
3. The questions of a task are shuffled by a seed. The 37 test tasks get the
   split `test`, and the 107 others `seen`, `sft` and `train`.
4. Each split becomes a file, and `manifest.json` has counts and SHA-256.
"""

import dataclasses
import itertools
import json
import pathlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax.config.settings import Settings, setting
from azr_jax.lab.data import question_pools
from azr_jax.run import storage
from azr_jax.tasks.questions import catalogue, duplicates, gym, splits
from azr_jax.tasks.questions.question import Question

COLLECTIONS = ("gym", "bbh", "symbench")

MANIFEST = "manifest.json"
TRAIN_TASKS = 107  # as in the paper


@dataclasses.dataclass(frozen=True)
class SplitSettings(Settings):
  """Maximum number of a task's questions in each file.

  If a train task has too few questions, its three files shrink in proportion.
  """

  seed: int = setting(0, "seed of generators and of the split", minimum=0)
  train: int = setting(
    200, "questions of a train task for GRPO", paper="over 200", minimum=1
  )
  sft: int = setting(
    100,
    "questions of a train task for SFT conversations",
    paper="at most 70 conversations",
    minimum=1,
  )
  seen: int = setting(
    100, "held-out questions of a train task", paper="not named", minimum=1
  )
  test: int = setting(
    100, "questions of a test task", paper="not named", minimum=1
  )

  def wanted(self, split: str) -> int:
    """Returns how many questions a task of this split (train or test) needs."""
    return self.test if split == "test" else self.train + self.sft + self.seen


@dataclasses.dataclass(frozen=True)
class Build:
  """The result of a build.

  Attributes:
    tasks: {task: {`found`, `duplicates` or the name of a split: number}}.
    splits: `train` or `test` of each task.
    files: {split: {`path`, `questions`, `sha256`}}.
    missing: the catalogue's tasks that were not requested.
    seconds: duration of the build.
  """

  tasks: dict[str, dict[str, int]]
  splits: dict[str, str]
  files: dict[str, dict[str, Any]]
  missing: tuple[str, ...]
  seconds: float


def build(
  settings: SplitSettings,
  out: pathlib.Path,
  task_prefixes: Sequence[str] = COLLECTIONS,
  data: pathlib.Path | None = None,
  held_out: str = "",
) -> Build:
  """Writes the question files.

  Args:
    settings: sizes and seed.
    out: the output folder; an interrupted build in it is resumed.
    task_prefixes: task names or prefixes of them, such as `gym`.
    data: a folder that contains the folders `bbh` and `symbench`. None
      downloads them to `out`.
    held_out: one of `COLLECTIONS`, whose tasks are all test tasks; see
      `_with_held_out`. "" splits as in the catalogue.

  Raises:
    ValueError: no task has such a name, a collection cannot be downloaded, or a
      task has no questions.
  """
  start = time.monotonic()
  for name in task_prefixes:
    if not any(task.startswith(name) for task in catalogue.tasks()):
      raise ValueError(
        f"task {name!r}: expected some of {COLLECTIONS}, or names of "
        "azr_jax/assets/question_tasks.tsv"
      )
  tasks = {
    task.name: task
    for task in catalogue.tasks().values()
    if task.name.startswith(tuple(task_prefixes))
  }
  if held_out:
    tasks = _with_held_out(tasks, held_out, settings.seed)
  out.mkdir(parents=True, exist_ok=True)
  wanted = {name: settings.wanted(task.split) for name, task in tasks.items()}
  pools = question_pools.read_public(wanted, settings.seed, out, data)
  pools |= question_pools.generate(wanted, settings.seed, out)
  found = {name: len(pool) for name, pool in pools.items()}
  pools = _distinct(pools, tasks)
  empty = [name for name in tasks if not pools.get(name)]
  if empty:
    raise ValueError(
      f"no questions of {', '.join(empty)}: expected their files in the "
      "folder of --data, or --tasks= without them"
    )
  by_split = _split(settings, pools, tasks)
  files = {
    name: question_pools.write(splits.path_of(out, name), questions)
    for name, questions in by_split.items()
  }
  counts = {
    name: {"found": found[name], "duplicates": found[name] - len(pools[name])}
    | {
      split: sum(question.task == name for question in questions)
      for split, questions in by_split.items()
    }
    for name in tasks
  }
  missing = tuple(name for name in catalogue.tasks() if name not in tasks)
  of_tasks = {name: task.split for name, task in tasks.items()}
  made = Build(counts, of_tasks, files, missing, time.monotonic() - start)
  _write_manifest(out / MANIFEST, settings, made)
  return made


def _with_held_out(
  tasks: Mapping[str, catalogue.CatalogueTask], collection: str, seed: int
) -> dict[str, catalogue.CatalogueTask]:
  """Returns a split with one collection as the test set (R1-CI, figure 13).

  The tasks of the other collections are training tasks; if they are more than
  the paper's 107, the seed chooses as many.

  Args:
    tasks: the requested tasks.
    collection: one of `COLLECTIONS`.
    seed: chooses the training tasks.

  Raises:
    ValueError: the collection is unknown.
  """
  if collection not in COLLECTIONS:
    raise ValueError(f"held_out={collection!r}: expected one of {COLLECTIONS}")
  others = [n for n in tasks if not n.startswith(f"{collection}/")]
  rng = np.random.default_rng((seed, len(catalogue.tasks())))
  chosen = {others[i] for i in rng.permutation(len(others))[:TRAIN_TASKS]}
  return {
    name: dataclasses.replace(task, split="train" if name in chosen else "test")
    for name, task in tasks.items()
    if name in chosen or name not in others
  }


def _distinct(
  pools: Mapping[str, Sequence[Question]],
  tasks: Mapping[str, catalogue.CatalogueTask],
) -> dict[str, list[Question]]:
  """Returns the pools without near duplicates, within and across tasks."""
  keys: set[str] = set()
  kept = {}
  # Test tasks sort first, so they keep questions that a train task shares.
  for name in sorted(pools, key=lambda name: tasks[name].split):
    kept[name] = duplicates.distinct(pools[name], keys)
    keys |= {duplicates.key(question.text) for question in kept[name]}
  return kept


def _split(
  settings: SplitSettings,
  pools: Mapping[str, Sequence[Question]],
  tasks: Mapping[str, catalogue.CatalogueTask],
) -> dict[str, list[Question]]:
  """Returns the questions of each split, in the order of the catalogue."""
  by_split: dict[str, list[Question]] = {name: [] for name in splits.NAMES}
  indices = {name: i for i, name in enumerate(catalogue.tasks())}
  for name, task in tasks.items():
    rng = np.random.default_rng((settings.seed, indices[name]))
    order = rng.permutation(len(pools[name])).tolist()
    shuffled = [pools[name][index] for index in order]
    start = 0
    for split, size in _sizes(settings, task.split, len(shuffled)).items():
      by_split[split] += shuffled[start : start + size]
      start += size
  return by_split


def _sizes(
  settings: SplitSettings, split: str, available: int
) -> dict[str, int]:
  """Returns how many of a task's questions each of its files gets."""
  if split == "test":
    return {"test": min(settings.test, available)}
  wanted = settings.wanted(split)
  used = min(wanted, available)
  seen = settings.seen * used // wanted
  sft = settings.sft * used // wanted
  return {"seen": seen, "sft": sft, "train": used - seen - sft}


def _write_manifest(
  path: pathlib.Path, settings: SplitSettings, made: Build
) -> None:
  manifest = {
    "settings": dataclasses.asdict(settings),
    "reasoning_gym": question_pools.gym_version() if _has_gym(made) else None,
    "files": made.files,
    "missing": made.missing,
    "tasks": made.tasks,
    "minutes": round(made.seconds / 60, 2),
  }
  storage.write_atomically(path, json.dumps(manifest, indent=1) + "\n")


def _has_gym(made: Build) -> bool:
  return any(name.startswith(gym.PREFIX) for name in made.tasks)


def table(made: Build) -> str:
  """Returns a Markdown table with a row per collection and task split."""
  lines = [
    "| tasks | number | found | duplicates | "
    + " | ".join(splits.NAMES)
    + " |",
    "| --- |" + " --- |" * (3 + len(splits.NAMES)),
  ]
  for prefix, split in itertools.product(COLLECTIONS, catalogue.SPLITS):
    names = [
      name
      for name in made.tasks
      if name.startswith(prefix) and made.splits[name] == split
    ]
    columns = ("found", "duplicates", *splits.NAMES)
    cells = [sum(made.tasks[n][column] for n in names) for column in columns]
    lines.append(
      f"| {prefix}, {split} | {len(names)} | "
      + " | ".join(map(str, cells))
      + " |"
    )
  return "\n".join(lines)


def missing(made: Build) -> str:
  """Returns the missing tasks, summing up collections that are all missing."""
  names = []
  for prefix in COLLECTIONS:
    of_collection = [n for n in made.missing if n.startswith(f"{prefix}/")]
    if any(name.startswith(f"{prefix}/") for name in made.tasks):
      names += of_collection
    elif of_collection:
      names.append(f"all {len(of_collection)} of {prefix}")
  return ", ".join(names)


def overlap(files: Mapping[str, Iterable[Question]]) -> int:
  """Returns the number of near duplicates of an earlier question."""
  keys = [duplicates.key(q.text) for file in files.values() for q in file]
  return len(keys) - len(set(keys))
