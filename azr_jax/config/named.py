"""Finds objects outside the package by name.

| name | the object |
| --- | --- |
| `MODULE:NAME` | in a module that can be imported from the working directory |
| `FILE.py:NAME` | in a file, whose folder is added to the import path |

Systems, estimators, policy losses, curricula, benchmarks, rewards and
environments are all found this way. This module imports only the standard
library.
"""

import hashlib
import importlib
import importlib.util
import pathlib
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

# First part of the name of a module that comes from a file.
FILE_MODULE = "_user_file_"


def is_spec(name: str) -> bool:
  """Returns whether a name has one of the forms in the module's table."""
  return ":" in name


def split(spec: str) -> tuple[str, str]:
  """Returns the file or module of a spec, and the name.

  Raises:
    ValueError: the spec has another form.
  """
  module, colon, name = spec.rpartition(":")
  is_place = bool(module.strip()) and "*" not in module
  if not colon or not is_place or not name.isidentifier():
    raise ValueError(f"{spec!r}: expected FILE.py:NAME or MODULE:NAME")
  return module, name


def find(spec: str) -> Any:
  """Imports the module of a spec and returns the object it names.

  Raises:
    ValueError: no such file, module or name. The message is one line.
  """
  where, name = split(spec)
  try:
    module = _import(where)
  except Exception as error:
    raise ValueError(
      f"{where} cannot be imported: {type(error).__name__}: "
      f"{' '.join(str(error).split())[:200]}{last_line(error)}"
    ) from error
  if not hasattr(module, name):
    own = [
      key
      for key, value in vars(module).items()
      if getattr(value, "__module__", "") == module.__name__ and callable(value)
    ]
    raise ValueError(
      f"{where} has no function or class {name!r}: expected one of {own}"
    )
  return getattr(module, name)


def choose(
  name: str, table: Mapping[str, Any], accepts: Callable[[Any], bool], kind: str
) -> Any:
  """Returns an entry of a table, or an object from outside the package.

  Args:
    name: a key of the table, MODULE:NAME or FILE.py:NAME.
    table: the package's own choices, by name.
    accepts: returns whether an outside object is of the right kind.
    kind: the kind in words, with its article.

  Raises:
    ValueError: there is no such object, or it is of another kind. The message
      is the text that follows "expected".
  """
  if name in table:
    return table[name]
  choices = f"one of {tuple(table)}, or " if table else ""
  expected = f"{choices}MODULE:NAME of {kind}"
  if not is_spec(name):
    raise ValueError(expected)
  try:
    found = find(name)
  except ValueError as error:
    raise ValueError(f"{expected} ({error})") from error
  if not accepts(found):
    raise ValueError(f"{expected}; this is {type(found).__name__}")
  return found


def _import(where: str) -> types.ModuleType:
  """Imports a module by name or by the path of its file."""
  if not where.endswith(".py"):
    return importlib.import_module(where)
  path = pathlib.Path(where).expanduser().resolve()
  if not path.is_file():
    raise FileNotFoundError(f"there is no file {path}")
  if str(path.parent) not in sys.path:
    sys.path.insert(0, str(path.parent))
  # Two files may share a stem, and a stem may be the name of a library.
  digest = hashlib.blake2b(str(path).encode(), digest_size=8).hexdigest()
  name = f"{FILE_MODULE}{path.stem}_{digest}"
  if name not in sys.modules:
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
      module_spec.loader.exec_module(module)
    except BaseException:
      del sys.modules[name]
      raise
  return sys.modules[name]


def last_line(error: BaseException) -> str:
  """Returns where an error was raised as ` (FILE:LINE)`, or "" if unknown."""
  trace = error.__traceback__
  if trace is None:
    return ""
  while trace.tb_next is not None:
    trace = trace.tb_next
  file = pathlib.Path(trace.tb_frame.f_code.co_filename)
  if not file.is_absolute() or file == pathlib.Path(__file__):
    return ""  # The import itself failed: Python's code, or this module.
  return f" ({file.name}:{trace.tb_lineno})"
