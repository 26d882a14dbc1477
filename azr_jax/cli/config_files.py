"""Finds config files by name, and checks the keys that flags set."""

import atexit
import difflib
import importlib.util
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence

import ml_collections

from azr_jax.cli.errors import UsageError
from azr_jax.config import overrides, suggestions
from azr_jax.config.settings import Invalid

_PACKAGE = pathlib.Path(__file__).parents[1]
# The folders that hold configs/: the clone, or else the package.
_SHIPPED = (_PACKAGE.parent, _PACKAGE)
_FLAG = re.compile(r"--?config(=|$)")
_OVERRIDE = re.compile(r"--?(?:no)?config\.([\w.\[\]]+)(?:=(.*))?$", re.DOTALL)


def resolve(spec: str) -> str:
  """Returns FILE:VARIANT with the path of the file.

  A path that does not exist is searched among the configs that are installed
  with the package.
  """
  path, colon, variant = spec.partition(":")
  if pathlib.Path(path).exists():
    return spec
  for root in _SHIPPED:
    if (root / path).is_file():
      return f"{root / path}{colon}{variant}"
  return spec


def resolve_argument(
  argv: Sequence[str], default: str | None = None
) -> list[str]:
  """Returns the command line with `--config` resolved.

  If `--config.system` names another system than the file, the config gets that
  system's section, so that its keys become flags.

  Args:
    argv: the command line.
    default: the value of `--config` if no argument sets it. None leaves it
      unset.

  Raises:
    UsageError: the file does not exist, or does not have the variant.
  """
  spec, others = default, []
  remaining = iter(argv)
  for argument in remaining:
    if not _FLAG.match(argument):
      others.append(argument)
      continue
    _, equals, spec = argument.partition("=")
    if not equals:
      spec = next(remaining, "")
  if spec is None:
    return others
  spec = resolve(spec)
  config = load(spec)
  system = override(others, "system")
  if system and config.get("system", system) != system:
    spec = _switched(spec, system)
  # Flags of config keys only exist once the config is parsed, so it comes
  # first.
  return [others[0], f"--config={spec}", *others[1:]]


def override(argv: Sequence[str], key: str) -> str:
  """Returns the value that the command line sets for a key, or ""."""
  value = ""
  for argument, next_argument in zip(argv, [*argv[1:], ""], strict=True):
    match = _OVERRIDE.match(argument)
    if match and match[1] == key:
      value = next_argument if match[2] is None else match[2]
  return value


def _switched(spec: str, system: str) -> str:
  """Writes a config file that switches another one to a system.

  The flags library reads keys and types from a file. This one is removed when
  the process ends.
  """
  folder = pathlib.Path(tempfile.mkdtemp(prefix="azr_jax_config_"))
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  file = folder / "switched.py"
  file.write_text(
    "from azr_jax.cli import config_files\n"
    "from azr_jax.trainer import settings\n\n\n"
    "def get_config():\n"
    f"  config = config_files.load({spec!r})\n"
    f"  return settings.switch_system(config, {system!r})\n"
  )
  return str(file)


def named(argv: Sequence[str]) -> ml_collections.ConfigDict | None:
  """Returns the config that a resolved command line names, or None."""
  for argument in argv:
    flag, _, spec = argument.partition("=")
    if _FLAG.match(argument) and flag.endswith("config"):
      return load(spec)
  return None


def check_overrides(argv: Sequence[str]) -> None:
  """Checks that the config has every key set with `--config.a.b=value`.

  Raises:
    UsageError: the config lacks a key. The message suggests the nearest.
  """
  config = named(argv)
  if config is None:
    return
  known = overrides.flatten(config)
  for argument in argv:
    match = _OVERRIDE.match(argument)
    if not match or match[1].split("[")[0] in known:
      continue
    key = match[1]
    near = " and ".join(
      f"--config.{one}" for one in suggestions.meant(key, known)
    )
    hint = f"did you mean {near}?" if near else ""
    if any(name.startswith(f"{key}.") for name in known):
      hint = (
        f"it is a section: set one of its keys, as --config.{key}.KEY=VALUE"
      )
    raise UsageError(
      f"--config.{key}: the configuration has no such key; "
      f"{hint or '--help lists all'}"
    )


def load(spec: str) -> ml_collections.ConfigDict:
  """Imports a config file and returns the config of FILE:VARIANT.

  Raises:
    UsageError: the file is missing, or rejects the variant.
  """
  path, colon, variant = spec.partition(":")
  file = pathlib.Path(path)
  if not file.is_file():
    raise UsageError(f"--config={spec}: {_missing(path)}")
  module_spec = importlib.util.spec_from_file_location("config_file", file)
  assert module_spec is not None and module_spec.loader is not None
  module = importlib.util.module_from_spec(module_spec)
  sys.path.insert(0, str(file.parent))
  try:
    module_spec.loader.exec_module(module)
  finally:
    sys.path.remove(str(file.parent))
  if not hasattr(module, "get_config"):
    raise UsageError(f"--config={path}: expected a file with get_config()")
  try:
    return module.get_config(variant) if colon else module.get_config()
  except Invalid:
    raise
  except ValueError as error:
    raise UsageError(f"--config={spec}: {error}") from None


def _missing(path: str) -> str:
  """Returns the message about a missing file, with the nearest config."""
  shipped = sorted(
    {
      f"configs/{file.name}"
      for root in _SHIPPED
      for file in (root / "configs").glob("*.py")
      if file.name != "__init__.py"
    }
  )
  near = difflib.get_close_matches(path, shipped, n=1)
  hint = f"did you mean {near[0]}?" if near else f"expected one of {shipped}"
  return f"there is no such file; {hint}"
