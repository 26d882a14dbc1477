"""Archives answers: the style of each, and the text of an item's first one.

A score with `evaluate.style` has a file `runs/answers/SCORE_RUN.jsonl.gz`, so
that a gain can be split by styles (`azr_jax.decompose`) and read, without the
run's folder. A line is an item:

  {"id": ..., "subset": ..., "styles": [...], "first": ...}
"""

import json
import pathlib
from typing import Any

from azr_jax.config import user_files
from azr_jax.evals import record_files
from azr_jax.lab.experiments import packed

FOLDER = "answers"


def path_of(folder: pathlib.Path, score: str, name: str) -> pathlib.Path:
  """Returns the file of a run's score; `folder` is the archive."""
  return folder / FOLDER / f"{score}_{name}.jsonl.gz"


def save(records: pathlib.Path, path: pathlib.Path) -> None:
  """Archives the answers of a score, sorted by item; nothing without styles.

  Records that came from an archive without all texts leave it as it is.

  Args:
    records: the records that `azr_jax.evaluate` wrote.
    path: the file to write.
  """
  found = {str(one["id"]): one for one in record_files.read(records)}
  if not all({"styles", "responses"} <= one.keys() for one in found.values()):
    return
  rows = [
    {
      "id": id_,
      "subset": found[id_].get("subset", ""),
      "styles": found[id_]["styles"],
      "first": found[id_]["responses"][0],
    }
    for id_ in sorted(found)
  ]
  packed.write(path, rows)


def read(path: pathlib.Path) -> dict[str, dict[str, Any]]:
  """Returns what records lack, by item id; nothing if there is no archive.

  Only a single answer is whole: of several, the texts of the others are lost.

  Raises:
    ValueError: the file is damaged.
  """
  found = {}
  rows = packed.read(path, "what is kept of answers")
  with user_files.reading(path, "what is kept of answers"):
    for one in rows:
      found[one["id"]] = {"subset": one["subset"], "styles": one["styles"]}
      if len(one["styles"]) == 1:
        found[one["id"]]["responses"] = [one["first"]]
  return found


def by_arm(
  folder: pathlib.Path, score: str
) -> dict[str, list[tuple[str, str]]]:
  """Returns each arm's questions with their single answers, of all seeds.

  Args:
    folder: the archive of an experiment.
    score: the name of a score.
  """
  path = folder / f"items_{score}.json"
  questions = json.loads(path.read_text("utf-8"))
  found: dict[str, list[tuple[str, str]]] = {}
  for run in sorted(record.stem for record in folder.glob("*.json")):
    if (file := path_of(folder, score, run)).exists():
      pairs = found.setdefault(run.rpartition("_")[0] or run, [])
      for id_, one in read(file).items():
        pairs.append((questions[id_], one["responses"][0]))
  return found
