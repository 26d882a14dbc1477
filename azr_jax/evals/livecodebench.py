"""`livecodebench`: contest problems. A program must pass all tests.

A problem's tests either call a method of `Solution`, or feed standard input and
check standard output. The executor has neither files nor a console, so
in-memory streams replace both. Outputs of any length are compared by digest
(`grading/digests.py`): lines without surrounding blanks, numbers by value. The
program runs in the harness of `grading/harness.py`. As in LiveCodeBench's own
runner, common modules of the standard library are already imported. The program
may import numpy if the executor's settings list it (the profile `benchmarks`).
"""

import functools
import json
from concurrent.futures import Future
from typing import Any

from azr_jax.evals import answer_extraction, livecodebench_files
from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.evals.livecodebench_files import ContestSettings
from azr_jax.executor import Executor, Job, futures
from azr_jax.grading import digests, harness
from azr_jax.grading.outcome import Outcome, limit_of

NAME = "livecodebench"
# The response is run from a string, so it cannot rebind the harness's names.
_WITH_CONSOLE = """
def run(text, run=exec):
{helpers}
  import io
  begin()
  sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8")
  sys.stdout = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
  def open_console(file, *how, **more):
    if file not in (0, "/dev/stdin"):
      raise FileNotFoundError(file)
    return sys.stdin
  def read_line(prompt=""):
    line = sys.stdin.readline()
    if not line:
      raise EOFError
    return line.rstrip("\\n")
  written = sys.stdout
  names = own_names()
  run({imports}, names)
  names |= {{"__name__": "__main__", "input": read_line, "open": open_console,
            "exit": sys.exit, "quit": sys.exit}}
  try:
    run({code}, names)
  except SystemExit:
    pass
  written.flush()
  return of_printed(written.buffer.getvalue().decode("utf-8", "replace"))
"""
_WITH_CALL = """
def run(text, run=exec):
{helpers}
  import json
  begin()
  arguments = [json.loads(line) for line in text.split("\\n") if line.strip()]
  names = own_names()
  run({imports}, names)
  run({code}, names)
  solution = names["Solution"]() if "Solution" in names else None
  function = getattr(solution, {name}) if solution else names[{name}]
  return of_json(function(*arguments))
"""
_HELPERS = harness.BEGIN + harness.source(digests)
# Modules whose names programs can use without an import. `builtins` comes last
# to restore names that others hide, such as `pow`.
_PREIMPORTED_MODULES = (
  "string re datetime collections heapq bisect copy math random statistics "
  "itertools functools operator io sys json typing builtins"
).split()
_IMPORTS = "\n".join(
  [f"from {name} import *" for name in _PREIMPORTED_MODULES]
  + [
    f"import {', '.join(_PREIMPORTED_MODULES)}",
    "sys.setrecursionlimit(50_000)",
  ]
)
# CPU seconds per test. LiveCodeBench's own runner allows 6 s of wall time.
TIMEOUT_S = 6.0
_LIBRARIES = ("numpy",)
_DIGITS_AT_ONCE = 4000


def grade(
  executor: Executor, item: Item, response: str
) -> "Future[ItemOutcome]":
  """Runs a response's program on all tests."""
  function = item.reference["function"]
  names = (function, "Solution") if function else ()
  code = answer_extraction.code(response, names)
  if code is None:
    return futures.done(ItemOutcome(False, "no program"))
  return submit(executor, item, code)


def submit(executor: Executor, item: Item, code: str) -> "Future[ItemOutcome]":
  """Runs a program on all tests."""
  tests, function = item.hidden.unpack(), item.reference["function"]
  template = _WITH_CALL if function else _WITH_CONSOLE
  program = template.format(
    helpers=_HELPERS,
    imports=ascii(_IMPORTS),
    code=ascii(code),
    name=ascii(function),
  )
  job = Job(
    item.id,
    program,
    tuple(ascii(test["input"]) for test in tests),
    "run",
    per_call=True,
    libraries=tuple(n for n in _LIBRARIES if n in executor.libraries),
  )
  digest = _json_digest if function else digests.of_printed
  expected = [repr(digest(test["output"])) for test in tests]

  def judge(result: Any) -> ItemOutcome:
    holds = [
      output == wanted
      for wanted, output in zip(expected, result.outputs, strict=True)
    ]
    detail = f"{sum(holds)} of {len(tests)} tests {result.error or ''}".strip()
    limit = limit_of(holds, result, executor.timeout_s < TIMEOUT_S)
    is_correct = all(holds) and len(tests) > 0
    return ItemOutcome.of(Outcome.of(is_correct, result), detail, limit)

  return futures.then(executor.submit(job), judge)


def _json_digest(text: str) -> str | None:
  """Returns the digest of a JSON text, or None if no output can match it."""
  try:
    return digests.of_json(json.loads(text, parse_int=_int))
  except (ValueError, RecursionError):
    return None


def _int(digits: str) -> int:
  """Parses an integer of any length; `int` refuses long ones by default."""
  sign, digits = (-1, digits[1:]) if digits[0] == "-" else (1, digits)
  value = 0
  for start in range(0, len(digits), _DIGITS_AT_ONCE):
    part = digits[start : start + _DIGITS_AT_ONCE]
    value = value * 10 ** len(part) + int(part)
  return sign * value


def for_release(*, release: str, first_date: str, last_date: str) -> Benchmark:
  """Returns the benchmark for a release and a range of contest dates."""
  return Benchmark(
    NAME,
    livecodebench_files.SOURCE,
    functools.partial(
      livecodebench_files.read,
      release=release,
      first_date=first_date,
      last_date=last_date,
    ),
    "code",
    grade,
    opens_data=True,
    timeout_s=TIMEOUT_S,
  )


BENCHMARKS = (for_release(**vars(ContestSettings())),)
