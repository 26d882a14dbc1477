"""Environment variables that reach a process on a worker over ssh's input.

So tokens are in no command line, no file and no log, here or there: this module
makes the text that is sent, the shell command that reads it, and the one that a
user may type instead of the launcher.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from azr_jax.cli.errors import UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_END = "END"
# Exports each NAME=VALUE that is read. `export` is a part of the shell, so that
# no value is an argument of a program. gcloud repeats an ssh that was refused,
# but not its input, which then has no end.
RECEIVE = (
  "given=; while IFS= read -r given; do "
  f'[ "$given" = {_END} ] && break; export "$given"; done; '
  f'[ "$given" = {_END} ] || '
  "{ echo 'the variables of --pass_env did not arrive' >&2; exit 3; }; "
)


def read(names: Sequence[str]) -> dict[str, str]:
  """Returns the values of variables of this process.

  Raises:
    UsageError: one is not set, or a shell could not pass it on.
  """
  for name in names:
    if not _NAME.fullmatch(name):
      raise UsageError(f"--pass_env={name}: expected names of variables")
    if not os.environ.get(name):
      raise UsageError(
        f"--pass_env={name}: expected it in the environment (export {name}=...)"
      )
    if "\n" in os.environ[name]:
      raise UsageError(f"--pass_env={name}: expected a value of one line")
  return {name: os.environ[name] for name in names}


def text(values: Mapping[str, str]) -> str:
  """Returns what `RECEIVE` reads."""
  lines = [f"{name}={value}" for name, value in values.items()]
  return "\n".join([*lines, _END, ""])


def source(names: Sequence[str]) -> str:
  """Returns a shell command that writes `text`, by the variables' names."""
  form = shlex.quote("".join(f"{name}=%s\\n" for name in names) + f"{_END}\\n")
  return " ".join(["printf", form, *(f'"${name}"' for name in names)])
