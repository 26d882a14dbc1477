"""Benchmarks of programming: HumanEval and MBPP, and their extended tests.

| name | a reply is right if |
| --- | --- |
| `humaneval`, `mbpp` | all of the published assertions hold |
| `humaneval_plus`, `mbpp_plus` | on EvalPlus's inputs it gives what the
  canonical solution gives |

A HumanEval reply may be a whole program in a fence, or the rest of the function
that the prompt began. Programs run in the executor; what can be compared is
compared outside of the program's process (`grading/unit_tests.py`).
"""

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from azr_jax.benchmarks import frames
from azr_jax.benchmarks.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor, Job
from azr_jax.grading import assertions, futures, literals, unit_tests, values

# Where a function that was begun has ended, if no fence says so.
_END = re.compile(r"\n(?:class |def |#|@|if |print\(|```|assert )")


def read_humaneval(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items of HumanEval's public layout, and of HumanEval+'s."""
  return [
    Item(
      str(record["task_id"]),
      "Complete this Python function:\n```python\n"
      f"{record['prompt'].rstrip()}\n```",
      {
        "begun": record["prompt"],
        "entry": record["entry_point"],
        "tests": record.get("test", ""),
        **_plus(record, record["prompt"]),
      },
    )
    for record in raw
  ]


def read_mbpp(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items of MBPP's public layouts (full, sanitized), and of MBPP+'s."""
  found = []
  for record in raw:
    tests = record.get("test_list") or []
    setup = record.get("test_setup_code") or "\n".join(
      record.get("test_imports") or []
    )
    asked = record.get("text") or record["prompt"]
    shown = "\n".join(tests)
    found.append(
      Item(
        str(record["task_id"]),
        f"{asked}\nThe program has to pass:\n```python\n{shown}\n```",
        {
          "begun": "",
          "entry": record.get("entry_point"),
          "tests": "\n".join([setup, *tests]),
          **_plus(record, ""),
        },
      )
    )
  return found


def _plus(record: Mapping[str, Any], begun: str) -> dict[str, Any]:
  """What EvalPlus adds: inputs, and a solution that knows the outputs."""
  if "plus_input" not in record:
    return {}
  return {
    "inputs": [*record["base_input"], *record["plus_input"]],
    "solution": begun + record["canonical_solution"],
    "tolerance": float(record.get("atol") or 0.0),
  }


def program(item: Item, reply: str) -> str:
  """The program that a reply gives, with what the prompt began."""
  begun, entry = item.reference["begun"], item.reference["entry"]
  fence = frames.code(reply)
  if fence is None:
    rest = frames.answer_part(reply)
    end = _END.search(rest)
    fence = rest[: end.start()] if end else rest
  if begun and entry and not re.search(rf"def\s+{re.escape(entry)}\b", fence):
    return begun + fence
  # What the prompt imports is there, whether the reply repeats it or not.
  imports = re.findall(r"^(?:import|from) .+$", begun, re.MULTILINE)
  return "\n".join([*imports, fence])


def grade_tests(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """Runs the published assertions on a reply's program."""
  return submit_program(executor, item, program(item, reply))


def submit_program(
  executor: Executor, item: Item, code: str
) -> "Future[Grade]":
  """Runs the published assertions on a program."""
  tests = assertions.read_tests(
    item.reference["tests"], item.reference["entry"]
  )
  return futures.then(
    unit_tests.submit(executor, code, tests),
    lambda report: Grade(report.correct, report.summary()),
  )


def grade_plus(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """Compares a reply's program with the canonical solution, input by input.

  Rows of the layout without inputs have assertions, which are run instead.
  """
  if "inputs" not in item.reference:
    return grade_tests(executor, item, reply)
  return submit_plus(executor, item, program(item, reply))


def submit_plus(executor: Executor, item: Item, code: str) -> "Future[Grade]":
  """Compares a program with the canonical solution."""
  entry = item.reference["entry"]
  inputs = tuple(
    ", ".join(map(repr, arguments)) for arguments in item.reference["inputs"]
  )
  both = [
    executor.submit(Job(name, source, inputs, entry))
    for name, source in (
      ("solution", item.reference["solution"]),
      ("reply", code),
    )
  ]
  tolerance = item.reference["tolerance"]

  def judge(results: tuple[Any, ...]) -> Grade:
    gold, found = results
    equal = [
      want is not None and got is not None and _close(want, got, tolerance)
      for want, got in zip(gold.outputs, found.outputs, strict=True)
    ]
    return Grade(
      bool(equal) and all(equal),
      f"{sum(equal)} of {len(equal)} inputs {found.error or ''}".strip(),
    )

  return futures.then(futures.gather(both), judge)


def _close(want: str, got: str, tolerance: float) -> bool:
  """Equality as Python has it, with room for floats anywhere inside."""
  try:
    one, other = (
      values.plain_value(literals.typed_key(text)) for text in (want, got)
    )
    return _near(one, other, tolerance)
  except (literals.ParseError, RecursionError):
    return want == got


def _near(one: Any, other: Any, tolerance: float) -> bool:
  if isinstance(one, float) or isinstance(other, float):
    try:
      return one == other or abs(one - other) <= max(tolerance, 1e-6 * abs(one))
    except TypeError:
      return False
  if isinstance(one, list | tuple) and isinstance(other, list | tuple):
    return (
      type(one) is type(other)
      and len(one) == len(other)
      and all(_near(a, b, tolerance) for a, b in zip(one, other, strict=True))
    )
  if isinstance(one, dict) and isinstance(other, dict):
    return one.keys() == other.keys() and all(
      _near(value, other[key], tolerance) for key, value in one.items()
    )
  return bool(one == other)


BENCHMARKS = (
  Benchmark(
    "humaneval",
    "hf:openai/openai_humaneval:test",
    read_humaneval,
    "code",
    grade_tests,
  ),
  Benchmark(
    "humaneval_plus",
    "hf:evalplus/humanevalplus:test",
    read_humaneval,
    "code",
    grade_plus,
  ),
  Benchmark(
    "mbpp",
    "hf:google-research-datasets/mbpp/full:test",
    read_mbpp,
    "code",
    grade_tests,
  ),
  Benchmark(
    "mbpp_plus", "hf:evalplus/mbppplus:test", read_mbpp, "code", grade_plus
  ),
)
