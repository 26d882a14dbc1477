"""The common entry of all commands: help, configs, errors, Ctrl-C.

A command passes its docstring and its `main`:

  def run() -> None:
    name = flags.DEFINE_string("name", None, "What it is.")
    front.run(__doc__, lambda: work(name.value))

Flags are absl's, and `config_flag` declares `--config`. An error that the user
can fix takes one to three lines and exits with code 2. `--debug` shows the
traceback, as bugs always do. Arguments after `--` belong to another command.
"""

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

import ml_collections
from absl import flags, logging
from ml_collections import config_flags

from azr_jax.cli import config_files, errors, library_noise
from azr_jax.cli.errors import UsageError
from azr_jax.config.settings import Described

# Config -> its keys with documentation, for `--help`.
Describe = Callable[[ml_collections.ConfigDict], Iterable[Described]]


def config_flag(text: str) -> flags.FlagHolder:
  """Defines `--config=FILE:VARIANT` with `--config.section.key=value`.

  Args:
    text: the flag's description in `--help`.
  """
  holder = config_flags.DEFINE_config_file("config", None, text)
  flags.mark_flag_as_required("config")
  return holder


def run(
  doc: str,
  main: Callable[[], None] | Callable[[list[str]], None],
  describe: Describe | None = None,
  takes_arguments: bool = False,
  default_config: str | None = None,
) -> None:
  """Runs a command with absl flags. Ends the process on an error.

  Args:
    doc: the module's docstring, shown first in `--help`.
    main: the command. It reads flags from their holders. With
      `takes_arguments`, it receives the command line without flags.
    describe: lists the keys of the command's configs, for `--help` and
      `--changed`. It rejects configs with invalid values, for `--check`.
    takes_arguments: whether the command has positional arguments.
    default_config: the default of `--config`. None makes the flag required.
  """
  if describe is not None:
    flags.DEFINE_bool(
      "check",
      False,
      "Check flag names and config values without running anything.",
    )
    flags.DEFINE_bool(
      "changed",
      False,
      "Print the config keys that differ from their defaults, with their "
      "documentation, without running anything.",
    )
  end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
  argv = sys.argv[:end]
  if "--debug" not in argv:
    library_noise.silence()
  with errors.reported(argv):
    logging.set_verbosity(logging.WARNING)
    if "--version" in argv:
      print(errors.VERSION)
      return
    argv = config_files.resolve_argument(argv, default_config)
    if {"--help", "-h", "-help", "--helpfull"} & {*argv}:
      print(_help(doc, argv, describe))
      return
    config_files.check_overrides(argv)
    rest = _parse([*argv, *sys.argv[end:]])
    if takes_arguments:
      main(rest)  # pyrefly: ignore[bad-argument-count] - `takes_arguments`.
      return
    if rest[1:]:
      raise UsageError(f"{rest[1]!r} is not a flag: expected --NAME=VALUE")
    if describe is not None and (text := _checked(describe)):
      print(text)
      return
    main()  # pyrefly: ignore[bad-argument-count] - not `takes_arguments`.


def _checked(describe: Describe) -> str:
  """Returns the output of `--check` or `--changed`, "" without them."""
  is_listed = flags.FLAGS["changed"].value
  if not is_listed and not flags.FLAGS["check"].value:
    return ""
  config: Any = flags.FLAGS["config"].value
  keys = list(describe(config))
  if is_listed:
    return "\n".join(_line(key) for key in keys if key.is_changed)
  return f"the flags and {len(keys)} config values are allowed; nothing was run"


def _parse(argv: list[str]) -> list[str]:
  """Parses the flags and returns the remaining arguments.

  Raises:
    UsageError: a flag is unknown, or its value has the wrong type.
  """
  try:
    return flags.FLAGS(argv)
  except flags.Error as error:
    # Values are parsed before absl notices that required flags are missing.
    is_read = (
      flags.FLAGS.is_parsed() and flags.FLAGS["config"].value is not None
    )
    if "--changed" in argv and is_read:
      return argv[:1]
    raise UsageError(_plain(str(error))) from None


_REQUIRED = re.compile(r"flag --(\w+)=None: Flag --\w+ must have a value")
_CONVERSION = re.compile(r"flag (--[\w.]+=.*?): (?:invalid literal|could not)")


def _plain(text: str) -> str:
  """Returns an error of the flags library as one line."""
  if missing := _REQUIRED.findall(text):
    missing_flags = " and ".join(f"--{name}=..." for name in missing)
    return f"expected {missing_flags}; --help shows what they are"
  if wrong := _CONVERSION.match(text):
    return f"{wrong[1]}: expected a number"
  line = text.strip().splitlines()[0]
  return line[:1].lower() + line[1:]


def _help(doc: str, argv: list[str], describe: Describe | None) -> str:
  """Returns docstring, flags, and the keys of the given config."""
  parts = [doc.strip(), "", "Flags:"]
  # All flags of a command may be adopted from another module. Then the
  # dictionary lacks sys.argv[0].
  modules = dict.fromkeys((sys.argv[0], *flags.FLAGS.flags_by_module_dict()))
  helps = [
    flags.FLAGS.module_help(module).replace("\n    (default: 'None')", "")
    for module in modules
    if module == sys.argv[0] or "azr_jax" in module
  ]
  parts += filter(None, helps)
  parts.append("  --debug: show the traceback of an error.")
  parts.append("  --version: show the version.")
  if describe is None:
    return "\n".join(parts)
  config = config_files.named(argv)
  if config is None:
    parts.append(
      "\nWith --config=FILE:VARIANT, --help also lists its keys, and "
      "--helpfull its expert keys."
    )
    return "\n".join(parts)
  parts.append("\nKeys of the configuration, set by --config.KEY=VALUE:")
  keys = list(describe(config))
  shown = keys
  if "--helpfull" not in argv:
    shown = [key for key in keys if key.is_changed or not key.is_expert]
  parts += map(_line, shown)
  if len(shown) < len(keys):
    parts.append(
      f"\n{len(keys) - len(shown)} expert keys are hidden; --helpfull shows "
      "them."
    )
  return "\n".join(parts)


def _line(key: Described) -> str:
  """Formats a key, its value and its documentation."""
  paper = f" (paper: {key.paper})" if key.paper else ""
  kind = f"; {key.kind}" if key.kind else ""
  return f"  {key.key} = {key.default!r}\n      {key.doc}{paper}{kind}"
