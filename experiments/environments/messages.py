"""Counts how many proposed environments have a message that says what they do.

  python -m experiments.environments.messages WORKDIR

The training texts give the words for each statement. A message is right if it
gives the words for the program's statements, in order. The script counts new
environments whose solutions were trained on. It skips programs with a helper,
or with statements that the training texts lack. WORKDIR is the experiment's
working directory.
"""

import ast
import collections
import json
import pathlib
import re
import sys
from collections.abc import Iterator

_PROPOSED = re.compile(
  r"```python\n(import random\n.+?)```\n```message\n(.+?)```", re.DOTALL
)
_THEN = ", then "
# First step of each part of a run.
_PARTS = {"steps 1 to 10": 1, "11 to 30": 11, "31 to 40": 31}


def _statements(code: str) -> list[str] | None:
  """Returns what `solve` does, with its argument as `_`; None with a helper."""
  functions = [
    one for one in ast.parse(code).body if isinstance(one, ast.FunctionDef)
  ]
  [solve] = [one for one in functions if one.name == "solve"]
  if len(functions) > 3:
    return None
  argument = solve.args.args[0].arg
  for node in ast.walk(solve):
    if isinstance(node, ast.Name) and node.id == argument:
      node.id = "_"
  texts = [ast.unparse(one) for one in solve.body]
  texts[-1] = texts[-1].replace("return ", "_ = ", 1)
  return texts[:-1] if texts[-1] == "_ = _" else texts


def _known(texts: pathlib.Path) -> dict[str, set[str]]:
  """Returns the words of each statement in the training texts."""
  known: dict[str, set[str]] = {}
  for line in texts.read_text("utf-8").splitlines():
    row = json.loads(line)
    for code, message in _PROPOSED.findall(
      f"{row['prompt']}\n{row['completion']}"
    ):
      statements, words = _statements(code), message.strip().split(_THEN)
      if statements and len(statements) == len(words):
        for statement, said in zip(statements, words, strict=True):
          known.setdefault(statement, set()).add(said)
  return known


def _new(run: pathlib.Path) -> Iterator[tuple[int, str, str]]:
  """Yields (step, code, message) of each environment that the run proposed."""
  lines = (run / "records/seeds.jsonl").read_text("utf-8").splitlines()
  seen = {json.loads(line)["code"] for line in lines}
  for path in sorted((run / "records/tasks").glob("*.jsonl")):
    for line in path.read_text("utf-8").splitlines():
      task = json.loads(line)["task"]["environment"]
      if task["code"] not in seen:
        seen.add(task["code"])
        yield int(path.stem), task["code"], task["message"]


def main() -> None:
  """Writes a line for each part of the runs."""
  workdir = pathlib.Path(sys.argv[1])
  known = _known(workdir / "prepared/texts/conversations.jsonl")
  counts: collections.Counter[tuple[str, bool]] = collections.Counter()
  for run in sorted(workdir.glob("environments_[0-9]")):
    for step, code, message in _new(run):
      statements = _statements(code)
      if statements is None or not known.keys() >= set(statements):
        continue
      said = message.strip().split(_THEN)
      is_right = len(said) == len(statements) and all(
        one in known[statement]
        for one, statement in zip(said, statements, strict=True)
      )
      part = [name for name, first in _PARTS.items() if step >= first][-1]
      counts[part, is_right] += 1
  for part in _PARTS:
    right, wrong = counts[part, True], counts[part, False]
    found = right + wrong
    text = f"{right} of {found}, {right / found:.0%}" if found else "none"
    sys.stdout.write(f"{part}: {text}\n")


if __name__ == "__main__":
  main()
