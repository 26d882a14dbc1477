"""Sends environment variables to a process on a worker over ssh's input.

So secret tokens appear in no command line, file or log of either machine. This
module makes the text to send, the shell command that reads it, and the shell
command that sends it if the user runs ssh by hand.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from azr_jax.cli.errors import UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_END = "END"
# Exports each NAME=VALUE that is read. `export` is a shell builtin, so no value
# is an argument of a program. gcloud retries a refused ssh without its input,
# so a missing end marker means that the values did not arrive.
READ_VARIABLES = (
  "given=; while IFS= read -r given; do "
  f'[ "$given" = {_END} ] && break; export "$given"; done; '
  f'[ "$given" = {_END} ] || '
  "{ echo 'the variables of --pass_env did not arrive' >&2; exit 3; }; "
)


def read(names: Sequence[str]) -> dict[str, str]:
  """Returns the values of environment variables.

  Raises:
    UsageError: a variable is not set, or a shell could not pass it on.
  """
  for name in names:
    if not _NAME.fullmatch(name):
      raise UsageError(f"--pass_env={name}: expected variable names")
    if not os.environ.get(name):
      raise UsageError(
        f"--pass_env={name}: expected it in the environment (export {name}=...)"
      )
    if "\n" in os.environ[name]:
      raise UsageError(f"--pass_env={name}: expected a single-line value")
  return {name: os.environ[name] for name in names}


def text(values: Mapping[str, str]) -> str:
  """Returns the text that `READ_VARIABLES` reads."""
  lines = [f"{name}={value}" for name, value in values.items()]
  return "\n".join([*lines, _END, ""])


def source(names: Sequence[str]) -> str:
  """Returns a shell command that prints `text` from the shell's variables."""
  template = shlex.quote(
    "".join(f"{name}=%s\\n" for name in names) + f"{_END}\\n"
  )
  return " ".join(["printf", template, *(f'"${name}"' for name in names)])
