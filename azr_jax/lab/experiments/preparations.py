"""Archives the outputs of preparations beside the plan, in `runs/prepared/`.

Runs on another machine must start from the same weights, but a model that is
trained again there may differ by rounding. So outputs are archived with the
runs, unless they are too large for a repository.
"""

import hashlib
import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from azr_jax.config import user_files
from azr_jax.lab.experiments import folders, plan_file, registration
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.plan import Preparation
from azr_jax.run import storage

_FOLDER = "runs/prepared"
# The weights of a model of 1.7M parameters are 3.4 MB.
_MAX_BYTES = 8 << 20


def save(workdir: Workdir, out: pathlib.Path) -> None:
  """Archives the outputs of preparations that are done.

  If an output's inputs are not archived, it is not either: another machine
  would make the inputs again, and they might not match.

  Args:
    workdir: the working directory with the preparations.
    out: the folder of the experiment.
  """
  spent = workdir.spent()
  for one in workdir.plan.preparations:
    folder, record = workdir.prepared(one.name), _record(out, one.name)
    made = folder / one.output
    may_keep = folders.is_prepared(folder) and made.exists()
    if record.exists() or not may_keep or not _has_sources(one, out):
      continue
    if sum(path.stat().st_size for path in _files(made)) > _MAX_BYTES:
      continue
    _copy(made, _payload(record, one))
    content = {
      **registration.plan_hashes(workdir.path),
      "sha256": _digest(made),
      "commit": folders.prepared_commit(folder),
      "core_seconds": spent.get(one.name, 0.0),
    }
    storage.write_atomically(record, json.dumps(content, indent=2) + "\n")


def restore(workdir: Workdir, source: pathlib.Path) -> int:
  """Restores archived outputs into a working directory that lacks them.

  Args:
    workdir: the working directory to continue in, already registered.
    source: the folder of the experiment.

  Returns:
    The number of restored preparations.

  Raises:
    ValueError: an output was made with another plan, its record or copy is
      damaged, or this working directory has made a different output.
  """
  check(workdir, source)
  spent, restored = workdir.spent(), 0
  for one, record, kept in _kept(workdir, source):
    folder = workdir.prepared(one.name)
    if folders.is_prepared(folder):
      continue
    with user_files.reading(record, "what is kept of a preparation"):
      payload = _payload(record, one)
      if _digest(payload) != kept["sha256"]:
        raise ValueError(f"{payload} is damaged: expected what was kept")
      _copy(payload, folder / one.output)
      spent = {one.name: kept["core_seconds"], **spent}
      workdir.write_spent(spent)
      folders.mark_prepared(folder, one.output, kept["commit"])
    restored += 1
  return restored


def check(workdir: Workdir, source: pathlib.Path) -> None:
  """Checks that a working directory's outputs match the archived ones.

  Args:
    workdir: a working directory, with or without preparations.
    source: the folder of the experiment.

  Raises:
    ValueError: an archived output was made with another plan or differs from
      this working directory's, or its record is damaged.
  """
  for one, record, kept in _kept(workdir, source):
    folder = workdir.prepared(one.name)
    made = folder / one.output
    with user_files.reading(record, "what is kept of a preparation"):
      registration.check_kept(source, kept)
      is_made = folders.is_prepared(folder) and made.exists()
      if is_made and _digest(made) != kept["sha256"]:
        raise ValueError(
          f"{made} differs from what is kept: expected runs from the same "
          "start; use another --workdir to continue from what is kept"
        )


def _kept(
  workdir: Workdir, source: pathlib.Path
) -> Iterator[tuple[Preparation, pathlib.Path, dict[str, Any]]]:
  """Yields the archived preparations, with their records."""
  for one in workdir.plan.preparations:
    record = _record(source, one.name)
    if record.exists():
      yield one, record, user_files.read_object(record)


def _record(out: pathlib.Path, name: str) -> pathlib.Path:
  return out / _FOLDER / f"{name}.json"


def _payload(record: pathlib.Path, one: Preparation) -> pathlib.Path:
  return record.with_suffix("") / one.output


def _has_sources(one: Preparation, out: pathlib.Path) -> bool:
  """Returns whether all preparations that this one reads are archived."""
  names = plan_file.references(one.arguments)
  return all(_record(out, name).exists() for name in names)


def _files(path: pathlib.Path) -> list[pathlib.Path]:
  """Returns the file itself, or all files of a folder in order."""
  if path.is_file():
    return [path]
  return sorted(file for file in path.rglob("*") if file.is_file())


def _digest(path: pathlib.Path) -> str:
  """Returns a SHA-256 over file names and contents."""
  digest = hashlib.sha256()
  for file in _files(path):
    content = hashlib.sha256(file.read_bytes()).hexdigest()
    digest.update(f"{file.relative_to(path)} {content}\n".encode())
  return digest.hexdigest()


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
  """Copies a file or a folder, replacing any older copy."""
  partial = target.with_name(f"{target.name}.partial")
  for path in (partial, target):
    if path.is_dir():
      shutil.rmtree(path)
  target.parent.mkdir(parents=True, exist_ok=True)
  if source.is_dir():
    shutil.copytree(source, partial)
  else:
    shutil.copy(source, partial)
  partial.replace(target)
