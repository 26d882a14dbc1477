"""Files that a system keeps in its run's folder, for a run that is resumed.

They hold what is made once and can be used again: by the run itself if it is
killed before its next checkpoint, or by another run. They are in the folder
`records/`. `read` and `write` are for a file that is small, and written whole;
`folder` is for files that grow while a long measurement is made.
"""

import contextlib
import dataclasses
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from azr_jax.config import user_files
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import console, storage

FOLDER = "records"
_IDENTITY = "identity.json"


@dataclasses.dataclass(frozen=True)
class MeasurementFiles:
  """A folder of JSON lines that grow, of one measurement.

  Attributes:
    path: the folder on this machine that they are written to.
    kept: where they stay; `path` itself, except for a run in an object store;
      None: they do not stay.
  """

  path: pathlib.Path
  kept: pathlib.Path | None

  def keep(self, name: str) -> None:
    """Copies a file to where it stays, on the primary host alone.

    An object store keeps whole files, so that a file which is not kept yet is
    made again by a resumed run.
    """
    if self.kept is not None and self.kept != self.path:
      text = (self.path / name).read_text("utf-8")
      storage.write_if_possible(self.kept / name, text)


class Records:
  """The records of a run, of which all hosts read the same."""

  def __init__(self, folder: pathlib.Path | None, hosts: Hosts | None):
    """Nothing is written yet.

    Args:
      folder: the run's folder; None: nothing is kept.
      hosts: the processes of the run.
    """
    self._folder = folder / FOLDER if folder is not None else None
    self._hosts = hosts

  def read(self, name: str) -> list[dict[str, Any]]:
    """Returns the records of a file; none if it does not exist.

    Raises:
      ValueError: the file is damaged.
    """
    if self._folder is None or self._hosts is None:
      return []
    path = self._folder / name
    text = self._hosts.from_primary(
      f"records/{name}",
      lambda: path.read_text(encoding="utf-8") if path.exists() else "",
    )
    with user_files.reading(path, "records as JSON lines"):
      return [user_files.parse_json(line) for line in text.split("\n") if line]

  def write(self, name: str, records: Sequence[dict[str, Any]]) -> None:
    """Writes a file whole, on the primary host."""
    if self._folder is None or self._hosts is None:
      return
    if self._hosts.is_primary:
      lines = [json.dumps(record) + "\n" for record in records]
      storage.write_if_possible(self._folder / name, "".join(lines))

  @contextlib.contextmanager
  def folder(
    self, name: str, identity: Mapping[str, Any]
  ) -> Iterator[MeasurementFiles]:
    """Yields a folder for files that grow, with those of an earlier try.

    Args:
      name: of the folder in `records/`.
      identity: JSON values from which the records follow. What was made from
        others is removed, and a line says so.
    """
    with contextlib.ExitStack() as stack:
      if self._folder is None or self._hosts is None:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        yield MeasurementFiles(pathlib.Path(scratch), None)
        return
      kept, text = self._folder / name, json.dumps(identity)
      self._hosts.from_primary(
        f"records/{name}/{_IDENTITY}", lambda: _prepare(kept, text)
      )
      if not storage.is_object_store(kept):
        yield MeasurementFiles(kept, kept)
        return
      scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
      for path in kept.glob("*.jsonl"):
        (scratch / path.name).write_text(path.read_text("utf-8"), "utf-8")
      self._hosts.barrier(f"records/{name} is copied")
      yield MeasurementFiles(scratch, kept if self._hosts.is_primary else None)


def _prepare(folder: pathlib.Path, identity: str) -> str:
  """Makes a folder of this identity; records of another one are removed."""
  path = folder / _IDENTITY
  if path.exists():
    found = path.read_text("utf-8")
    if found == identity:
      console.print_status(f"{folder}: what has no record yet is measured")
      return identity
    console.print_status(
      f"{folder}: the records were made with {_differing(found, identity)}; "
      "they are removed, and made again"
    )
  if folder.exists():  # Without an identity, nobody knows what it holds.
    remove = getattr(folder, "rmtree", None) or (lambda: shutil.rmtree(folder))
    remove()
  storage.write_if_possible(path, identity)
  return identity


def _differing(found: str, identity: str) -> str:
  """Names the values of an identity that differ from those of another."""
  try:
    before = user_files.parse_json(found)
  except ValueError:
    before = None
  if not isinstance(before, dict):
    return "values that cannot be read"
  names = [k for k, v in json.loads(identity).items() if before.get(k) != v]
  return f"other {', '.join(names)}"
