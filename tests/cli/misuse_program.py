"""Runs misused commands, each in a fork of one process that imported them.

Reads a JSON list of command lines and writes, for each, its exit code and what
it wrote to standard error. Starting Python once saves seconds per command.
"""

import contextlib
import importlib
import io
import json
import os
import sys
import traceback
import warnings

MODULES = {
  name: importlib.import_module(f"azr_jax.{name}")
  for name in (
    "train",
    "sft",
    "evaluate",
    "compare",
    "export",
    "fetch",
    "propose",
    "potential",
    "select_problems",
    "compile_check",
    "agreement",
    "benchmark",
    "report.__main__",
    "grading.__main__",
  )
}


def run(words):
  """Runs a command; returns its exit code and its standard error."""
  errors = io.StringIO()
  sys.argv = [f"azr_jax/{words[0]}.py", *words[1:]]
  code = 0
  with contextlib.redirect_stderr(errors):
    try:
      MODULES[words[0]].run()
    except SystemExit as end:
      code = end.code
    except BaseException:  # noqa: BLE001 - the test looks at the traceback.
      code = 1
      traceback.print_exc()
  return code, errors.getvalue()


def in_a_fork(words):
  """Does so in a child, because flags can be defined once in a process."""
  reading, writing = os.pipe()
  with warnings.catch_warnings():
    # JAX warns of forks; no child uses a thread or a device of its parent.
    warnings.simplefilter("ignore")
    child = os.fork()
  if not child:
    os.write(writing, json.dumps(run(words)).encode())
    os._exit(0)
  os.close(writing)
  with os.fdopen(reading) as pipe:
    text = pipe.read()
  os.waitpid(child, 0)
  return json.loads(text)


if __name__ == "__main__":
  cases = json.load(sys.stdin)
  json.dump([in_a_fork(words) for words in cases], sys.stdout)
