"""Code-reasoning benchmarks: CRUXEval and LiveCodeBench's execution scenario.

| name | the question | a correct answer |
| --- | --- | --- |
| `cruxeval_o`, `livecodebench_execution` | the value of a call | the value |
| `cruxeval_i` | arguments for a value | any arguments that return the value |

Values are compared by type and value (`grading/values.py`), arguments by
running the function on them. An answer that is an expression is evaluated
separately (`grading/expressions.py`). If a record's own arguments are not
literals, an answer may contain objects such as a `lambda`, too.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from azr_jax.evals import answer_extraction
from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.executor import Executor, futures
from azr_jax.grading import literals, programs
from azr_jax.grading.outcome import best
from azr_jax.tasks.programs.task import ABDUCTION, DEDUCTION, Triplet

_ASSERT = re.compile(r"assert\s+")
# Escapes that models write inside a LaTeX box, e.g. around brackets.
_LATEX_ESCAPE = re.compile(r"\\([{}_#%&$])|\\text\{([^{}]*)\}")


def read_outputs(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Converts CRUXEval records to items that ask for the value of a call."""
  return [
    Item(
      str(record["id"]),
      f"What does this call give?\n```python\n{record['code']}\n```\n"
      f"f({record['input']})",
      {"output": record["output"]},
      hidden=_triplet(record["code"], record["input"], record["output"]),
    )
    for record in raw
  ]


def _triplet(code: Any, argument_text: Any, output: Any) -> Triplet:
  """Returns the program task of a record.

  Raises:
    ValueError: a field is not a string.
  """
  for value in (code, argument_text, output):
    if not isinstance(value, str):
      raise ValueError(f"expected strings, not {value!r:.80}")
  return Triplet(code, argument_text, output)


def read_inputs(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Converts CRUXEval records to items that ask for arguments."""
  return [
    Item(
      str(record["id"]),
      "Find arguments with which this function gives the value below.\n"
      f"```python\n{record['code']}\n```\nf(?) == {record['output']}",
      {
        "code": record["code"],
        "output": record["output"],
        "objects": not literals.are_literal_arguments(record["input"]),
      },
      hidden=_triplet(record["code"], record["input"], record["output"]),
    )
    for record in raw
  ]


def read_livecodebench(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Converts records of LiveCodeBench's execution scenario to items."""
  return [
    Item(
      str(record.get("id", record.get("question_id", index))),
      f"What does this call give?\n```python\n{record['code']}\n```\n"
      f"{record['input']}",
      {"output": record["output"]},
      str(record.get("difficulty", "")),
      hidden=_called_f(record["code"], record["input"], record["output"]),
    )
    for index, record in enumerate(raw)
  ]


def _called_f(code: Any, call: Any, output: Any) -> Triplet:
  """Returns the program task of a call, with the called function as `f`.

  A text that is not a call is taken as the arguments of `f`.
  """
  triplet = _triplet(code, call, output)
  match _expression(call):
    case ast.Call(ast.Name(name)) as node:
      text = ast.get_source_segment(call, node) or ""
      arguments = text[len(name) :].strip()[1:-1].strip()
    case _:
      return triplet
  if name == "f":
    program = code
  elif re.search(r"\bf\b", code):
    program = f"{code}\n\nf = {name}"
  else:
    program = re.sub(rf"\b{re.escape(name)}\b", "f", code)
  return Triplet(program, arguments, output)


def grade_output(
  executor: Executor, item: Item, response: str
) -> "Future[ItemOutcome]":
  """Compares a response's value with the reference."""
  answer = answer_extraction.short_answer(response) or ""
  reference = item.reference["output"]
  pending = [
    programs.submit_deduction(executor, reference, _value(text), True)
    for text in _latex_variants(answer)
  ]
  return futures.then(
    futures.gather(pending),
    lambda outcomes: ItemOutcome.of(best(outcomes), answer[:200]),
  )


def grade_input(
  executor: Executor, item: Item, response: str
) -> "Future[ItemOutcome]":
  """Runs the function on a response's arguments."""
  answer = answer_extraction.short_answer(response, "input")
  if answer is None:
    return futures.done(ItemOutcome(False))
  answer = _arguments(_latex_variants(answer)[-1])
  return futures.then(
    programs.submit_abduction_answer(
      executor,
      item.reference["code"],
      item.reference["output"],
      answer,
      item.reference["objects"],
    ),
    lambda outcome: ItemOutcome.of(outcome, answer[:200]),
  )


def _latex_variants(text: str) -> list[str]:
  """Returns the text and, if it has LaTeX escapes, the unescaped text."""
  plain = _LATEX_ESCAPE.sub(lambda m: m[1] or m[2] or "", text)
  return list(dict.fromkeys((text, plain)))


def _value(text: str) -> str:
  """Returns the right side of `[assert] f(...) == ...`, or the whole text."""
  text = _ASSERT.sub("", text, count=1).strip()
  match _expression(text):
    case ast.Compare(ast.Call(), [ast.Eq()], [right]):
      return ast.get_source_segment(text, right) or ""
  return text


def _arguments(text: str) -> str:
  """Returns the arguments in `[assert] f(...) [== ...]`, or the whole text."""
  text = _ASSERT.sub("", text, count=1).strip()
  node = _expression(text)
  if isinstance(node, ast.Compare):
    node = node.left
  match node:
    case ast.Call(ast.Name("f") as name):
      call = ast.get_source_segment(text, node) or ""
      return call[len(name.id) :].strip()[1:-1].strip()
  return text


def _expression(text: str) -> ast.expr | None:
  """Parses a text as an expression, or returns None if it is not one."""
  try:
    node = literals.guarded_parse(text, "eval")
  except literals.ParseError:
    return None
  return node.body if isinstance(node, ast.Expression) else None


_CRUXEVAL = "hf:cruxeval-org/cruxeval:test"
BENCHMARKS = (
  Benchmark(
    "cruxeval_i",
    _CRUXEVAL,
    read_inputs,
    "arguments",
    grade_input,
    task_of=lambda item: (ABDUCTION, item.hidden),
  ),
  Benchmark(
    "cruxeval_o",
    _CRUXEVAL,
    read_outputs,
    "value",
    grade_output,
    task_of=lambda item: (DEDUCTION, item.hidden),
  ),
  Benchmark(
    "livecodebench_execution",
    "hf:livecodebench/execution-v2:test",
    read_livecodebench,
    "value",
    grade_output,
    task_of=lambda item: (DEDUCTION, item.hidden),
  ),
)
