"""Benchmarks of programming: HumanEval and MBPP, and their extended tests.

| name | a reply is right if |
| --- | --- |
| `humaneval`, `mbpp` | all of the published assertions hold |
| `humaneval_plus`, `mbpp_plus` | on EvalPlus's inputs it gives what the
  canonical solution gives, as `oracles.py` has it |

A HumanEval reply may be a whole program in a fence, or the rest of the function
that the prompt began. Programs run in the executor; what can be compared is
compared outside of the program's process (`grading/unit_tests.py`).
"""

import ast
import dataclasses
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from azr_jax.evals import oracles, prompt_formats
from azr_jax.evals.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor, Job, futures
from azr_jax.grading import assertions, literals, unit_tests

# The call in the loop over inputs of the hub's tests.
_CALLED = re.compile(r"assertion\((\w+)\(\*")
_TOLERANCE = re.compile(r"assertion\(.*,\s*([0-9][0-9.e-]*)\)\s*$", re.M)
_TESTED = re.compile(r"\b(\w+)\(")
# Where a function that was begun has ended, if no fence says so.
_END = re.compile(r"\n(?:class |def |#|@|if |print\(|```|assert )")


def read_humaneval(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items of HumanEval's public layout."""
  return [
    Item(
      str(record["task_id"]),
      "Complete this Python function:\n```python\n"
      f"{record['prompt'].rstrip()}\n```",
      {
        "begun": record["prompt"],
        "entry": record["entry_point"],
        "tests": record.get("test", ""),
      },
    )
    for record in raw
  ]


def read_mbpp(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items of MBPP's public layouts (full, sanitized)."""
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
        },
      )
    )
  return found


def read_humaneval_plus(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items of HumanEval+: EvalPlus's own layout, or the hub's."""
  raw = list(raw)
  return [
    dataclasses.replace(
      item,
      reference={**item.reference, **_plus(record, record["prompt"])},
    )
    for record, item in zip(raw, read_humaneval(raw), strict=True)
  ]


def read_mbpp_plus(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items of MBPP+: EvalPlus's own layout, or the hub's."""
  raw = list(raw)
  return [
    dataclasses.replace(item, reference={**item.reference, **_plus(record, "")})
    for record, item in zip(raw, read_mbpp(raw), strict=True)
  ]


def _plus(record: Mapping[str, Any], begun: str) -> dict[str, Any]:
  """Inputs, as argument texts, and what knows the outputs.

  In EvalPlus's own rows the inputs stand by themselves, in the hub's in the
  text of a test, many with outputs. Without outputs the canonical solution is
  run.

  Raises:
    ValueError: the row is of neither layout.
  """
  name = record.get("task_id")
  solution = record.get("canonical_solution") or record.get("code")
  if "plus_input" in record:
    if "test_list" not in record and not begun:
      raise ValueError(
        f"{name}: expected the hub's rows of MBPP+ (evalplus/mbppplus), for "
        "JSON has no tuples and sets to call with"
      )
    return {
      "inputs": [
        ", ".join(map(repr, arguments))
        for arguments in [*record["base_input"], *record["plus_input"]]
      ],
      "solution": begun + str(solution),
      "tolerance": float(record.get("atol") or 0.0),
    }
  test = record.get("test") or ""
  found, called = _listed(test), _CALLED.search(test)
  entry = record.get("entry_point") or (called and called[1])
  if "inputs" not in found or not entry or not ("results" in found or solution):
    raise ValueError(
      f"{name}: expected base_input and plus_input, or a test with a list of "
      "inputs, and their results or a canonical solution"
    )
  known: dict[str, Any] = {"solution": begun + str(solution)}
  if "results" in found:
    known = {"outputs": list(map(ast.unparse, found["results"]))}
  tolerance = _TOLERANCE.search(test)
  return {
    "entry": entry,
    "inputs": [
      ", ".join(map(ast.unparse, getattr(one, "elts", [one])))
      for one in found["inputs"]
    ],
    **known,
    "tolerance": float(tolerance[1]) if tolerance else 0.0,
  }


def _listed(text: str) -> dict[str, list[ast.expr]]:
  """Lists that a program assigns to names, without running it."""
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


def program(item: Item, reply: str) -> str:
  """The program that a reply gives, with what the prompt began."""
  begun, entry = item.reference["begun"], item.reference["entry"]
  tested = [entry] if entry else _TESTED.findall(item.reference["tests"])
  fence = prompt_formats.code(reply, tested)
  if fence is None:
    rest = prompt_formats.answer_part(reply)
    end = _END.search(rest)
    fence = rest[: end.start()] if end else rest
  if begun and entry and not prompt_formats.defines(fence, [entry]):
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
  """Compares a reply's program with the right outputs, input by input."""
  return submit_plus(executor, item, program(item, reply))


def submit_plus(executor: Executor, item: Item, code: str) -> "Future[Grade]":
  """Compares a program's outputs with the right ones."""
  reference = item.reference
  entry, inputs = reference["entry"], tuple(reference["inputs"])
  found: Future[Any] = executor.submit(Job("reply", code, inputs, entry))
  outputs: Future[Any]
  if "outputs" in reference:
    outputs = futures.done(reference["outputs"])
  else:
    outputs = futures.then(
      executor.submit(Job("solution", reference["solution"], inputs, entry)),
      lambda gold: gold.outputs,
    )

  def judge(both: tuple[Any, ...]) -> Grade:
    wanted, result = both
    equal = [
      want is not None
      and got is not None
      and oracles.right(entry, given, want, got, reference["tolerance"])
      for given, want, got in zip(inputs, wanted, result.outputs, strict=True)
    ]
    return Grade(
      bool(equal) and all(equal),
      f"{sum(equal)} of {len(equal)} inputs {result.error or ''}".strip(),
    )

  return futures.then(futures.gather([outputs, found]), judge)


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
