"""In-memory files, for scripts that write files and read them back.

The files belong to one script's process: they count as its memory and disappear
with it. They need no system calls, so no sandbox layer needs an exception.
`open` and the functions in `REPLACED` work on these files, and so do `pathlib`,
`glob` and libraries that use them. A script starts in an empty folder, and no
other files exist. `tempfile` can create folders, but not files.
"""

import builtins
import errno
import io
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_HOME = "/home"
# By path: content, time of the last change.
_files: dict[str, tuple[bytes, float]] = {}
_folders = {"/", _HOME, "/tmp"}


def _path(path: _Path) -> str:
  """Returns the absolute path, with `.` and `..` resolved."""
  text = os.fsdecode(os.fspath(path))
  return os.path.normpath(os.path.join(_HOME, text))


def _error(number: int, *paths: object) -> OSError:
  return OSError(number, os.strerror(number), *paths)


class _File(io.BytesIO):
  """An open file; its content is stored when it is flushed or closed."""

  def __init__(self, path: str, mode: str) -> None:
    super().__init__(b"" if "w" in mode else _files[path][0])
    self.name = path
    self._reads = "r" in mode or "+" in mode
    self._writes = mode[0] in "wax" or "+" in mode
    if mode[0] == "a":
      self.seek(0, io.SEEK_END)

  def readable(self) -> bool:
    return self._reads

  def writable(self) -> bool:
    return self._writes

  def read(self, size: int | None = -1) -> bytes:
    self._require(self._reads, "read")
    return super().read(size)

  # Python 3.11 has no type for buffers.
  def write(self, data: Any) -> int:
    self._require(self._writes, "write")
    return super().write(data)

  def _require(self, allowed: bool, message: str) -> None:
    if not allowed:
      raise io.UnsupportedOperation(message)

  def flush(self) -> None:
    super().flush()
    if self._writes and self.name in _files:
      _files[self.name] = self.getvalue(), time.time()

  def close(self) -> None:
    if not self.closed:
      self.flush()
    super().close()


def _checked(mode: str) -> set[str]:
  """Returns the set of letters of a mode, or raises as `open` does."""
  kinds = set(mode)
  if len(kinds) != len(mode) or not kinds <= set("rwaxbt+"):
    raise ValueError(f"invalid mode: {mode!r}")
  if {"b", "t"} <= kinds:
    raise ValueError("can't have text and binary mode at once")
  if len(kinds & set("rwax")) != 1:
    raise ValueError("must have exactly one of create/read/write/append mode")
  return kinds


def open_file(
  file: _Path | int,
  mode: str = "r",
  buffering: int = -1,
  encoding: str | None = None,
  errors: str | None = None,
  newline: str | None = None,
  closefd: bool = True,
  opener: Callable[[str, int], int] | None = None,
) -> TextIO | _File:
  """Opens an in-memory file; takes the arguments of `open`."""
  if isinstance(file, int):
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if 0 <= file < len(streams):
      return streams[file]
    raise _error(errno.EBADF)
  kinds = _checked(mode)
  path, kind = _path(file), (kinds & set("rwax")).pop()
  if path in _folders:
    raise _error(errno.EISDIR, file)
  if kind == "x" and path in _files:
    raise _error(errno.EEXIST, file)
  if os.path.dirname(path) not in _folders or (
    kind == "r" and path not in _files
  ):
    raise _error(errno.ENOENT, file)
  if kind in "wx" or path not in _files:
    _files[path] = b"", time.time()
  raw = _File(path, kind + "+" * ("+" in kinds))
  if "b" in kinds:
    return raw
  return io.TextIOWrapper(raw, encoding or "utf-8", errors, newline)


def _stat(
  path: _Path, *, dir_fd: int | None = None, follow_symlinks: bool = True
) -> os.stat_result:
  absolute = _path(path)
  if absolute in _folders:
    return os.stat_result((stat.S_IFDIR | 0o755, *[0] * 9))
  if absolute not in _files:
    raise _error(errno.ENOENT, path)
  content, changed = _files[absolute]
  times = [int(changed)] * 3
  mode = stat.S_IFREG | 0o644
  return os.stat_result((mode, 0, 0, 1, 0, 0, len(content), *times))


def _remove(path: _Path, *, dir_fd: int | None = None) -> None:
  _stat(path)
  if _path(path) in _folders:
    raise _error(errno.EISDIR, path)
  del _files[_path(path)]


def _mkdir(
  path: _Path, mode: int = 0o777, *, dir_fd: int | None = None
) -> None:
  absolute = _path(path)
  if absolute in _folders or absolute in _files:
    raise _error(errno.EEXIST, path)
  if os.path.dirname(absolute) not in _folders:
    raise _error(errno.ENOENT, path)
  _folders.add(absolute)


def _rmdir(path: _Path, *, dir_fd: int | None = None) -> None:
  if _listdir(path):
    raise _error(errno.ENOTEMPTY, path)
  _folders.remove(_path(path))


def _listdir(path: _Path = ".") -> list[str]:
  _stat(path)
  absolute = _path(path)
  if absolute not in _folders:
    raise _error(errno.ENOTDIR, path)
  known = sorted(_folders | set(_files))
  return [
    os.path.basename(other)
    for other in known
    if os.path.dirname(other) == absolute and other != absolute
  ]


class _Entry:
  """Replaces `os.DirEntry`."""

  def __init__(self, folder: str | os.PathLike[str], name: str) -> None:
    self.name, self.path = name, os.path.join(folder, name)

  def __fspath__(self) -> str:
    return self.path

  def is_dir(self, *, follow_symlinks: bool = True) -> bool:
    return _path(self.path) in _folders

  def is_file(self, *, follow_symlinks: bool = True) -> bool:
    return _path(self.path) in _files

  def is_symlink(self) -> bool:
    return False

  def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
    return _stat(self.path)


class _Scandir:
  """Replaces `os.scandir`."""

  def __init__(self, path: str | os.PathLike[str] = ".") -> None:
    self._entries = iter([_Entry(path, name) for name in _listdir(path)])

  def __iter__(self) -> Iterator[_Entry]:
    return self

  def __next__(self) -> _Entry:
    return next(self._entries)

  def __enter__(self) -> "_Scandir":
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()

  def close(self) -> None:
    """Does nothing, because no descriptor is open."""


def _rename(
  src: _Path,
  dst: _Path,
  *,
  src_dir_fd: int | None = None,
  dst_dir_fd: int | None = None,
) -> None:
  before, after = _path(src), _path(dst)
  number = 0
  if before in _folders or after in _folders:
    number = errno.EISDIR
  elif before not in _files or os.path.dirname(after) not in _folders:
    number = errno.ENOENT
  if number:
    raise _error(number, src, None, dst)
  _files[after] = _files.pop(before)


# Replacements for functions that the sandbox denies.
REPLACED: list[tuple[object, dict[str, object]]] = [
  (
    os,
    {
      "getcwd": lambda: _HOME,
      "listdir": _listdir,
      "lstat": _stat,
      "mkdir": _mkdir,
      "remove": _remove,
      "rename": _rename,
      "replace": _rename,
      "rmdir": _rmdir,
      "scandir": _Scandir,
      "stat": _stat,
      "unlink": _remove,
    },
  ),
  (builtins, {"open": open_file}),
  (io, {"open": open_file}),
  (tempfile, {"tempdir": "/tmp"}),
]
