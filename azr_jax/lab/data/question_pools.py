"""Reads and generates each task's questions, before they are split."""

import hashlib
import importlib.metadata
import pathlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from azr_jax.config import extras
from azr_jax.lab.data import public_questions
from azr_jax.run import console
from azr_jax.tasks.questions import bbh, duplicates, gym
from azr_jax.tasks.questions import question as question_lib
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.questions.symbench import reader as symbench

_GRIDWORLD = f"{symbench.PREFIX}{symbench.GRIDWORLD}"

# Limit of generated questions, as a multiple of the wanted distinct ones.
_MAX_OVERSAMPLING = 4

_PROGRESS_S = 5.0


def read_public(
  wanted: Mapping[str, int],
  seed: int,
  out: pathlib.Path,
  data: pathlib.Path | None,
) -> dict[str, list[Question]]:
  """Returns the questions of tasks with public files, and of gridworld.

  Args:
    wanted: number of questions by task. It applies to gridworld, which is
      generated; of the other tasks, all questions are read.
    seed: seed of gridworld's generator.
    out: the folder of the build, where downloads go.
    data: a folder with some or all of the public files; the rest is
      downloaded. None downloads all.
  """
  pools: dict[str, list[Question]] = {}
  for prefix, read in (
    (bbh.PREFIX, bbh.read),
    (symbench.PREFIX, symbench.read),
  ):
    if all(not n.startswith(prefix) or n == _GRIDWORLD for n in wanted):
      continue
    name = prefix.rstrip("/")
    folder = public_questions.locate(
      public_questions.COLLECTIONS[name],
      [data] if data is not None else [],
      out / "public",
    )
    console.print_status(f"{name}: reading {folder}")
    for question in read(folder):
      if question.task in wanted:
        pools.setdefault(question.task, []).append(question)
  if _GRIDWORLD in wanted:
    pools[_GRIDWORLD] = symbench.make_gridworld(wanted[_GRIDWORLD], seed)
  return pools


def generate(
  wanted: Mapping[str, int], seed: int, out: pathlib.Path
) -> dict[str, list[Question]]:
  """Returns the questions of reasoning-gym's tasks.

  Args:
    wanted: number of questions by task; other collections' tasks are ignored.
    seed: seed of the generators.
    out: the folder of the build. Questions that it already has are reused.
  """
  wanted = {n: count for n, count in wanted.items() if n.startswith(gym.PREFIX)}
  if not wanted:
    return {}
  folder = out / "pools" / f"seed{seed}_gym{gym_version()}"
  folder.mkdir(parents=True, exist_ok=True)
  progress = console.Progress(1, sum(wanted.values()), unit="question")
  pools, done, shown_at = {}, 0, time.monotonic()
  try:
    for name, count in wanted.items():
      path = folder / f"{name.removeprefix(gym.PREFIX)}_{count}.jsonl"
      if path.exists():
        pools[name] = question_lib.read(path)
        done += count
        continue
      pool: list[Question] = []
      for question in _generate_until_distinct(name, count, seed):
        pool.append(question)
        if time.monotonic() - shown_at > _PROGRESS_S:
          progress.show(done + len(pool), name)
          shown_at = time.monotonic()
      done += count
      write(path, pool)
      pools[name] = pool
  finally:
    progress.close()
  return pools


def gym_version() -> str:
  """Returns the installed version of reasoning-gym."""
  try:
    return importlib.metadata.version("reasoning-gym")
  except importlib.metadata.PackageNotFoundError:
    raise ValueError(
      f"tasks gym: {extras.missing('reasoning_gym')}; or leave them out "
      "of --tasks="
    ) from None


def _generate_until_distinct(
  name: str, count: int, seed: int
) -> Iterator[Question]:
  """Yields questions of a dataset until `count` of them differ."""
  keys: set[str] = set()
  entries = gym.generate(
    name.removeprefix(gym.PREFIX), _MAX_OVERSAMPLING * count, seed
  )
  for question in entries:
    keys.add(duplicates.key(question.text))
    yield question
    if len(keys) == count:
      return


def write(path: pathlib.Path, questions: Iterable[Question]) -> dict[str, Any]:
  """Writes a question file atomically; returns its manifest entry."""
  partial = path.with_suffix(".partial")
  questions = list(questions)
  question_lib.write(partial, questions)
  digest = hashlib.sha256(partial.read_bytes()).hexdigest()
  partial.replace(path)
  return {"path": path.name, "questions": len(questions), "sha256": digest}
