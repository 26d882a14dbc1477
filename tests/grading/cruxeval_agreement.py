"""Our verdicts beside those of CRUXEval's authors, on real model answers.

  python tests/grading/cruxeval_agreement.py --data=DIR

DIR holds the public files of facebookresearch/cruxeval (MIT). Prints the
agreement on output prediction (deduction) and input prediction (abduction),
and every disagreement with the texts that cause it.

The authors run `assert {output} == {answer}` in Python, so theirs takes `==`
and expressions; ours takes literals of the same type only. Needs azr_jax to
be importable: installed, or `PYTHONPATH=.`.
"""

import argparse
import ast
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from azr_jax.executor import Executor, Job, futures
from azr_jax.grading import literals, programs


def call_arguments(generation: str) -> str:
  """The arguments of a generated `f(...)`; other text as it is."""
  try:
    tree = literals.guarded_parse(generation.strip(), "eval")
  except literals.ParseError:
    return generation
  call = getattr(tree, "body", None)
  if not isinstance(call, ast.Call) or ast.unparse(call.func) != "f":
    return generation
  return ", ".join(ast.unparse(part) for part in [*call.args, *call.keywords])


def read_answers(folder: pathlib.Path, kind: str) -> Iterator[dict[str, Any]]:
  """Yields a task, an answer and the authors' verdict as one record."""
  tasks = {}
  for path in sorted(folder.glob("cruxeval*.jsonl")):
    for line in path.read_text().splitlines():
      task = json.loads(line)
      tasks[task["id"]] = task
  for path in sorted(folder.glob(f"sample_scored*_{kind}_*.json")):
    scored = json.loads(path.read_text())
    for name, generations in scored["raw_generations"].items():
      verdicts = scored["raw_scored_generations"][name]
      for answer, verdict in zip(generations, verdicts, strict=True):
        yield tasks[name] | {"answer": answer, "theirs": verdict}


def compare(
  folder: pathlib.Path, executor: Executor, kind: str
) -> list[dict[str, Any]]:
  """Grades every answer; returns the records with our verdict as `ours`."""
  records = list(read_answers(folder, kind))
  pending = []
  for record in records:
    gold, answer = record["output"], record["answer"]
    if kind == "output":
      correct = programs.deduction_correct(gold, answer)
      pending.append(futures.done(correct))
    else:
      arguments = call_arguments(answer)
      pending.append(
        programs.submit_abduction_answer(
          executor, record["code"], gold, arguments
        )
      )
  verdicts = [future.result() for future in pending]
  return [
    record | {"ours": verdict}
    for record, verdict in zip(records, verdicts, strict=True)
  ]


def reason(record: dict[str, Any], executor: Executor, kind: str) -> str:
  """What we saw where the verdicts differ."""
  text = record["answer"]
  if kind == "input":
    text = call_arguments(text)
    if not literals.are_literal_arguments(text):
      return "the answer is not literal arguments"
    result = executor.submit(Job("why", record["code"], (text,))).result()
    return f"f(answer): {result.status} {result.error} {result.outputs[0]}"
  try:
    literals.typed_key(text)
  except literals.ParseError as error:
    return f"the answer is no literal: {error}"
  return "a value of another type, or another value"


def main() -> None:
  """Reads the flags and prints the comparison."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--data", type=pathlib.Path, required=True)
  flags = parser.parse_args()
  with Executor(workers=2, timeout_s=3.0, memory_mb=512) as executor:
    for kind in ("output", "input"):
      records = compare(flags.data, executor, kind)
      differ = [r for r in records if r["theirs"] != r["ours"]]
      share = 1 - len(differ) / len(records)
      print(f"{kind}: {len(records)} answers, agreement {share:.3%}")
      for record in differ:
        record["reason"] = reason(record, executor, kind)
        print(json.dumps(record))


if __name__ == "__main__":
  main()
