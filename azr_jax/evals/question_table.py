"""Scores of the benchmark `questions` in the layout of R1-CI's table 3.

  python -m azr_jax.evals.question_table SCORES ...

SCORES is a folder that `azr_jax.evaluate` wrote. A row is an agent, or a folder
with its agents; a cell is the mean over the tasks of a collection, of their
questions answered right, in percent. The averages are means over all tasks of a
split, so a collection counts as often as it has tasks. Behind `+-` is the
standard error over questions, the tasks being given.
"""

import math
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from azr_jax.cli import errors
from azr_jax.config import user_files
from azr_jax.tasks.questions import catalogue

# Collection -> its short name in table 3.
COLLECTIONS = {"symbench": "SymB.", "bbh": "BBH", "gym": "Rea.G."}
# Agent -> its name in table 3, in its order.
AGENTS = {
  "text": "All Text",
  "code": "All Code",
  "steer": "CodeSteer",
  "code_agent": "Code Agent",
}
# The out-of-distribution sets of table 4 -> their names.
OTHERS = {"gpqa": "GPQA", "aime24": "AIME 24", "aime25": "AIME 25"}
_QUESTIONS = "questions"


def means(tasks: Sequence[str], correct: np.ndarray) -> dict[str, float]:
  """Returns means over the tasks of a split, and of each of its collections.

  Args:
    tasks: the task of each question.
    correct: bool [questions, samples].

  Returns:
    `mean/SPLIT/COLLECTION` and `mean/SPLIT`, each also with `_stderr`, and as
    `tasks/...` the number of tasks. Tasks that are not in the catalogue are
    left out.
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


def _mean(name: str, by_task: Sequence[np.ndarray]) -> dict[str, float]:
  """Returns the mean of the tasks' means, its error, and their number."""
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
  """Returns a Markdown table, or "" where no score belongs into it.

  Args:
    results: for each row the scores and the suffix of their names, such as
      `_text`.
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
  """Returns the scores of a row and their errors, by the name of the column."""
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
  """Returns the title of each column, by the name of its score."""
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
  """Returns how many of a column's tasks were scored, if not all of them."""
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
  """Returns the rows of the agents that answered, for `show`.

  Args:
    scores: of `azr_jax.evaluate`.
    agents: the config's `evaluate.agents`.
    label: what stands before an agent's name.
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
    parser.error("no folder has scores of `questions` or of its agents")
  print(table)


if __name__ == "__main__":
  errors.guard(main)
