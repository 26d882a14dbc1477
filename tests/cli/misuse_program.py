"""Runs commands, each in a fork of one process that imported them.

Reads a JSON list of command lines. Prints each one's exit code and its output
on standard error and standard output. Starting Python only once saves seconds
per command.
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
    "decompose",
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
  """Runs a command. Returns its exit code, standard error and output."""
  errors, output = io.StringIO(), io.StringIO()
  sys.argv = [f"azr_jax/{words[0]}.py", *words[1:]]
  code = 0
  with (
    contextlib.redirect_stderr(errors),
    contextlib.redirect_stdout(output),
  ):
    try:
      MODULES[words[0]].run()
    except SystemExit as end:
      code = end.code
    except BaseException:  # noqa: BLE001 - the test looks at the traceback.
      code = 1
      traceback.print_exc()
  return code, errors.getvalue(), output.getvalue()


def in_a_fork(words):
  """Runs a command in a child, because a process can define flags only once."""
  reading, writing = os.pipe()
  with warnings.catch_warnings():
    # JAX warns about forks. No child uses a thread or device of its parent.
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
