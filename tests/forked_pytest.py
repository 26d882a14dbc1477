"""Runs pytest repeatedly, each time in a fork that has libraries loaded.

Importing them takes longer than most tests. Each line of standard input is a
JSON list: arguments, and a file for the fork's output. The exit status is
printed.
"""

import importlib
import json
import os
import sys
import traceback

# Slow to import, so every child inherits them.
_LIBRARIES = "flax.linen", "jax", "optax", "orbax.checkpoint", "transformers"
# Pytest warns about plugins that were imported before it.
_WITH_LIBRARIES = ("-W", "ignore::pytest.PytestAssertRewriteWarning")


def main():
  import pytest

  for name in _LIBRARIES:
    importlib.import_module(name)
  for line in sys.stdin:
    arguments, path = json.loads(line)
    child = os.fork()
    if not child:
      with open(path, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
      os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
      status = pytest.ExitCode.INTERNAL_ERROR
      try:
        status = pytest.main([*_WITH_LIBRARIES, *arguments])
      except BaseException:  # noqa: BLE001 - An error, not a failed test.
        traceback.print_exc()
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(int(status))
    _, status = os.waitpid(child, 0)
    sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
  main()
