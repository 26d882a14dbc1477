"""Files in memory, for scripts that write some and read them again.

They belong to one script's process: they count as its memory and end with it.
No system call is made, so no wall needs a hole. `open` and the functions of
`_FUNCTIONS` know them, and through these `pathlib`, `os.path` and the
libraries. A script begins in an empty folder, and no other file exists.
`tempfile` makes folders, but no files.
"""

import builtins
import errno
import io
import os
import stat
import sys
import tempfile
import time

_HOME = "/home"
_files = {}  # By path: [content, time of the last change].
_folders = {"/", _HOME, "/tmp"}


def install():
  """Puts these functions in the place of those that the sandbox denies."""
  builtins.open = io.open = open_file
  tempfile.tempdir = "/tmp"
  for name, function in _FUNCTIONS.items():
    setattr(os, name, function)


def _path(path):
  """Returns the absolute path, without `.` and `..`."""
  text = os.fsdecode(os.fspath(path))
  return os.path.normpath(os.path.join(_HOME, text))


def _error(number, path):
  return OSError(number, os.strerror(number), path)


class _File(io.BytesIO):
  """An open file, whose content is stored when it is flushed or closed."""

  def __init__(self, path, mode):
    super().__init__(b"" if "w" in mode else bytes(_files[path][0]))
    self.name, self.mode = path, mode
    self._reads = "r" in mode or "+" in mode
    self._writes = mode[0] in "wax" or "+" in mode
    if mode[0] == "a":
      self.seek(0, io.SEEK_END)

  def readable(self):
    return self._reads

  def writable(self):
    return self._writes

  def read(self, size=-1):
    self._require(self._reads, "not readable")
    return super().read(size)

  def write(self, data):
    self._require(self._writes, "not writable")
    return super().write(data)

  def _require(self, allowed, message):
    if not allowed:
      raise io.UnsupportedOperation(message)

  def flush(self):
    super().flush()
    if self._writes and self.name in _files:
      _files[self.name][:] = self.getvalue(), time.time()

  def close(self):
    if not self.closed:
      self.flush()
    super().close()


def open_file(
  file,
  mode="r",
  buffering=-1,
  encoding=None,
  errors=None,
  newline=None,
  closefd=True,
  opener=None,
):
  """Opens a file in memory, with the arguments of `open`."""
  if isinstance(file, int):
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if 0 <= file < len(streams):
      return streams[file]
    raise _error(errno.EBADF, file)
  kinds = set(mode)
  if (
    len(kinds) != len(mode)
    or not kinds <= set("rwaxbt+")
    or len(kinds & set("rwax")) != 1
    or {"b", "t"} <= kinds
  ):
    raise ValueError(f"invalid mode: {mode!r}")
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
    _files[path] = [b"", time.time()]
  raw = _File(path, kind + "+" * ("+" in kinds))
  if "b" in kinds:
    return raw
  text = io.TextIOWrapper(raw, encoding or "utf-8", errors, newline)
  text.mode = mode
  return text


def _stat(path, *, dir_fd=None, follow_symlinks=True):
  place = _path(path)
  if place in _folders:
    return os.stat_result((stat.S_IFDIR | 0o755, *[0] * 9))
  if place not in _files:
    raise _error(errno.ENOENT, path)
  content, changed = _files[place]
  times = [int(changed)] * 3
  mode = stat.S_IFREG | 0o644
  return os.stat_result((mode, 0, 0, 1, 0, 0, len(content), *times))


def _remove(path, *, dir_fd=None):
  _stat(path)
  if _path(path) in _folders:
    raise _error(errno.EISDIR, path)
  del _files[_path(path)]


def _mkdir(path, mode=0o777, *, dir_fd=None):
  place = _path(path)
  if place in _folders or place in _files:
    raise _error(errno.EEXIST, path)
  if os.path.dirname(place) not in _folders:
    raise _error(errno.ENOENT, path)
  _folders.add(place)


def _rmdir(path, *, dir_fd=None):
  if _listdir(path):
    raise _error(errno.ENOTEMPTY, path)
  _folders.remove(_path(path))


def _listdir(path="."):
  _stat(path)
  place = _path(path)
  if place not in _folders:
    raise _error(errno.ENOTDIR, path)
  known = sorted(_folders | set(_files))
  return [
    os.path.basename(other)
    for other in known
    if os.path.dirname(other) == place and other != place
  ]


def _rename(src, dst, *, src_dir_fd=None, dst_dir_fd=None):
  _stat(src)
  if os.path.dirname(_path(dst)) not in _folders:
    raise _error(errno.ENOENT, dst)
  if _path(src) in _folders or _path(dst) in _folders:
    raise _error(errno.EISDIR, src)
  _files[_path(dst)] = _files.pop(_path(src))


_FUNCTIONS = {
  "getcwd": lambda: _HOME,
  "listdir": _listdir,
  "lstat": _stat,
  "mkdir": _mkdir,
  "remove": _remove,
  "rename": _rename,
  "replace": _rename,
  "rmdir": _rmdir,
  "stat": _stat,
  "unlink": _remove,
}
