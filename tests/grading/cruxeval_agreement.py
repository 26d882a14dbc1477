"""Compares our grades of model answers with those of CRUXEval's authors.

  python tests/grading/cruxeval_agreement.py --data=DIR

DIR holds the public files of facebookresearch/cruxeval (MIT). For output
prediction (deduction) and input prediction (abduction) the script prints:

- how many of the records' own answers are graded correct, and which are not;
- the agreement on the models' answers;
- each disagreement, with the texts that cause it.

The authors run `assert {output} == {answer}` in Python, so their grader accepts
values that are equal by `==` and expressions that use the program's names. Ours
accepts values of the same type and expressions over builtins. The script needs
azr_jax, installed or on the path (`PYTHONPATH=.`).
"""

import argparse
import ast
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from azr_jax.executor import Executor, Job
from azr_jax.grading import expressions, literals, programs


def call_arguments(generation: str) -> str:
  """Returns the arguments of a generated `f(...)`, other text unchanged."""
  try:
    tree = literals.guarded_parse(generation.strip(), "eval")
  except literals.ParseError:
    return generation
  call = getattr(tree, "body", None)
  if not isinstance(call, ast.Call) or ast.unparse(call.func) != "f":
    return generation
  return ", ".join(ast.unparse(part) for part in [*call.args, *call.keywords])


def read_tasks(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
  """Reads the tasks' records, keyed by id."""
  tasks = {}
  for path in sorted(folder.glob("cruxeval*.jsonl")):
    for line in path.read_text().splitlines():
      task = json.loads(line)
      tasks[task["id"]] = task
  return tasks


def read_answers(folder: pathlib.Path, kind: str) -> Iterator[dict[str, Any]]:
  """Yields records that join a task, an answer and the authors' grade."""
  tasks = read_tasks(folder)
  for path in sorted(folder.glob(f"sample_scored*_{kind}_*.json")):
    scored = json.loads(path.read_text())
    for name, generations in scored["raw_generations"].items():
      grades = scored["raw_scored_generations"][name]
      for answer, grade in zip(generations, grades, strict=True):
        yield tasks[name] | {"answer": answer, "theirs": grade}


def compare(
  folder: pathlib.Path, executor: Executor, kind: str
) -> list[dict[str, Any]]:
  """Grades every answer; returns the records with our grades as `ours`."""
  records = list(read_answers(folder, kind))
  grades = grade(records, executor, kind)
  return [
    record | {"ours": correct}
    for record, correct in zip(records, grades, strict=True)
  ]


def own_answers(
  folder: pathlib.Path, executor: Executor, kind: str
) -> dict[str, bool]:
  """Grades the records' own answers; returns the grades keyed by id."""
  tasks = read_tasks(folder)
  records = [task | {"answer": task[kind]} for task in tasks.values()]
  return dict(zip(tasks, grade(records, executor, kind), strict=True))


def grade(
  records: list[dict[str, Any]], executor: Executor, kind: str
) -> list[bool]:
  """Grades the `answer` field of each record."""
  pending = []
  for record in records:
    reference, answer = record["output"], record["answer"]
    if kind == "output":
      pending.append(
        programs.submit_deduction(executor, reference, answer, True)
      )
    else:
      pending.append(
        programs.submit_abduction_answer(
          executor,
          record["code"],
          reference,
          call_arguments(answer),
          not literals.are_literal_arguments(record["input"]),
        )
      )
  return [bool(future.result()) for future in pending]


def reason(record: dict[str, Any], executor: Executor, kind: str) -> str:
  """Explains why the two grades of a record differ."""
  text = record["answer"]
  if kind == "input":
    text = call_arguments(text)
    if not expressions.are_arguments(text):
      return "the answer does not consist of expressions over builtins"
    result = executor.submit(Job("why", record["code"], (text,))).result()
    return f"f(answer): {result.status} {result.error} {result.outputs[0]}"
  try:
    literals.typed_key(text)
  except literals.ParseError as error:
    if not expressions.is_value(text):
      return f"the answer is not an expression over builtins: {error}"
  return "a value of another type, or another value"


def main() -> None:
  """Parses the flags and prints the comparison."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--data", type=pathlib.Path, required=True)
  flags = parser.parse_args()
  with Executor(workers=2, timeout_s=3.0, memory_mb=512) as executor:
    for kind in ("output", "input"):
      own = own_answers(flags.data, executor, kind)
      wrong = [name for name, correct in own.items() if not correct]
      print(f"{kind}: {len(own) - len(wrong)} of {len(own)} own answers right")
      if wrong:
        print(f"{kind}: not right: {', '.join(wrong)}")
      records = compare(flags.data, executor, kind)
      differ = [r for r in records if r["theirs"] != r["ours"]]
      agreement = 1 - len(differ) / len(records)
      print(f"{kind}: {len(records)} answers, agreement {agreement:.3%}")
      for record in differ:
        record["reason"] = reason(record, executor, kind)
        print(json.dumps(record))


if __name__ == "__main__":
  main()
