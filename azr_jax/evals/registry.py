"""All benchmarks by name, groups of them, and the averages of AZR's table 1."""

import math
import re
from collections.abc import Mapping, Sequence

from azr_jax.config import named
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
# The groups of benchmarks averaged in table 1 of AZR (arXiv 2505.03335).
CODE = ("humaneval_plus", "mbpp_plus", "livecodebench")
MATH = ("aime24", "aime25", "amc23", "math500", "minerva", "olympiadbench")
PUBLIC = tuple(
  name
  for name in BENCHMARKS
  if name not in ("programs_heldout", "countdown", "problems", "questions")
)
# These benchmarks have no default data; they need --data.
NEED_DATA = ("gpqa", "bbh", "problems", "questions")
GROUPS = {"all": PUBLIC, "code": CODE, "math": MATH}


def find(name: str) -> Benchmark:
  """Returns the benchmark with a name.

  Args:
    name: a key of `BENCHMARKS`, or MODULE:NAME of a `Benchmark`.

  Raises:
    ValueError: there is no such benchmark, or a user's benchmark has the name
      of a built-in one.
  """
  try:
    found = named.choose(
      name, BENCHMARKS, lambda x: isinstance(x, Benchmark), "a Benchmark"
    )
  except ValueError as error:
    raise ValueError(f"benchmark {name!r}: expected {error}") from error
  if name not in BENCHMARKS and found.name in BENCHMARKS:
    raise ValueError(
      f"benchmark {name!r}: expected another name than {found.name!r}, which "
      "is a built-in benchmark"
    )
  return found


def averages(scores: Mapping[str, float]) -> dict[str, float]:
  """Returns the averages over code and over math, and the mean of these two.

  An average is left out if a score of its group is missing.

  Args:
    scores: pass@1 by benchmark name.
  """
  means = {
    f"average/{group}": sum(scores[name] for name in names) / len(names)
    for group, names in (("code", CODE), ("math", MATH))
    if all(name in scores for name in names)
  }
  if len(means) == 2:
    means["average/overall"] = sum(means.values()) / 2
  return means


def average_errors(errors: Mapping[str, float]) -> dict[str, float]:
  """Returns the standard errors of `averages`, over items.

  Benchmarks have different items, so their errors are independent.

  Args:
    errors: standard errors of pass@1 by benchmark name.
  """
  found = {
    f"average/{group}_stderr": math.hypot(*[errors[n] for n in names])
    / len(names)
    for group, names in (("code", CODE), ("math", MATH))
    if all(name in errors for name in names)
  }
  if len(found) == 2:
    found["average/overall_stderr"] = math.hypot(*found.values()) / 2
  return found


def names(text: str) -> tuple[str, ...]:
  """Expands a comma-separated list of benchmarks and groups into benchmarks.

  Entries of the form MODULE:NAME are kept; `find` resolves them.

  Raises:
    ValueError: a name is unknown.
  """
  expanded: dict[str, None] = {}
  for name in text.split(","):
    if name not in BENCHMARKS and name not in GROUPS:
      if not named.is_spec(name):
        raise ValueError(
          f"benchmark {name!r}: expected one of {tuple(BENCHMARKS)}, one of "
          f"the groups {tuple(GROUPS)}, or MODULE:NAME of a Benchmark"
        )
      find(name)
    expanded |= dict.fromkeys(GROUPS.get(name, (name,)))
  return tuple(expanded)


def numbers(text: str) -> dict[str, int]:
  """Parses a number per benchmark, such as `gsm8k=100,math=50`.

  Args:
    text: comma-separated NAME=NUMBER pairs. A name may be a group. If several
      pairs match a benchmark, the last one wins.

  Raises:
    ValueError: a name is unknown, or a number is not above 0.
  """
  found: dict[str, int] = {}
  for pair in text.split(",") if text else ():
    name, _, number = pair.partition("=")
    if not (number.isascii() and number.isdecimal() and int(number)):
      raise ValueError(f"{pair!r} has no number above 0")
    found |= {find(one).name: int(number) for one in names(name)}
  return found


def paths(benchmarks: Sequence[str], data: str) -> dict[str, str]:
  """Parses the data paths of benchmarks.

  Args:
    benchmarks: the benchmarks to run, as returned by `names`.
    data: NAME=PATH,NAME=PATH..., or just a path if there is one benchmark.

  Returns:
    Path by benchmark.

  Raises:
    ValueError: a path cannot be assigned to a benchmark.
  """
  if not data:
    return {}
  by_name = {find(one).name: one for one in benchmarks}
  # A path may contain commas and equals signs.
  name = "|".join(map(re.escape, BENCHMARKS | by_name))
  named_paths = re.findall(rf"(?:^|,)({name})=(.*?)(?=,(?:{name})=|$)", data)
  if not named_paths:
    if len(benchmarks) > 1:
      raise ValueError(
        f"data={data!r}: expected NAME=PATH,NAME=PATH... for several benchmarks"
      )
    name, equals, _ = data.partition("=")
    if equals and name.isidentifier():
      raise ValueError(
        f"data={data!r} names {name!r}: expected one of {tuple(by_name)}"
      )
    return {benchmarks[0]: data}
  unknown = {name for name, _ in named_paths} - by_name.keys()
  if unknown:
    raise ValueError(
      f"data={data!r} names {sorted(unknown)}: expected some of "
      f"{tuple(by_name)}"
    )
  return {by_name[name]: path for name, path in named_paths}
