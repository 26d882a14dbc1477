"""Programming benchmarks: HumanEval, MBPP, and EvalPlus's versions of both.

| name | a response is correct if |
| --- | --- |
| `humaneval`, `mbpp` | it passes all published assertions |
| `humaneval_plus`, `mbpp_plus` | its outputs on EvalPlus's inputs match the
  canonical solution's, by the rules of `oracles.py` |

A response to HumanEval may be a whole program in a fence, or a completion of
the function in the prompt. Programs run in the executor. Where possible, values
are compared outside of the program's process (`grading/unit_tests.py`).
"""

import ast
import dataclasses
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from azr_jax.evals import answer_extraction, oracles
from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.executor import Executor, futures
from azr_jax.grading import assertions, harness, literals, unit_tests
from azr_jax.grading.outcome import Outcome, limit_of

# How the tests of the Hugging Face datasets call the function.
_TESTED_CALL = re.compile(r"assertion\((\w+)\(\*")
_TOLERANCE = re.compile(r"assertion\(.*,\s*([0-9][0-9.e-]*)\)\s*$", re.M)
_CALL = re.compile(r"\b(\w+)\(")
# In an unfenced completion, the function ends before the first such line.
_FUNCTION_END = re.compile(r"\n(?:class |def |#|@|if |print\(|```|~~~|assert )")


