"""Grades cases from standard input: JSON lines in, JSON lines out, in order.

  python -m azr_jax.grading < cases.jsonl > verdicts.jsonl

| kind | fields | optional fields |
| --- | --- | --- |
| `value` | gold, answer | expression |
| `abduction` | code, gold_output, answer | objects |
| `induction` | inputs, outputs, answer | |
| `unit_tests` | code, tests | entry |
| `countdown` | nums, target, response | mode |
| `math` | gold, answer or response | mode, location, two tolerances |

A case is {"id", "kind", ...}. A grade is {"id", "score", "correct", "outcome",
"detail"}, where outcome is correct, incorrect, computed, timeout or lost. A
line that is not a valid case also gets a grade, whose detail says what is
wrong. Grades are written as soon as they are known, in the order of the cases.
`gold` is the reference answer.

`value`: the answer is a literal, or a constructor of literals such as `set()`.
An expression with the right value, such as `sum([1, 2])`, is incorrect and gets
the outcome `computed`, unless the case has `expression: true`.

`abduction`: the answer may be any expression. Expressions are evaluated without
access to the reference and the code. With `objects: true`, arguments may be
objects without a literal, such as a `lambda`.

`unit_tests`: `tests` is a program of assertions, or a list of them. `entry` is
the function to pass to the tests' `check(candidate)`. The detail counts the
assertions compared outside the program's process and those trusted to it. The
program cannot use `asyncio`. A thread runs to completion when it starts, so a
thread that waits for a later one times out.

`countdown`: scores 1.0 for a correct answer, 0.1 for a wrong answer in a tag,
and 0.0 without a tag. `mode` is strict (the default), or published_code for
the rules of the published verifier.

`math`: compares an answer with the reference, by math-verify (the default
`mode`) or by rules alone. In a `response`, the answer is the last box, either
inside the last answer tag (the default `location`) or anywhere. A number may
differ from the reference by `tolerance`, or by the fraction
`relative_tolerance` of it.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from azr_jax.cli import errors
from azr_jax.executor import Executor, futures, streaming
from azr_jax.executor import __main__ as executor_command
from azr_jax.grading import (
  assertions,
  countdown_puzzle,
  literals,
  programs,
  unit_tests,
)
from azr_jax.grading import countdown as verifier
from azr_jax.grading.mathematics import extraction, grader, numbers
from azr_jax.grading.outcome import Outcome


class BadCase(ValueError):
  """A line is not a valid case. The message says why."""


@dataclasses.dataclass(frozen=True)
class CaseOutcome:
  """The outcome of a case.

  Attributes:
    outcome: the grading outcome. A correct answer scores 1.
    detail: a remark that depends on the kind of case.
    partial: the score of an incorrect answer.
  """

  outcome: Outcome
  detail: str = ""
  partial: float = 0.0


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


def _flag(case: dict[str, Any], name: str) -> bool:
  value = case.get(name, False)
  if not isinstance(value, bool):
    raise BadCase(f"{name} is {value!r:.80}; expected true or false")
  return value


def _reference(case: dict[str, Any], name: str) -> str:
  text = _text(case, name)
  try:
    literals.typed_key(text)
  except literals.ParseError:
    raise BadCase(f"{name} is {text!r:.80}; expected a value") from None
  return text


def _value(executor: Executor, case: dict[str, Any]) -> "Future[CaseOutcome]":
  reference, answer = _reference(case, "gold"), _text(case, "answer")
  may_compute = _flag(case, "expression")
  return futures.then(
    programs.submit_deduction(executor, reference, answer, may_compute),
    CaseOutcome,
  )


def _abduction(
  executor: Executor, case: dict[str, Any]
) -> "Future[CaseOutcome]":
  code, reference = _text(case, "code"), _reference(case, "gold_output")
  answer = _text(case, "answer")
  objects = _flag(case, "objects")
  return futures.then(
    programs.submit_abduction_answer(
      executor, code, reference, answer, objects
    ),
    CaseOutcome,
  )


def _induction(
  executor: Executor, case: dict[str, Any]
) -> "Future[CaseOutcome]":
  inputs, outputs = _texts(case, "inputs"), _texts(case, "outputs")
  if len(inputs) != len(outputs) or not inputs:
    raise BadCase(
      f"{len(inputs)} inputs and {len(outputs)} outputs; expected one output "
      "per input, and at least one input"
    )
  answer = _text(case, "answer")
  return futures.then(
    programs.submit_induction(executor, answer, inputs, outputs), CaseOutcome
  )


def _unit_tests(
  executor: Executor, case: dict[str, Any]
) -> "Future[CaseOutcome]":
  code = _text(case, "code")
  tests = case.get("tests")
  if isinstance(tests, list):
    tests = "\n".join(_texts(case, "tests"))
  else:
    tests = _text(case, "tests")
  entry = None if case.get("entry") is None else _text(case, "entry")
  return futures.then(
    unit_tests.submit(executor, code, assertions.read_tests(tests, entry)),
    lambda report: CaseOutcome(report.outcome, report.summary()),
  )


def _countdown(
  executor: Executor, case: dict[str, Any]
) -> "Future[CaseOutcome]":
  del executor
  mode = _choice(case, "mode", verifier.MODES)
  score = verifier.verify(
    countdown_puzzle.from_record(case), _text(case, "response"), mode
  )
  outcome = Outcome.of(score.correct)
  return futures.done(CaseOutcome(outcome, score.reason, score.value))


def _number(case: dict[str, Any], name: str) -> float:
  value = case.get(name, 0.0)
  if type(value) not in (int, float) or value < 0:
    raise BadCase(f"{name} is {value!r:.80}; expected a number of 0 or more")
  return float(value)


def _choice(case: dict[str, Any], name: str, choices: tuple[str, ...]) -> str:
  value = case.get(name, choices[0])
  if value not in choices:
    raise BadCase(f"{name} is {value!r:.80}; expected one of {choices}")
  return value


def _math(executor: Executor, case: dict[str, Any]) -> "Future[CaseOutcome]":
  mode = _choice(case, "mode", grader.MODES[::-1])
  location = _choice(case, "location", extraction.LOCATIONS)
  answer: str | None
  if "response" in case:
    answer = extraction.find_answer(_text(case, "response"), location)
  else:
    answer = _text(case, "answer")
  tolerance = numbers.Tolerance(
    _number(case, "tolerance"), _number(case, "relative_tolerance")
  )
  return futures.then(
    grader.submit(executor, _text(case, "gold"), answer, mode, tolerance),
    lambda outcome: CaseOutcome(outcome, "no answer" if answer is None else ""),
  )


# (executor, case) -> future outcome.
Grader = Callable[[Executor, dict[str, Any]], "Future[CaseOutcome]"]
KINDS: dict[str, Grader] = {
  "value": _value,
  "abduction": _abduction,
  "induction": _induction,
  "unit_tests": _unit_tests,
  "countdown": _countdown,
  "math": _math,
}


def submit(executor: Executor, line: str) -> "Future[dict[str, Any]]":
  """Starts grading one line; returns a future of the grade's record."""
  case_id = ""
  try:
    case = json.loads(line)
    if not isinstance(case, dict):
      raise BadCase("expected a JSON object")
    case_id = case.get("id", "")
    kind = case.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
      known = ", ".join(KINDS)
      raise BadCase(f"kind is {kind!r:.80}; expected one of {known}")
    pending = KINDS[kind](executor, case)
  except (ValueError, RecursionError) as error:
    bad = CaseOutcome(Outcome.INCORRECT, f"{error}")
    return futures.done(_record(case_id, "bad case", bad))
  return futures.then(pending, lambda grade: _record(case_id, kind, grade))


def _record(case_id: object, kind: str, grade: CaseOutcome) -> dict[str, Any]:
  return {
    "id": case_id,
    "score": 1.0 if grade.outcome else grade.partial,
    "correct": bool(grade.outcome),
    "outcome": grade.outcome.value,
    "detail": f"{kind}: {grade.detail}" if grade.detail else kind,
  }


def grades(
  executor: Executor, lines: Iterable[str]
) -> Iterator[dict[str, Any]]:
  """Yields the grade's record of each line that is not blank, in order."""
  pending = (submit(executor, line) for line in lines if line.strip())
  return streaming.in_order(pending)


def main() -> None:
  """Parses the flags, grades the cases and prints the grades."""
  parser = errors.Parser(__doc__, "azr_jax.grading")
  executor_command.add_flags(parser)
  flags = parser.parse_args()
  with executor_command.make_executor(parser, flags) as executor:
    in_order = grades(executor, streaming.input_lines())
    for record in streaming.counted(in_order, "cases"):
      print(json.dumps(record), flush=True)


def run() -> None:
  """Runs the command."""
  errors.guard(lambda: streaming.run_command(main))


if __name__ == "__main__":
  run()
