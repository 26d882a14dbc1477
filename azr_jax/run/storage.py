"""Folders of runs: on this machine, or in an object store.

Files of an object store are written whole; they cannot be appended to or
locked. So runs there have no lock and no TensorBoard events, and rewrite their
metrics from time to time. `file:///PATH` treats a folder of this machine as an
object store.
"""

import importlib.util
import pathlib
from typing import cast

from etils import epath

_FILE = "file://"


def resolve(text: str) -> pathlib.Path:
  """Returns the folder of a path, or of a URL such as `gs://BUCKET/FOLDER`.

  Raises:
    ModuleNotFoundError: the package that reads the object store is missing.
  """
  if "://" not in text:
    return pathlib.Path(text).expanduser()
  if text.startswith("gs://") and importlib.util.find_spec("gcsfs") is None:
    raise ModuleNotFoundError("object stores need gcsfs", name="gcsfs")
  # An epath.Path is not a pathlib.Path, but it has the same methods.
  return cast(pathlib.Path, epath.Path(text.removeprefix(_FILE)))


def absolute(text: str) -> pathlib.Path:
  """Returns the folder as `resolve` does, with its whole path."""
  folder = resolve(text)
  return folder if is_object_store(folder) else folder.absolute()


def is_object_store(folder: pathlib.Path) -> bool:
  """Returns whether a folder of `resolve` is in an object store."""
  return not isinstance(folder, pathlib.Path)


def write_whole(path: pathlib.Path, text: str) -> None:
  """Writes a file; a reader never sees a part of the text."""
  if is_object_store(path):
    path.write_text(text)
    return
  partial = path.with_suffix(".partial")
  partial.write_text(text, encoding="utf-8")
  partial.replace(path)
