"""Run folders, local or in an object store.

An object store supports neither appending nor locks. Runs there have no lock
and no TensorBoard events, and rewrite their metrics from time to time.
`file:///PATH` treats a local folder as an object store.
"""

import contextlib
import importlib.util
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import cast

from etils import epath

from azr_jax.run.console import print_status

_FILE = "file://"
# Seconds before each retry of a write to an object store.
_RETRY_DELAYS_S = (0.5, 2.0, 8.0)
_COPY_CHUNK_BYTES = 1 << 24


def resolve(text: str) -> pathlib.Path:
  """Returns the folder of a path, or of a URL such as `gs://BUCKET/FOLDER`.

  Raises:
    ModuleNotFoundError: the package for the object store is missing.
  """
  if "://" not in text:
    return pathlib.Path(text).expanduser()
  if text.startswith("gs://") and importlib.util.find_spec("gcsfs") is None:
    raise ModuleNotFoundError("object stores need gcsfs", name="gcsfs")
  # An epath.Path is not a pathlib.Path, but it has the same methods.
  return cast(pathlib.Path, epath.Path(text.removeprefix(_FILE)))


def absolute(text: str) -> pathlib.Path:
  """Returns the same folder as `resolve`, as an absolute path."""
  folder = resolve(text)
  return folder if is_object_store(folder) else folder.absolute()


def is_object_store(folder: pathlib.Path) -> bool:
  """Returns whether a folder from `resolve` is in an object store."""
  return not isinstance(folder, pathlib.Path)


def write_atomically(path: pathlib.Path, text: str) -> None:
  """Writes a file atomically: readers never see part of the text.

  Writes to an object store are retried, because stores refuse requests now and
  then.

  Raises:
    OSError: the file cannot be written.
  """
  if is_object_store(path):
    _retry(path, lambda: path.write_text(text, encoding="utf-8"))
    return
  partial = path.with_suffix(".partial")
  partial.write_text(text, encoding="utf-8")
  partial.replace(path)


def write_if_possible(path: pathlib.Path, text: str) -> None:
  """Writes a file atomically, or prints a message if a store refuses it.

  For files that a run can do without. A local folder that cannot be written to
  still raises an error, because nothing else could be saved there.
  """
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
  except Exception as error:
    if not is_object_store(path):
      raise
    print_status(f"{path} is not written: {error}")


@contextlib.contextmanager
def upload_on_exit(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a local folder, and uploads its files to `folder` at the end.

  For libraries that can only write to a local disk. A local folder is yielded
  itself. For a folder in an object store, files go to a temporary folder and
  are uploaded unless the context ends with an error.

  Args:
    folder: the target. It is created if missing.

  Raises:
    OSError: a file cannot be copied.
  """
  if not is_object_store(folder):
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    return
  with tempfile.TemporaryDirectory() as name:
    local = pathlib.Path(name)
    yield local
    for path in sorted(local.rglob("*")):
      if path.is_file():
        copy(path, folder / str(path.relative_to(local)))


def copy(path: pathlib.Path, target: pathlib.Path) -> None:
  """Copies a local file to an object store, in chunks.

  Raises:
    OSError: the copy cannot be written.
  """

  def write() -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with path.open("rb") as source, target.open("wb") as sink:
      shutil.copyfileobj(source, sink, _COPY_CHUNK_BYTES)

  _retry(target, write)


def remove_folder(folder: pathlib.Path) -> None:
  """Removes a folder and everything in it, if it exists."""
  if isinstance(folder, epath.Path):
    folder.rmtree(missing_ok=True)
  else:
    shutil.rmtree(folder, ignore_errors=True)


def replace(path: pathlib.Path, target: pathlib.Path) -> None:
  """Copies like `copy`, but keeps an old target until the copy is complete.

  Raises:
    OSError: the copy cannot be written.
  """
  partial = target.with_name(f"{target.name}.partial")
  copy(path, partial)
  _retry(target, lambda: partial.replace(target))


def _retry(path: pathlib.Path, write: Callable[[], object]) -> None:
  """Calls `write`, which writes an object, until it succeeds.

  Raises:
    OSError: the last retry failed too.
  """
  for delay_s in (*_RETRY_DELAYS_S, None):
    try:
      write()
      return
    # Store clients raise their own errors, not only OSError.
    except Exception as error:
      if delay_s is None:
        raise OSError(
          f"{path} cannot be written ({type(error).__name__}: {error})"
        ) from error
      time.sleep(delay_s)
