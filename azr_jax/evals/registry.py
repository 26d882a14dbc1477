"""All benchmarks by name, groups of them, and AZR's averages (table 1)."""

import re
from collections.abc import Mapping, Sequence

from azr_jax.evals import (
  countdown,
  cruxeval,
  livecodebench,
  mathematics,
  multiple_choice,
  programming,
  programs_heldout,
  questions,
)
from azr_jax.evals.benchmark import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
  benchmark.name: benchmark
  for module in (
    programs_heldout,
    countdown,
    programming,
    livecodebench,
    cruxeval,
    mathematics,
    multiple_choice,
    questions,
  )
  for benchmark in module.BENCHMARKS
}
# The groups that AZR's table 1 averages, seed 000.
CODE = ("humaneval_plus", "mbpp_plus", "livecodebench")
MATH = ("aime24", "aime25", "amc23", "math500", "minerva", "olympiadbench")
PUBLIC = tuple(
  name
  for name in BENCHMARKS
  if name not in ("programs_heldout", "countdown", "problems", "questions")
)
# Without a source that `tasks/records.py` could read.
NEED_DATA = ("gpqa", "bbh", "problems", "questions")
# NAME=PATH, where PATH may have commas and signs of equality too.
_NAMED = re.compile(
  rf"(?:^|,)({'|'.join(BENCHMARKS)})=(.*?)(?=,(?:{'|'.join(BENCHMARKS)})=|$)"
)
GROUPS = {"all": PUBLIC, "code": CODE, "math": MATH}


def averages(scores: Mapping[str, float]) -> dict[str, float]:
  """Means over code, over math, and of both, where all their scores are.

  Args:
    scores: pass@1 of benchmarks by name.
  """
  found = {
    f"average/{group}": sum(scores[name] for name in names) / len(names)
    for group, names in (("code", CODE), ("math", MATH))
    if all(name in scores for name in names)
  }
  if len(found) == 2:
    found["average/overall"] = sum(found.values()) / 2
  return found


def names(text: str) -> tuple[str, ...]:
  """The benchmarks that a comma-separated list of names and groups means.

  Raises:
    ValueError: a name is unknown.
  """
  found: dict[str, None] = {}
  for name in text.split(","):
    if name not in BENCHMARKS and name not in GROUPS:
      raise ValueError(
        f"benchmark {name!r}: expected one of {tuple(BENCHMARKS)}, or a group "
        f"of {tuple(GROUPS)}"
      )
    found |= dict.fromkeys(GROUPS.get(name, (name,)))
  return tuple(found)


def paths(asked: Sequence[str], data: str) -> dict[str, str]:
  """The path of each benchmark's data, of those that are given.

  Args:
    asked: names of benchmarks.
    data: a path, if one is asked for; or NAME=PATH between commas.

  Raises:
    ValueError: it is not clear whose data it is.
  """
  if not data:
    return {}
  parts = _NAMED.findall(data)
  if not parts:
    if len(asked) > 1:
      raise ValueError(
        f"data={data!r}: expected NAME=PATH, between commas, for several "
        "benchmarks"
      )
    named, equals, _ = data.partition("=")
    if equals and named.isidentifier():
      raise ValueError(
        f"data={data!r} names {named!r}: expected of {tuple(asked)}"
      )
    return {asked[0]: data}
  unknown = {name for name, _ in parts} - set(asked)
  if unknown:
    raise ValueError(
      f"data={data!r} names {sorted(unknown)}: expected of {tuple(asked)}"
    )
  return dict(parts)
