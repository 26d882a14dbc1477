"""Reads or generates math problems.

| spec | source |
| --- | --- |
| `gym:NAME`, `gym:NAME(min_terms=2)` | a generator of reasoning-gym |
| anything else | a spec of `tasks/records.py`; `problem.py` lists the layouts |

Join several gym sets with `+`, as in `gym:NAME+NAME`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from azr_jax.config import user_files
from azr_jax.tasks import calls, gym_sets, records
from azr_jax.tasks.mathematics import problem
from azr_jax.tasks.mathematics.problem import Problem

DEFAULT_GYM_COUNT = 10_000


LANGUAGES = (ALL, ENGLISH) = "all", "english"


def read(
  spec: str, count: int = 0, seed: int = 0, language: str = ALL
) -> list[Problem]:
  """Reads or generates problems, without duplicate questions.

  Args:
    spec: a spec of the module's table.
    count: the maximum number of problems; 0 reads all records, or generates
      `DEFAULT_GYM_COUNT` gym entries.
    seed: the seed of gym sets.
    language: one of `LANGUAGES`; `ENGLISH` drops problems with Chinese
      characters.

  Raises:
    ValueError: the source does not exist, a required package is missing, or a
      record is not a problem.
  """
  kind, colon, name = spec.partition(":")
  if kind == "gym" and colon:
    rows = _gym(name, count or DEFAULT_GYM_COUNT, seed)
  else:
    rows = records.read(spec)
  problems: dict[str, Problem] = {}
  for row in rows:
    with user_files.reading(spec, "records of problems"):
      parsed = problem.from_record(row)
    if language == ENGLISH and parsed.has_chinese:
      continue
    problems.setdefault(parsed.question, parsed)
    if len(problems) == count:
      break
  if not problems:
    raise ValueError(f"{spec!r}: expected at least one problem")
  return list(problems.values())


def read_each(
  specs: Sequence[str],
  counts: Sequence[int],
  seed: int = 0,
  language: str = ALL,
) -> list[list[Problem]]:
  """Reads several sources, at most `counts[i]` problems from `specs[i]`."""
  return [
    read(spec, count, seed, language)
    for spec, count in zip(specs, counts, strict=True)
  ]


def _gym(names: str, count: int, seed: int) -> Iterable[Any]:
  """Yields entries of the sets in turn, at least `count` in total."""
  parsed = [calls.read(part) for part in names.split("+")]
  size = -(-count // len(parsed))
  streams = [
    gym_sets.entries(name, size, seed, settings) for name, settings in parsed
  ]
  for entries in zip(*streams, strict=True):
    yield from entries
