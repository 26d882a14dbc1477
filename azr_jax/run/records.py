"""Files of JSON lines that a system keeps in its run's folder.

They hold what is made once and can be used again: by the run itself if it is
killed before its first checkpoint, or by another run. They are in the folder
`records/`.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from azr_jax.config import user_files
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import storage

FOLDER = "records"


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
