"""The one front of every command: help, configs, errors, Ctrl-C.

A command gives its docstring and its `main`:

  def run() -> None:
    name = flags.DEFINE_string("name", None, "What it is.")
    front.run(__doc__, lambda: work(name.value))

Its flags are absl's; `config_flag` declares `--config`. What the user can mend
is said in one to three lines with exit code 2; a traceback is for `--debug` and
for faults of this code.
"""

import errno
import os
import pathlib
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence

import ml_collections
from absl import flags, logging
from ml_collections import config_flags

from azr_jax.cli import config_files
from azr_jax.cli.config_files import UsageError
from azr_jax.config.settings import Described

_PACKAGE = pathlib.Path(__file__).parents[1]
# Settings' keys of a config, for `--help`.
Describe = Callable[[ml_collections.ConfigDict], Iterable[Described]]
USER_FAULT, INTERRUPTED = 2, 130


def config_flag(default: str | None, text: str) -> flags.FlagHolder:
  """Defines `--config=FILE:VARIANT` with `--config.section.key=value`."""
  if default is not None:
    default = config_files.resolve(default)
  holder = config_flags.DEFINE_config_file("config", default, text)
  if default is None:
    flags.mark_flag_as_required("config")
  return holder


def run(
  doc: str,
  main: Callable[[], None],
  describe: Describe | None = None,
  argv: Sequence[str] | None = None,
) -> None:
  """Runs a command whose flags are absl's; ends the process on an error.

  Args:
    doc: the module's docstring, the head of `--help`.
    main: the command; it reads its flags by their holders.
    describe: lists the keys of the command's configs, for `--help`.
    argv: the command line; None: this process's.
  """
  words = list(sys.argv if argv is None else argv)
  with _Errors("--debug" in words):
    if "--debug" in words:
      words.remove("--debug")
    _import_from_here()
    logging.set_verbosity(logging.WARNING)
    words = config_files.resolve_argument(words)
    if {"--help", "-h", "-help", "--helpfull"} & {*words}:
      print(_help(doc, words, describe))
      return
    config_files.check_overrides(words)
    rest = _parse(words)
    if rest[1:]:
      raise UsageError(f"{rest[1]!r} is no flag: expected --NAME=VALUE")
    main()


def guard(main: Callable[[], None]) -> None:
  """Runs a command that parses its own arguments, with the same errors."""
  with _Errors("--debug" in sys.argv):
    if "--debug" in sys.argv:
      sys.argv.remove("--debug")
    _import_from_here()
    main()


def _import_from_here() -> None:
  """Lets a console script import from the working directory, as -m does."""
  if "" not in sys.path and os.getcwd() not in sys.path:
    sys.path.insert(0, os.getcwd())


def _parse(words: list[str]) -> list[str]:
  """Parses the flags; raises UsageError for what cannot be."""
  try:
    return flags.FLAGS(words)
  except flags.Error as error:
    raise UsageError(config_files.plain(str(error))) from None


def _help(doc: str, words: list[str], describe: Describe | None) -> str:
  """Returns docstring, flags, and the keys of the config that is named."""
  parts = [doc.strip(), "", "Flags:", flags.FLAGS.main_module_help()]
  own = [
    module
    for module in flags.FLAGS.flags_by_module_dict()
    if module.startswith("azr_jax")
  ]
  parts[3:] = [flags.FLAGS.module_help(module) for module in own] or parts[3:]
  parts.append("  --debug: show the traceback of an error.")
  config = config_files.named(words)
  if describe is None:
    return "\n".join(parts)
  if config is None:
    parts.append("\nWith --config=FILE:VARIANT, --help also lists its keys.")
    return "\n".join(parts)
  parts.append("\nKeys of the configuration, set by --config.KEY=VALUE:")
  for key in describe(config):
    paper = f" (paper: {key.paper})" if key.paper else ""
    parts.append(f"  {key.key} = {key.default!r}\n      {key.doc}{paper}")
    if key.kind:
      parts[-1] += f"; {key.kind}"
  return "\n".join(parts)


class _Errors:
  """Turns what the user can mend into a few lines and an exit code."""

  def __init__(self, debug: bool):
    self._debug = debug

  def __enter__(self) -> "_Errors":
    return self

  def __exit__(self, kind, error, trace) -> bool:
    if error is None or isinstance(error, SystemExit):
      return False
    if isinstance(error, BrokenPipeError):
      # The reader of the output, such as `head`, has seen enough.
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
      sys.exit(0)
    if isinstance(error, KeyboardInterrupt):
      if self._debug:
        return False
      print("interrupted", file=sys.stderr)
      _leave(INTERRUPTED)
    if self._debug or not _is_users(error, trace):
      return False
    print(f"error: {_text(error)}", file=sys.stderr)
    _leave(USER_FAULT)
    return False


def _leave(code: int) -> None:
  """Ends the process at once, whatever threads are still at work."""
  sys.stdout.flush()
  sys.stderr.flush()
  sys.exit(code)


def _is_users(error: BaseException, trace: object) -> bool:
  """Returns whether a person can mend an error without reading the code.

  Files and missing packages are theirs. A value is theirs where this package
  refuses it; the same error out of another library is a fault of ours.
  """
  if isinstance(error, UsageError | OSError | ImportError | MemoryError):
    return not isinstance(error, ImportError) or not _is_inside(error.name)
  if not isinstance(error, ValueError | RuntimeError | TimeoutError):
    return False
  frames = traceback.extract_tb(error.__traceback__)
  return bool(frames) and _PACKAGE in pathlib.Path(frames[-1].filename).parents


def _is_inside(module: str | None) -> bool:
  return bool(module) and str(module).split(".")[0] == _PACKAGE.name


def _text(error: BaseException) -> str:
  """Returns at most three lines about an error."""
  if isinstance(error, OSError) and error.errno == errno.ENOSPC:
    where = f" while writing {error.filename}" if error.filename else ""
    return f"the disk is full{where}: free some space; the same command resumes"
  if isinstance(error, OSError) and error.strerror and error.filename:
    return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
  if isinstance(error, ModuleNotFoundError) and error.name:
    return f"package {error.name!r} is missing: {_extra_of(error.name)}"
  text = str(error).strip() or type(error).__name__
  return "\n".join(text.splitlines()[:3])


# Package -> the extra that installs it.
_EXTRAS = {
  "gcsfs": "tpu",
  "libtpu": "tpu",
  "datasets": "eval",
  "math_verify": "eval",
  "reasoning_gym": "gym",
  "ray": "ray",
  "matplotlib": "notebooks",
  "torch": "test",
  "pyarrow": "test",
}


def _extra_of(module: str) -> str:
  """Returns the command that installs a package."""
  name = module.split(".")[0]
  if name in _EXTRAS:
    return f"pip install 'azr_jax[{_EXTRAS[name]}]'"
  return f"pip install {name}"
