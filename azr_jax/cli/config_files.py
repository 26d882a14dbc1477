"""Config files by name: where they are, and keys that they do not have."""

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
from azr_jax.config import overrides
from azr_jax.config.settings import Invalid

_PACKAGE = pathlib.Path(__file__).parents[1]
# The folder beside the package in a clone, and the one inside of a wheel.
_SHIPPED = (_PACKAGE.parent, _PACKAGE)
_FLAG = re.compile(r"--?config(=|$)")
_OVERRIDE = re.compile(r"--?(?:no)?config\.([\w.\[\]]+)(?:=(.*))?$", re.DOTALL)


def resolve(spec: str) -> str:
  """Returns FILE:VARIANT with the file that is meant.

  A path that is not in the working directory is looked for among the configs
  that are installed with the package.
  """
  path, colon, variant = spec.partition(":")
  if pathlib.Path(path).exists():
    return spec
  for root in _SHIPPED:
    if (root / path).is_file():
      return f"{root / path}{colon}{variant}"
  return spec


def resolve_argument(words: Sequence[str]) -> list[str]:
  """Returns the command line with `--config` resolved.

  Raises:
    UsageError: there is no such file, or it knows no such variant.
  """
  words = list(words)
  for index, word in enumerate(words):
    if not _FLAG.match(word):
      continue
    if "=" not in word and index + 1 < len(words):
      word = f"{word}={words.pop(index + 1)}"
    flag, _, spec = word.partition("=")
    spec = resolve(spec)
    config = load(spec)
    system = _override(words, "system")
    if system and config.get("system", system) != system:
      spec = _switched(spec, system)
    words[index] = f"{flag}={spec}"
  return words


def _override(words: Sequence[str], key: str) -> str:
  """Returns the value that the command line gives a key; "": none."""
  values = [
    m[2] for word in words if (m := _OVERRIDE.match(word)) and m[1] == key
  ]
  return values[-1] if values else ""


def _switched(spec: str, system: str) -> str:
  """Returns a config file that is another one with another system's section.

  The file goes with the process. It exists so that the keys of that section
  are typed flags, as those of any other.
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


def named(words: Sequence[str]) -> ml_collections.ConfigDict | None:
  """Returns the config that a resolved command line names, if any."""
  for word in words:
    flag, _, spec = word.partition("=")
    if _FLAG.match(word) and flag.endswith("config"):
      return load(spec)
  return None


def check_overrides(words: Sequence[str]) -> None:
  """Checks that `--config.a.b=value` names keys that the config has.

  Raises:
    UsageError: it does not; the message has the nearest key.
  """
  config = named(words)
  if config is None:
    return
  known = overrides.flatten(config)
  for word in words:
    match = _OVERRIDE.match(word)
    if not match or match[1].split("[")[0] in known:
      continue
    key = match[1]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean --config.{near[0]}?" if near else ""
    if any(name.startswith(f"{key}.") for name in known):
      hint = (
        f"it is a section: set one of its keys, as --config.{key}.KEY=VALUE"
      )
    raise UsageError(
      f"--config.{key}: the configuration has no such key; "
      f"{hint or '--help lists all'}"
    )


def load(spec: str) -> ml_collections.ConfigDict:
  """Imports a config file and calls its `get_config`.

  Raises:
    UsageError: the file is missing, or refuses the variant.
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
  """Returns that a file is missing, and which configs there are."""
  shipped = sorted(
    f"configs/{file.name}"
    for root in _SHIPPED
    for file in (root / "configs").glob("*.py")
    if file.name != "__init__.py"
  )
  near = difflib.get_close_matches(path, shipped, n=1)
  hint = f"did you mean {near[0]}?" if near else f"expected one of {shipped}"
  return f"there is no such file; {hint}"
