"""A file to append lines to, which object stores do not support.

An object store only holds whole files. There, lines go to a local file, which
is uploaded from time to time and at the end.
"""

import contextlib
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import TextIO

from azr_jax.run import console, storage

# Seconds between uploads, unless they take more than `_MAX_SHARE` of the time.
UPLOAD_S = 30.0
# Maximum fraction of time spent on uploads, which block the caller.
_MAX_SHARE = 0.1


class GrowingFile:
  """Appends lines to a local file or to an object store. A context manager.

  If the context ends without an error, an object store has all lines, or an
  OSError says that the store refused them. Before that, it has the lines of the
  last upload.

  Attributes:
    here: the file, or its local copy, inside the context.
  """

  here: pathlib.Path

  def __init__(self, path: pathlib.Path, may_write: bool):
    """Creates the object. The context opens the file.

    Args:
      path: the file, which may have lines already.
      may_write: whether `append` writes. Only one process should.
    """
    self._path, self._may_write = path, may_write
    self._stack = contextlib.ExitStack()
    self._sink: TextIO | None = None
    self._has_news = False
    self._upload_s, self._uploaded_at = 0.0, 0.0

  def __enter__(self) -> "GrowingFile":
    self.here = self._stack.enter_context(on_this_machine(self._path))
    self._uploaded_at = time.monotonic()
    if self._may_write:
      self._has_news = not self.here.exists()
      self._sink = self.here.open("a", encoding="utf-8")
    return self

  def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
    with self._stack:
      if self._sink is not None:
        self._sink.close()
      if not self._has_news or not storage.is_object_store(self._path):
        return
      self._upload()
      if self._has_news and kind is None:
        raise OSError(f"{self._path} lacks lines, which are in {self._saved()}")

  def _saved(self) -> pathlib.Path:
    """Returns a permanent copy of the file on this machine."""
    folder = pathlib.Path(tempfile.mkdtemp())
    return pathlib.Path(shutil.copy(self.here, folder))

  def append(self, line: str) -> None:
    """Appends a line, which must end with a newline."""
    if self._sink is None:
      return
    self._sink.write(line)
    self._sink.flush()
    self._has_news = True
    pause_s = max(UPLOAD_S, self._upload_s / _MAX_SHARE)
    is_stored = storage.is_object_store(self._path)
    if is_stored and time.monotonic() - self._uploaded_at > pause_s:
      self._upload()

  def _upload(self) -> None:
    """Uploads the file, or prints the error if the store refuses it."""
    start = time.monotonic()
    try:
      storage.replace(self.here, self._path)
      self._has_news = False
    except OSError as error:
      console.print_status(str(error))
    self._uploaded_at = time.monotonic()
    self._upload_s = self._uploaded_at - start


@contextlib.contextmanager
def on_this_machine(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a local file itself, or a temporary copy of a stored one.

  The copy has the file's name and is removed at the end of the context. If the
  file does not exist, neither does the copy.
  """
  if not storage.is_object_store(path):
    yield path
    return
  with tempfile.TemporaryDirectory() as folder:
    here = pathlib.Path(folder) / path.name
    if path.exists():
      with path.open("rb") as source, here.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    yield here
