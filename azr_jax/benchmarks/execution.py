"""Benchmarks of reading programs: CRUXEval, and LiveCodeBench's execution.

| name | asked is | right is |
| --- | --- | --- |
| `cruxeval_o`, `livecodebench_execution` | the value of a call | the value |
| `cruxeval_i` | arguments | any that give the value, by running them |

Values are equal by type and value (`grading/values.py`), never evaluated.
"""

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from azr_jax.benchmarks import frames
from azr_jax.benchmarks.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor
from azr_jax.grading import futures, programs
from azr_jax.grading.values import values_equal

# What stands before and after a value where a reply repeats the assertion.
_ASSERTED = re.compile(r"(?:assert\s+)?\w+\(.*\)\s*==\s*(.+)", re.DOTALL)
_CALL = re.compile(r"(?:assert\s+)?f\((.*)\)(?:\s*==.*)?", re.DOTALL)


def read_outputs(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items that ask for the value of a call, of CRUXEval's layout."""
  return [
    Item(
      str(record["id"]),
      f"What does this call give?\n```python\n{record['code']}\n```\n"
      f"f({record['input']})",
      {"output": record["output"]},
    )
    for record in raw
  ]


def read_inputs(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items that ask for arguments, of CRUXEval's layout."""
  return [
    Item(
      str(record["id"]),
      "Find arguments with which this function gives the value below.\n"
      f"```python\n{record['code']}\n```\nf(?) == {record['output']}",
      {"code": record["code"], "output": record["output"]},
    )
    for record in raw
  ]


def read_livecodebench(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items of LiveCodeBench's execution scenario: code, input, output."""
  return [
    Item(
      str(record.get("id", record.get("question_id", index))),
      f"What does this call give?\n```python\n{record['code']}\n```\n"
      f"{record['input']}",
      {"output": record["output"]},
      str(record.get("difficulty", "")),
    )
    for index, record in enumerate(raw)
  ]


def grade_output(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """Compares the value in a reply with the reference."""
  del executor
  answer = frames.short(reply) or ""
  asserted = _ASSERTED.fullmatch(answer)
  answer = asserted[1].strip() if asserted else answer
  return futures.done(
    Grade(values_equal(item.reference["output"], answer), answer[:200])
  )


def grade_input(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """Runs the function on the arguments in a reply."""
  answer = frames.short(reply, "input") or ""
  call = _CALL.fullmatch(answer)
  answer = call[1].strip() if call else answer
  return futures.then(
    programs.submit_abduction_answer(
      executor, item.reference["code"], item.reference["output"], answer
    ),
    lambda correct: Grade(correct, answer[:200]),
  )


_CRUXEVAL = "hf:cruxeval-org/cruxeval:test"
BENCHMARKS = (
  Benchmark("cruxeval_i", _CRUXEVAL, read_inputs, "arguments", grade_input),
  Benchmark("cruxeval_o", _CRUXEVAL, read_outputs, "value", grade_output),
  Benchmark(
    "livecodebench_execution",
    "hf:livecodebench/execution-v2:test",
    read_livecodebench,
    "value",
    grade_output,
  ),
)
