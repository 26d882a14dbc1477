"""Archives the records of runs that other arms read.

An arm with `{next:ARM}` in a key reads the run of ARM with the next seed.
Without its records, a restored run would count as done, but its readers could
not start. A run has one archive, `runs/records/RUN.jsonl.gz`, with a line per
file.
"""

import pathlib

from azr_jax.lab.experiments import packed
from azr_jax.run import records, storage

_FOLDER = "records"


def save(run: pathlib.Path, archive: pathlib.Path) -> None:
  """Archives the records of a finished run.

  Args:
    run: the folder of the run. A restored run has the archived records.
    archive: the folder of all archived files.
  """
  folder = run / records.FOLDER
  files = sorted(path for path in folder.rglob("*") if path.is_file())
  rows = [
    {"file": str(path.relative_to(folder)), "text": path.read_text("utf-8")}
    for path in files
  ]
  if rows:
    packed.write(_path(run, archive), rows)


def restore(run: pathlib.Path, archive: pathlib.Path) -> None:
  """Restores the archived records into the folder of a run, if there are any.

  Raises:
    ValueError: the archived file is damaged.
  """
  for row in packed.read(_path(run, archive), "archived records"):
    path = run / records.FOLDER / row["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write_atomically(path, row["text"])


def _path(run: pathlib.Path, archive: pathlib.Path) -> pathlib.Path:
  return archive / _FOLDER / f"{run.name}.jsonl.gz"
