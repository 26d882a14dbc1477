"""Grades cases from standard input: JSON lines in, JSON lines out, in order.

  python -m azr_jax.grading < cases.jsonl > verdicts.jsonl

| kind | fields |
| --- | --- |
| `value` | gold, answer |
| `abduction` | code, gold_output, answer |
| `induction` | inputs, outputs, answer |

A case is {"id", "kind", ...}, a verdict {"id", "score", "correct", "detail"}.
A line that is no case gets a verdict too, whose detail says what is wrong.
"""

import argparse
import io
import json
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from azr_jax.executor import Executor
from azr_jax.executor import __main__ as executor_command
from azr_jax.grading import futures, literals, programs


class BadCase(ValueError):
  """A line that is not a case."""


def _text(case: dict[str, Any], name: str) -> str:
  value = case.get(name)
  if not isinstance(value, str):
    raise BadCase(f"{name} is {value!r:.80}; expected a string")
  return value


def _texts(case: dict[str, Any], name: str) -> list[str]:
  value = case.get(name)
  if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
    raise BadCase(f"{name} is {value!r:.80}; expected a list of strings")
  return value


def _gold(case: dict[str, Any], name: str) -> str:
  text = _text(case, name)
  try:
    literals.typed_key(text)
  except literals.ParseError:
    raise BadCase(f"{name} is {text!r:.80}; expected a value") from None
  return text


def _value(executor: Executor, case: dict[str, Any]) -> "Future[bool]":
  del executor
  gold, answer = _gold(case, "gold"), _text(case, "answer")
  return futures.done(programs.deduction_correct(gold, answer))


def _abduction(executor: Executor, case: dict[str, Any]) -> "Future[bool]":
  code, gold = _text(case, "code"), _gold(case, "gold_output")
  answer = _text(case, "answer")
  return programs.submit_abduction_answer(executor, code, gold, answer)


def _induction(executor: Executor, case: dict[str, Any]) -> "Future[bool]":
  inputs, outputs = _texts(case, "inputs"), _texts(case, "outputs")
  if len(inputs) != len(outputs) or not inputs:
    raise BadCase(
      f"{len(inputs)} inputs and {len(outputs)} outputs; expected as many"
    )
  answer = _text(case, "answer")
  return programs.submit_induction(executor, answer, inputs, outputs)


KINDS: "dict[str, Callable[[Executor, dict[str, Any]], Future[bool]]]" = {
  "value": _value,
  "abduction": _abduction,
  "induction": _induction,
}


def submit(executor: Executor, line: str) -> "Future[dict[str, Any]]":
  """Starts the grading of one line; the future holds its verdict."""
  name = ""
  try:
    case = json.loads(line)
    if not isinstance(case, dict):
      raise BadCase("expected a JSON object")
    name = case.get("id", "")
    kind = case.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
      known = ", ".join(KINDS)
      raise BadCase(f"kind is {kind!r:.80}; expected one of {known}")
    pending = KINDS[kind](executor, case)
  except (ValueError, RecursionError) as error:
    return futures.done(_verdict(name, False, f"bad case: {error}"))
  return futures.then(pending, lambda correct: _verdict(name, correct, kind))


def _verdict(name: object, correct: bool, detail: str) -> dict[str, Any]:
  score = 1.0 if correct else 0.0
  return {"id": name, "score": score, "correct": correct, "detail": detail}


def main() -> None:
  """Reads the flags and the cases."""
  parser = argparse.ArgumentParser(
    prog="azr_jax.grading",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  executor_command.add_flags(parser)
  flags = parser.parse_args()
  with executor_command.make_executor(parser, flags) as executor:
    lines = io.TextIOWrapper(sys.stdin.buffer, "utf-8", errors="replace")
    pending = [submit(executor, line) for line in lines if line.strip()]
    for future in pending:
      print(json.dumps(future.result()))


if __name__ == "__main__":
  main()
