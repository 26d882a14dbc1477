"""Our verdicts beside those of CRUXEval's authors, on real model answers.

  python tests/grading/cruxeval_agreement.py --data=DIR

DIR holds the public files of facebookresearch/cruxeval (MIT). Prints the
agreement and every disagreement.
"""

import argparse
import ast
import json
import pathlib

from azr_jax.executor import Executor
from azr_jax.grading import futures, programs


def call_arguments(generation: str) -> str:
  """The text between the parentheses of a generated `f(...)`."""
  text = generation.strip()
  try:
    call = ast.parse(text, mode="eval").body
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return text
  is_call = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
  if not is_call or call.func.id != "f":
    return text
  return text[text.index("(") + 1 : text.rindex(")")]


def compare(folder: pathlib.Path, executor: Executor, kind: str) -> list[dict]:
  """Grades every generation; returns records with both verdicts."""
  tasks = {}
  for path in sorted(folder.glob("cruxeval*.jsonl")):
    for line in path.read_text().splitlines():
      task = json.loads(line)
      tasks[task["id"]] = task
  records = []
  for path in sorted(folder.glob(f"sample_scored*_{kind}_*.json")):
    scored = json.loads(path.read_text())
    for name, generations in scored["raw_generations"].items():
      task = tasks[name]
      theirs = scored["raw_scored_generations"][name]
      for generation, verdict in zip(generations, theirs, strict=True):
        if kind == "output":
          ours = futures.done(
            programs.deduction_correct(task["output"], generation)
          )
        else:
          ours = programs.submit_abduction_answer(
            executor, task["code"], task["output"], call_arguments(generation)
          )
        records.append(
          {"id": name, "answer": generation, "theirs": verdict, "ours": ours}
          | {"output": task["output"], "code": task["code"]}
        )
  return [r | {"ours": r["ours"].result()} for r in records]


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
      print(f"{kind}: {len(records)} answers, agreement {share:.4%}")
      for record in differ:
        print(json.dumps(record))


if __name__ == "__main__":
  main()
