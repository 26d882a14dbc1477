"""Benchmarks of reading programs: CRUXEval, and LiveCodeBench's execution.

| name | asked is | right is |
| --- | --- | --- |
| `cruxeval_o`, `livecodebench_execution` | the value of a call | the value |
| `cruxeval_i` | arguments | any that give the value, by running them |

Values are equal by type and value (`grading/values.py`), never evaluated.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from azr_jax.evals import prompt_formats
from azr_jax.evals.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor, futures
from azr_jax.grading import literals, programs
from azr_jax.grading.values import values_equal

_ASSERT = re.compile(r"assert\s+")
# As LaTeX writes what stands in a box.
_ESCAPED = re.compile(r"\\([{}_#%&$])|\\text\{([^{}]*)\}")


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
  answer = prompt_formats.short(reply) or ""
  right = any(
    values_equal(item.reference["output"], _value(text))
    for text in _readings(answer)
  )
  return futures.done(Grade(right, answer[:200]))


def grade_input(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """Runs the function on the arguments in a reply."""
  answer = _readings(prompt_formats.short(reply, "input") or "")[-1]
  answer = _arguments(answer)
  return futures.then(
    programs.submit_abduction_answer(
      executor, item.reference["code"], item.reference["output"], answer
    ),
    lambda correct: Grade(correct, answer[:200]),
  )


def _readings(text: str) -> list[str]:
  """The text, and what it is without LaTeX's escapes, if it has any."""
  plain = _ESCAPED.sub(lambda m: m[1] or m[2] or "", text)
  return list(dict.fromkeys((text, plain)))


def _value(text: str) -> str:
  """The right side of `f(...) == ...`, perhaps asserted, or the text itself."""
  text = _ASSERT.sub("", text, count=1).strip()
  match _expression(text):
    case ast.Compare(ast.Call(), [ast.Eq()], [right]):
      return ast.get_source_segment(text, right) or ""
  return text


def _arguments(text: str) -> str:
  """The arguments of a call of `f`, perhaps compared, or the text itself."""
  text = _ASSERT.sub("", text, count=1).strip()
  node = _expression(text)
  if isinstance(node, ast.Compare):
    node = node.left
  match node:
    case ast.Call(ast.Name("f") as name):
      # Up to the bracket that closes the call.
      whole = ast.get_source_segment(text, node) or ""
      return whole[len(name.id) :].strip()[1:-1].strip()
  return text


def _expression(text: str) -> ast.expr | None:
  try:
    node = literals.guarded_parse(text, "eval")
  except literals.ParseError:
    return None
  return node.body if isinstance(node, ast.Expression) else None


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
