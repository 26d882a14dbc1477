"""`livecodebench`: contest problems; a program has to pass all their tests.

A problem's tests either call a method of `Solution` or write to standard input
and read standard output. The program runs in the executor, which has neither
files nor a console, so strings replace both. The output is compared here, line
by line, without trailing spaces, and numbers as numbers. The sandbox has no
threads, so `Thread.start` runs the thread to its end. A program may use names
of the standard library that it does not import, as LiveCodeBench's own runner
lets it, and import numpy if the executor's settings list it (the profile
`benchmarks`).
"""

import functools
import json
import re
from collections.abc import Sequence
from concurrent.futures import Future
from decimal import Decimal
from typing import Any

from azr_jax.evals import answer_extraction, livecodebench_files
from azr_jax.evals.benchmark import Benchmark, Grade, Item
from azr_jax.evals.livecodebench_files import ContestSettings
from azr_jax.executor import Executor, Job, futures
from azr_jax.grading import literals, values
from azr_jax.grading.outcome import Outcome

NAME = "livecodebench"
# The response is a string here, so it cannot rebind the names below.
_WITH_CONSOLE = """
import io, sys, threading
CODE, IMPORTS = {code}, {imports}
threading.Thread.start = lambda self: self.run()
threading.Thread.join = lambda self, timeout=None: None
threading.stack_size = lambda size=0: 0
def run(text):
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
  names = {{}}
  exec(IMPORTS, names)
  names |= {{"__name__": "__main__", "input": read_line, "open": open_console,
            "exit": sys.exit, "quit": sys.exit}}
  try:
    exec(compile(CODE, "<program>", "exec"), names)
  except SystemExit:
    pass
  written.flush()
  return written.buffer.getvalue().decode("utf-8", "replace")
"""
_WITH_CALL = """
{imports}
{code}
def run(*arguments):
  solution = Solution() if "Solution" in globals() else None
  function = getattr(solution, {name}) if solution else globals()[{name}]
  return function(*arguments)
"""
# The modules whose names a program need not import. The last one gives back the
# builtins that others hide, such as `pow`.
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
# CPU seconds per test; LiveCodeBench's own runner has as many of wall clock.
TIMEOUT_S = 6.0
_LIBRARIES = ("numpy",)
_NUMBER = re.compile(r"[-+]?\d{1,400}(?:\.\d{1,400})?(?:[eE][-+]?\d{1,3})?")


def grade(executor: Executor, item: Item, response: str) -> "Future[Grade]":
  """Runs a response's program on all tests."""
  function = item.reference["function"]
  names = (function, "Solution") if function else ()
  code = answer_extraction.code(response, names)
  if code is None:
    return futures.done(Grade(False, "no program"))
  return submit(executor, item, code)


def submit(executor: Executor, item: Item, code: str) -> "Future[Grade]":
  """Runs a program on all tests."""
  tests, function = item.hidden.unpack(), item.reference["function"]
  if function:
    program = _WITH_CALL.format(
      imports=_IMPORTS, code=code, name=repr(function)
    )
    inputs = tuple(_arguments(test["input"]) for test in tests)
  else:
    program = _WITH_CONSOLE.format(code=ascii(code), imports=ascii(_IMPORTS))
    inputs = tuple(ascii(test["input"]) for test in tests)
  job = Job(
    item.id,
    program,
    inputs,
    "run",
    per_call=True,
    libraries=tuple(n for n in _LIBRARIES if n in executor.libraries),
  )

  def judge(result: Any) -> Grade:
    is_same = _is_same_value if function else _is_same_text
    passed = sum(
      output is not None and is_same(test["output"], output)
      for test, output in zip(tests, result.outputs, strict=True)
    )
    detail = f"{passed} of {len(tests)} tests {result.error or ''}".strip()
    return Grade.of(Outcome.of(passed == len(tests) > 0, result), detail)

  return futures.then(executor.submit(job), judge)


def _arguments(text: str) -> str:
  """Converts a test's input, one JSON value per line, to call arguments."""
  return ", ".join(
    repr(json.loads(line)) for line in text.split("\n") if line.strip()
  )


def _is_same_value(expected: str, output: str) -> bool:
  try:
    value = values.plain_value(literals.typed_key(output))
    return _tuples_to_lists(value) == json.loads(expected)
  except (ValueError, RecursionError):
    return False


def _tuples_to_lists(value: Any) -> Any:
  """Replaces tuples by lists, because JSON has no tuples."""
  if isinstance(value, list | tuple):
    return [_tuples_to_lists(part) for part in value]
  return value


def _is_same_text(expected: str, output: str) -> bool:
  """Compares printed text line by line, and lines of numbers by value."""
  try:
    text = values.plain_value(literals.typed_key(output))
  except literals.ParseError:
    return False
  if not isinstance(text, str):
    return False  # The program's last line was not reached.
  want, got = _lines(expected), _lines(text)
  return len(want) == len(got) and all(
    a == b or _are_same_numbers(a, b) for a, b in zip(want, got, strict=True)
  )


def _lines(text: str) -> Sequence[str]:
  return [line.rstrip() for line in text.strip().split("\n")]


def _are_same_numbers(want: str, got: str) -> bool:
  """Returns whether two lines hold exactly the same finite numbers."""
  wanted, printed = want.split(), got.split()
  if not all(_NUMBER.fullmatch(word) for word in (*wanted, *printed)):
    return False
  return list(map(Decimal, wanted)) == list(map(Decimal, printed))


def for_release(settings: ContestSettings) -> Benchmark:
  """Returns the benchmark with the problems of a release and some dates."""
  return Benchmark(
    NAME,
    livecodebench_files.SOURCE,
    functools.partial(livecodebench_files.read, settings=settings),
    "code",
    grade,
    opens_data=True,
    timeout_s=TIMEOUT_S,
  )


BENCHMARKS = (for_release(ContestSettings()),)
