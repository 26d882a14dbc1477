"""Prints scores of the benchmark `questions` in the layout of R1-CI's table 3.

  python -m azr_jax.evals.question_table SCORES ...

SCORES is a folder that `azr_jax.evaluate` wrote. The table has one row per
agent of each folder. A cell is the accuracy in percent, averaged over the tasks
of a collection. The averages are over all tasks of a split, so each task has
the same weight. The error after `+-` is the standard error over questions, for
fixed tasks.
"""

import math
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from azr_jax.cli import errors
from azr_jax.config import user_files
from azr_jax.tasks.questions import catalogue

# Collection -> its column title in table 3.
COLLECTIONS = {"symbench": "SymB.", "bbh": "BBH", "gym": "Rea.G."}
# Agent -> its name in table 3, in the table's order.
AGENTS = {
  "text": "All Text",
  "code": "All Code",
  "steer": "CodeSteer",
  "code_agent": "Code Agent",
}
# Out-of-distribution benchmark -> its name in table 4.
OTHERS = {"gpqa": "GPQA", "aime24": "AIME 24", "aime25": "AIME 25"}
_QUESTIONS = "questions"


def means(
  tasks: Sequence[str], correct: Bool[np.ndarray, "questions samples"]
) -> dict[str, float]:
  """Returns mean scores over the tasks of each split and collection.

  Args:
    tasks: the task of each question.
    correct: whether each sample is correct.

  Returns:
    `mean/SPLIT/COLLECTION` and `mean/SPLIT`, both also with `_stderr`, and the
    numbers of tasks as `tasks/...`. Tasks outside the catalogue are ignored.
  """
  names, rates = np.asarray(tasks), np.asarray(correct, float).mean(axis=1)
  by_task = {
    name: rates[names == name]
    for name in dict.fromkeys(tasks)
    if name in catalogue.tasks()
  }
  found = {}
  for split in catalogue.SPLITS:
    of_split = {
      name: values
      for name, values in by_task.items()
      if catalogue.tasks()[name].split == split
    }
    found |= _mean(split, list(of_split.values()))
    for collection in COLLECTIONS:
      found |= _mean(
        f"{split}/{collection}",
        [v for n, v in of_split.items() if n.startswith(f"{collection}/")],
      )
  return found


def _mean(
  name: str, by_task: Sequence[Float[np.ndarray, " _questions"]]
) -> dict[str, float]:
  """Returns the mean over tasks, its standard error, and the task count."""
  if not by_task:
    return {}
  variances = [
    values.var(ddof=1) / len(values) if len(values) > 1 else 0.0
    for values in by_task
  ]
  return {
    f"mean/{name}": float(np.mean([values.mean() for values in by_task])),
    f"mean/{name}_stderr": math.sqrt(sum(variances)) / len(by_task),
    f"tasks/{name}": float(len(by_task)),
  }


def show(results: Mapping[str, tuple[Mapping[str, float], str]]) -> str:
  """Returns a Markdown table, or "" if there are no scores to show.

  Args:
    results: row label -> the scores, and the suffix of the benchmark names to
      show in this row, such as `_text`.
  """
  rows = {
    label: _row(scores, suffix) for label, (scores, suffix) in results.items()
  }
  columns = _columns(rows)
  if not columns:
    return ""
  lines = [
    "| answers by | " + " | ".join(columns.values()) + " |",
    "| --- |" + " --- |" * len(columns),
  ]
  for label, row in rows.items():
    cells = [_cell(row, key) for key in columns]
    lines.append(f"| {label} | " + " | ".join(cells) + " |")
  return "\n".join(lines)


def _row(scores: Mapping[str, float], suffix: str) -> dict[str, float]:
  """Returns the scores and errors of a row, by column name."""
  prefix = f"{_QUESTIONS}{suffix}/"
  row = {
    key.removeprefix(prefix): score
    for key, score in scores.items()
    if key.startswith(prefix)
  }
  for name in OTHERS:
    main_score = f"{name}{suffix}/pass@1/unbiased"
    if main_score in scores:
      row[name] = scores[main_score]
      row[f"{name}_stderr"] = scores[f"{main_score}_stderr"]
  return row


def _columns(rows: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
  """Returns the title of each column, by score name."""
  columns = {}
  for split in catalogue.SPLITS:
    for collection, short in COLLECTIONS.items():
      columns[f"mean/{split}/{collection}"] = f"{split} {short}"
  for split in catalogue.SPLITS:
    columns[f"mean/{split}"] = f"avg. {split}"
  columns |= OTHERS
  return {
    key: f"{title}{_coverage(rows, key)}"
    for key, title in columns.items()
    if any(key in row for row in rows.values())
  }


def _coverage(rows: Mapping[str, Mapping[str, float]], key: str) -> str:
  """Returns the number of a column's tasks, as ` (SCORED of ALL)` if partial.

  Returns "" for benchmarks outside the catalogue.
  """
  if key in OTHERS:
    return ""
  _, split, *collection = key.split("/")
  total = sum(
    task.split == split and task.name.startswith("".join(collection))
    for task in catalogue.tasks().values()
  )
  counts = {
    int(row[f"tasks/{key.removeprefix('mean/')}"])
    for row in rows.values()
    if key in row
  }
  if counts == {total}:
    return f" ({total})"
  return f" ({'/'.join(map(str, sorted(counts)))} of {total})"


def _cell(row: Mapping[str, float], key: str) -> str:
  if key not in row:
    return ""
  return f"{100 * row[key]:.1f} +- {100 * row[f'{key}_stderr']:.1f}"


def of_agents(
  scores: Mapping[str, float], agents: Sequence[str], label: str = ""
) -> dict[str, tuple[Mapping[str, float], str]]:
  """Returns one row per agent, for `show`.

  Args:
    scores: the scores of one run of `azr_jax.evaluate`.
    agents: the config's `evaluate.agents`.
    label: a prefix for the agents' names.
  """
  return {
    f"{label}{title}": (scores, f"_{agent}" if len(agents) > 1 else "")
    for agent, title in AGENTS.items()
    if agent in agents
  }


def main() -> None:
  """Reads the folders and prints the table."""
  parser = errors.Parser(__doc__, "azr_jax.evals.question_table")
  parser.add_argument("folders", nargs="+", type=pathlib.Path)
  rows = {}
  for folder in parser.parse_args().folders:
    path = folder / "results.json"
    if not path.is_file():
      parser.error(f"{folder}: expected the workdir of azr_jax.evaluate")
    with user_files.reading(path, "results of azr_jax.evaluate"):
      found = user_files.read_object(path)
      scores, agents = found["scores"], found["config"]["evaluate"]["agents"]
    rows |= of_agents(scores, agents, f"{folder}: ")
  table = show(rows)
  if not table:
    parser.error("no folder has scores of `questions`: expected at least one")
  print(table)


if __name__ == "__main__":
  errors.guard(main)
