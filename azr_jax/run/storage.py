"""Folders of runs: on this machine, or in an object store.

In an object store files can be written whole, but neither appended to nor
locked: runs there have no lock and no TensorBoard events, and their metrics are
written anew every now and then. `file:///PATH` is a folder of this machine that
is treated so.
"""

import importlib.util
import pathlib
from typing import cast

from etils import epath

_FILE = "file://"


def resolve(text: str) -> pathlib.Path:
  """The folder of a path, or of a URL such as `gs://BUCKET/FOLDER`."""
  if "://" not in text:
    return pathlib.Path(text).expanduser()
  if text.startswith("gs://") and importlib.util.find_spec("gcsfs") is None:
    raise ModuleNotFoundError("object stores need gcsfs", name="gcsfs")
  # It is not a pathlib.Path, but has its methods.
  return cast(pathlib.Path, epath.Path(text.removeprefix(_FILE)))


def is_object_store(folder: pathlib.Path) -> bool:
  """Whether a folder of `resolve` is one of an object store."""
  return not isinstance(folder, pathlib.Path)


def write_whole(path: pathlib.Path, text: str) -> None:
  """Writes a file that is never seen half written."""
  if is_object_store(path):
    path.write_text(text)
    return
  partial = path.with_suffix(".partial")
  partial.write_text(text, encoding="utf-8")
  partial.replace(path)
