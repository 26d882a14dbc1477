"""Files that a system stores in its run's folder, for resumed runs.

They hold results that are computed once and reused: by the same run if it is
killed before its next checkpoint, or by another run. They live in the folder
`records/`. `read` and `write` handle small files, written whole. `folder` is
for files that grow during a long measurement.
"""

import contextlib
import dataclasses
import json
import pathlib
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
  """A folder of growing JSON-lines files, for one measurement.

  Attributes:
    path: the local folder to write to.
    kept: the permanent folder. It equals `path` except for runs in an object
      store; None if the files are not kept.
  """

  path: pathlib.Path
  kept: pathlib.Path | None

  def keep(self, name: str) -> None:
    """Copies a file to the permanent folder, on the primary host only.

    Object stores hold only whole files, so a resumed run repeats the work of a
    file that was not copied.
    """
    if self.kept is not None and self.kept != self.path:
      text = (self.path / name).read_text("utf-8")
      storage.write_if_possible(self.kept / name, text)


class Records:
  """The records of a run. All hosts read the same contents."""

  def __init__(self, folder: pathlib.Path | None, hosts: Hosts | None):
    """Creates the records. Nothing is written yet.

    Args:
      folder: the run's folder. None keeps no records.
      hosts: the processes of the run.
    """
    self._folder = folder / FOLDER if folder is not None else None
    self._hosts = hosts

  def read(self, name: str) -> list[dict[str, Any]]:
    """Returns the records of a file, [] if it does not exist.

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
    """Writes a whole file, on the primary host."""
    if self._folder is None or self._hosts is None:
      return
    if self._hosts.is_primary:
      lines = [json.dumps(record) + "\n" for record in records]
      storage.write_if_possible(self._folder / name, "".join(lines))

  @contextlib.contextmanager
  def folder(
    self, name: str, identity: Mapping[str, Any]
  ) -> Iterator[MeasurementFiles]:
    """Yields a folder for growing files, with files of earlier attempts.

    Args:
      name: the name of the folder in `records/`.
      identity: JSON values that the records depend on. If an earlier attempt
        had other values, its records are removed and a message is printed.
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
  """Creates a folder for an identity, removing records of another one."""
  path = folder / _IDENTITY
  if path.exists():
    found = path.read_text("utf-8")
    if found == identity:
      console.print_status(f"{folder}: measuring what has no record yet")
      return identity
    console.print_status(
      f"{folder}: the records were made with {_differing(found, identity)}; "
      "they are removed, and measured again"
    )
  # Without an identity, the contents are unknown.
  storage.remove_folder(folder)
  storage.write_if_possible(path, identity)
  return identity


def _differing(found: str, identity: str) -> str:
  """Names the values in which two identities differ."""
  try:
    before = user_files.parse_json(found)
  except ValueError:
    before = None
  if not isinstance(before, dict):
    return "values that cannot be read"
  names = [k for k, v in json.loads(identity).items() if before.get(k) != v]
  return f"other {', '.join(names)}"