def read_humaneval(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Converts HumanEval records to items."""
  return [
    Item(
      str(record["task_id"]),
      "Complete this Python function:\n```python\n"
      f"{record['prompt'].rstrip()}\n```",
      {
        "prompt_code": record["prompt"],
        "entry": record["entry_point"],
        "tests": record.get("test", ""),
      },
    )
    for record in raw
  ]


def read_mbpp(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Converts MBPP records to items, in the full or the sanitized layout."""
  items = []
  for record in raw:
    tests = record.get("test_list") or []
    setup = record.get("test_setup_code") or "\n".join(
      record.get("test_imports") or []
    )
    question = record.get("text") or record["prompt"]
    shown = "\n".join(tests)
    items.append(
      Item(
        str(record["task_id"]),
        f"{question}\nThe program has to pass:\n```python\n{shown}\n```",
        {
          "prompt_code": "",
          "entry": record.get("entry_point"),
          "tests": "\n".join([setup, *tests]),
        },
      )
    )
  return items


def read_humaneval_plus(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Converts HumanEval+ records, in EvalPlus's or Hugging Face's layout."""
  raw = list(raw)
  return [
    dataclasses.replace(
      item,
      reference={**item.reference, **_plus(record, record["prompt"])},
    )
    for record, item in zip(raw, read_humaneval(raw), strict=True)
  ]


def read_mbpp_plus(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Converts MBPP+ records, in EvalPlus's or Hugging Face's layout."""
  raw = list(raw)
  return [
    dataclasses.replace(item, reference={**item.reference, **_plus(record, "")})
    for record, item in zip(raw, read_mbpp(raw), strict=True)
  ]


def _plus(record: Mapping[str, Any], prompt_code: str) -> dict[str, Any]:
  """Returns the inputs with their expected outputs, or with a solution to run.

  EvalPlus's records list the inputs as values. Hugging Face's records have them
  in the source of a test, often with the outputs. If there are no outputs, the
  canonical solution has to be run.

  Args:
    record: a record of either layout.
    prompt_code: the start of the program that the prompt shows.

  Returns:
    `inputs` (source text of the arguments of each call), `tolerance`, either
    `outputs` or `solution`, and for Hugging Face's layout `entry`, the name of
    the function.

  Raises:
    ValueError: the record has neither layout.
  """
  solution = record.get("canonical_solution") or record.get("code")
  if "plus_input" in record:
    return _from_evalplus(record, prompt_code, solution)
  test = record.get("test") or ""
  lists, call = _assigned_lists(test), _TESTED_CALL.search(test)
  entry = record.get("entry_point") or (call and call[1])
  has_outputs = "results" in lists or solution
  if "inputs" not in lists or not entry or not has_outputs:
    raise ValueError(
      f"{record.get('task_id')}: expected base_input and plus_input, or a test "
      "with a list of inputs and either their results or a canonical solution"
    )
  known: dict[str, Any] = {"solution": prompt_code + str(solution)}
  if "results" in lists:
    known = {"outputs": list(map(ast.unparse, lists["results"]))}
  tolerance = _TOLERANCE.search(test)
  return {
    "entry": entry,
    "inputs": [
      ", ".join(map(ast.unparse, getattr(arguments, "elts", [arguments])))
      for arguments in lists["inputs"]
    ],
    **known,
    "tolerance": float(tolerance[1]) if tolerance else 0.0,
  }


def _from_evalplus(
  record: Mapping[str, Any], prompt_code: str, solution: Any
) -> dict[str, Any]:
  """Returns `inputs`, `solution` and `tolerance` from EvalPlus's layout.

  Raises:
    ValueError: the record is from MBPP+, whose inputs JSON cannot represent.
  """
  if "test_list" not in record and not prompt_code:
    raise ValueError(
      f"{record.get('task_id')}: expected Hugging Face's records of MBPP+ "
      "(evalplus/mbppplus), because JSON cannot represent tuples and sets"
    )
  return {
    "inputs": [
      ", ".join(map(repr, arguments))
      for arguments in [*record["base_input"], *record["plus_input"]]
    ],
    "solution": prompt_code + str(solution),
    "tolerance": float(record.get("atol") or 0.0),
  }


def _assigned_lists(text: str) -> dict[str, list[ast.expr]]:
  """Returns the list literals that a program assigns, by variable name."""
  try:
    nodes = ast.walk(literals.guarded_parse(text, "exec"))
  except literals.ParseError:
    return {}
  return {
    node.targets[0].id: node.value.elts
    for node in nodes
    if isinstance(node, ast.Assign)
    and isinstance(node.targets[0], ast.Name)
    and isinstance(node.value, ast.List)
  }


def program(item: Item, response: str) -> str:
  """Returns the program of a response, with the start from the prompt."""
  prompt_code, entry = item.reference["prompt_code"], item.reference["entry"]
  names = [entry] if entry else _CALL.findall(item.reference["tests"])
  code = answer_extraction.code(response, names)
  if code is None:
    rest = answer_extraction.answer_part(response)
    end = _FUNCTION_END.search(rest)
    code = rest[: end.start()] if end else rest
  if prompt_code and entry and not answer_extraction.defines(code, [entry]):
    return prompt_code + code
  # The response may rely on the prompt's imports without repeating them.
  imports = re.findall(r"^(?:import|from) .+$", prompt_code, re.MULTILINE)
  return "\n".join([*imports, code])


def grade_tests(
  executor: Executor, item: Item, response: str
) -> "Future[ItemOutcome]":
  """Runs the published assertions on a response's program."""
  return submit_program(executor, item, program(item, response))


def submit_program(
  executor: Executor, item: Item, code: str
) -> "Future[ItemOutcome]":
  """Runs the published assertions on a program."""
  tests = assertions.read_tests(
    item.reference["tests"], item.reference["entry"]
  )
  return futures.then(
    unit_tests.submit(executor, code, tests),
    lambda report: ItemOutcome.of(
      report.outcome, report.summary(), report.limit
    ),
  )


def grade_plus(
  executor: Executor, item: Item, response: str
) -> "Future[ItemOutcome]":
  """Compares a response's program with the canonical solution on each input."""
  return submit_plus(executor, item, program(item, response))


def submit_plus(
  executor: Executor, item: Item, code: str
) -> "Future[ItemOutcome]":
  """Compares a program's outputs with the expected ones."""
  reference = item.reference
  entry, inputs = reference["entry"], tuple(reference["inputs"])
  tolerance = reference["tolerance"]
  result: Future[Any] = harness.submit(
    executor, "response", code, entry, inputs
  )
  expected: Future[Any]
  if "outputs" in reference:
    expected = futures.done(reference["outputs"])
  else:
    expected = futures.then(
      harness.submit(
        executor, "solution", reference["solution"], entry, inputs
      ),
      lambda solution: solution.outputs,
    )

  def judge(both: tuple[Any, ...]) -> ItemOutcome:
    wanted, result = both
    correct = [
      want is not None
      and got is not None
      and oracles.is_correct(entry, arguments, want, got, tolerance)
      for arguments, want, got in zip(
        inputs, wanted, result.outputs, strict=True
      )
    ]
    return ItemOutcome.of(
      Outcome.of(bool(correct) and all(correct), result),
      f"{sum(correct)} of {len(correct)} inputs {result.error or ''}".strip(),
      limit_of(correct, result),
    )

  return futures.then(futures.gather([expected, result]), judge)


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
    read_humaneval_plus,
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
    "mbpp_plus", "hf:evalplus/mbppplus:test", read_mbpp_plus, "code", grade_plus
  ),
)
