"""Imports without files: modules whose code a zygote holds in memory.

Libraries import many of their modules on first use, but a sandboxed script
cannot read files. So a zygote for scripts keeps the compiled code of the whole
standard library and of the libraries in one block of memory that its children
share. A child runs a module's code only when it imports the module.

Extension modules (`.so`) cannot be loaded from memory, so the zygote loads them
in advance. Test packages are left out.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import marshal
import mmap
import os
import struct
import sys
import types
import warnings
from collections.abc import Iterable, Sequence

_LEFT_OUT = frozenset(
  "__pycache__ site-packages dist-packages test tests testing_data idlelib "
  "lib2to3 tkinter turtledemo ensurepip pydoc_data benchmarks conftest".split()
)
# Extension modules of the standard library that are large or need a terminal.
_UNLOADED = frozenset(
  "_curses _curses_panel _dbm _gdbm _tkinter readline".split()
)
_PYC_HEADER = struct.Struct("<4sIII")  # Magic number, flags, time, size.


class MemoryImporter(importlib.abc.InspectLoader):
  """Finds and loads the modules that were added; goes into `sys.meta_path`."""

  def __init__(self) -> None:
    # By name: (offset, size, is_compiled, path).
    self._index: dict[str, tuple[int, int, bool, str]] = {}
    self._parts: list[bytes] = []
    self._size = 0
    self._block = memoryview(b"")

  def add(self, name: str, path: str) -> None:
    """Adds a module's code: compiled if Python has cached it, else source."""
    code = _compiled(path)
    is_compiled = code is not None
    if code is None:
      with open(path, "rb") as file:
        code = file.read()
    self._index[name] = self._size, len(code), is_compiled, path
    self._parts.append(code)
    self._size += len(code)

  def close(self) -> None:
    """Moves the code into the block; nothing can be added afterwards."""
    file = os.memfd_create("modules")
    for part in self._parts:
      os.write(file, part)
    self._parts.clear()
    if self._size:
      # A fork does not copy the page table of a file mapping.
      self._block = memoryview(
        mmap.mmap(file, self._size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
      )
    os.close(file)

  def find_spec(
    self,
    name: str,
    path: Sequence[str] | None = None,
    target: types.ModuleType | None = None,
  ) -> importlib.machinery.ModuleSpec | None:
    """Returns the specification of a module, or None."""
    if name not in self._index:
      return None
    origin = self._index[name][-1]
    is_package = self.is_package(name)
    spec = importlib.machinery.ModuleSpec(
      name, self, origin=origin, is_package=is_package
    )
    spec.has_location = True
    if is_package:
      spec.submodule_search_locations = [os.path.dirname(origin)]
    return spec

  def get_code(self, fullname: str) -> types.CodeType:
    """Returns a module's code object, which the base class runs."""
    start, size, is_compiled, path = self._index[fullname]
    code = self._block[start : start + size]
    if is_compiled:
      return marshal.loads(code)
    return compile(bytes(code), path, "exec", 0, True)

  def get_source(self, fullname: str) -> None:
    """Returns None, because source is not kept."""

  def is_package(self, fullname: str) -> bool:
    """Returns whether a module is a package."""
    return os.path.basename(self._index[fullname][-1]) == "__init__.py"


def install(packages: Iterable[str]) -> None:
  """Makes the standard library and some packages importable from memory.

  Args:
    packages: names of packages; packages that are not loaded are skipped.
  """
  importer = MemoryImporter()
  standard = os.path.dirname(os.__file__)
  _take_folder(importer, standard, "")
  _load_extensions(os.path.join(standard, "lib-dynload"), "")
  for name in packages:
    for folder in getattr(sys.modules.get(name), "__path__", ()):
      _take_folder(importer, folder, f"{name}.")
  importer.close()
  sys.meta_path.insert(0, importer)


def _take_folder(importer: MemoryImporter, folder: str, prefix: str) -> None:
  """Adds every module of a folder and of the packages in it."""
  with os.scandir(folder) as entries:
    for entry in sorted(entries, key=lambda e: e.name):
      stem, ending = os.path.splitext(entry.name)
      if stem in _LEFT_OUT or not stem.isidentifier():
        continue
      if ending == ".py" and stem != "__init__":
        importer.add(prefix + stem, entry.path)
      init = os.path.join(entry.path, "__init__.py")
      if not ending and os.path.isfile(init):
        importer.add(prefix + stem, init)
        _take_folder(importer, entry.path, f"{prefix}{stem}.")
  if prefix:
    _load_extensions(folder, prefix)


def _load_extensions(folder: str, prefix: str) -> None:
  """Imports every importable extension module of a folder."""
  for ending in importlib.machinery.EXTENSION_SUFFIXES:
    for file in sorted(os.listdir(folder)):
      stem = file.removesuffix(ending)
      if stem == file or stem in _UNLOADED or "test" in stem:
        continue
      with warnings.catch_warnings(action="ignore"):
        try:
          importlib.import_module(prefix + stem)
        except Exception:  # noqa: BLE001 - optional dependencies may be missing.
          continue


def _compiled(path: str) -> bytes | None:
  """Returns Python's cached bytecode of a file; None if missing or stale."""
  try:
    with open(importlib.util.cache_from_source(path), "rb") as file:
      data = file.read()
    magic, flags, changed, size = _PYC_HEADER.unpack_from(data)
  except (OSError, struct.error):
    return None
  source = os.stat(path)
  is_current = (magic, flags, changed, size) == (
    importlib.util.MAGIC_NUMBER,
    0,
    int(source.st_mtime) & 0xFFFFFFFF,
    source.st_size & 0xFFFFFFFF,
  )
  return data[_PYC_HEADER.size :] if is_current else None
