"""Keeps what preparations have made beside the plan, in `runs/prepared/`.

Runs that begin on another machine must start from the same weights, and a
model that is trained again there may differ from the first by rounding. So an
output is kept with the runs, unless it is too large for a repository.
"""

import json
import pathlib
import shutil

from azr_jax.config import user_files
from azr_jax.experiments import folders
from azr_jax.experiments.folders import Workdir
from azr_jax.run import storage

_FOLDER = "runs/prepared"
# The weights of a model of 1.7M parameters are 3.4 MB.
_MAX_BYTES = 8 << 20


def save(workdir: Workdir, out: pathlib.Path) -> None:
  """Copies the outputs of preparations that are done and not yet kept.

  Args:
    workdir: has the preparations.
    out: the folder of the experiment.
  """
  spent = workdir.spent()
  for one in workdir.plan.preparations:
    folder, record = workdir.prepared(one.name), _record(out, one.name)
    made = folder / one.output
    if (
      not folders.is_prepared(folder)
      or record.exists()
      or _size(made) > _MAX_BYTES
    ):
      continue
    _copy(made, record.with_suffix("") / one.output)
    content = {
      "plan": folders.fixed_plan_hash(workdir.path),
      "commits": workdir.commits(),
      "core_seconds": spent.get(one.name, 0.0),
    }
    storage.write_atomically(record, json.dumps(content, indent=2) + "\n")


def restore(workdir: Workdir, source: pathlib.Path) -> int:
  """Copies kept outputs into a working directory that lacks them.

  Args:
    workdir: where runs go on; it is registered.
    source: the folder of the experiment.

  Returns:
    How many preparations were done elsewhere.

  Raises:
    ValueError: one was made with another plan, or its record is damaged.
  """
  spent, restored = workdir.spent(), 0
  for one in workdir.plan.preparations:
    folder, record = workdir.prepared(one.name), _record(source, one.name)
    if folders.is_prepared(folder) or not record.exists():
      continue
    kept = user_files.read_object(record)
    with user_files.reading(record, "what is kept of a preparation"):
      folders.check_plan(source, kept["plan"])
      _copy(record.with_suffix("") / one.output, folder / one.output)
      spent = {one.name: kept["core_seconds"], **spent}
    folders.mark_prepared(folder, one.output)
    workdir.write_spent(spent)
    restored += 1
  return restored


def _record(out: pathlib.Path, name: str) -> pathlib.Path:
  return out / _FOLDER / f"{name}.json"


def _size(path: pathlib.Path) -> int:
  """Returns the bytes of a file, or of all files of a folder."""
  files = path.rglob("*") if path.is_dir() else [path]
  return sum(file.stat().st_size for file in files if file.is_file())


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
  """Copies a file or a folder, whose place in `target` it takes whole."""
  target.parent.mkdir(parents=True, exist_ok=True)
  if source.is_dir():
    shutil.copytree(source, target, dirs_exist_ok=True)
  else:
    shutil.copy(source, target)
