"""Which errors are reported in one line, and which keep their traceback."""

import concurrent.futures
import pathlib
import subprocess
import sys
from typing import cast

import numpy as np
import pytest

from azr_jax.cli import errors
from azr_jax.config import settings
from azr_jax.learner import update
from azr_jax.learner.settings import OptimizerSettings
from azr_jax.parallel import hosts
from azr_jax.types import Batch

# Lines are executed as if they were in a file of the package.
FILE = pathlib.Path(errors.__file__).with_name("made_by_a_test.py")
ALWAYS_THERE = """
import concurrent.futures, json, jax, numpy as np

def fail(_):
  raise ValueError("inside of a program")

def refuse(value):
  raise ValueError(f"value={value}: expected another")
"""
BUGS = {
  "zip": "list(zip([1], [], strict=True))",
  "int": "int('one')",
  "float": "float('one')",
  "unpacking": "a, b = [1]",
  "bytes": "b'\\xff'.decode()",
  "numpy's reshape": "np.zeros(3).reshape(2)",
  "numpy's concatenate": "np.concatenate([np.zeros(3), np.zeros((2, 2))])",
  "another library": "json.loads('{')",
  "a generator": "list(int(x) for x in ['one'])",
  "a comparison": "sorted(np.zeros((2, 2)).tolist() == 1 or np.zeros(2) > 0) "
  "and bool(np.zeros(2) == 0)",
  "jax": "jax.numpy.zeros(3).reshape(2)",
  "jax at run time": "jax.block_until_ready(jax.jit(lambda x: "
  "jax.pure_callback(fail, x, x))(1.0))",
  "a raise of jax's error": "raise jax.errors.JaxRuntimeError('INTERNAL: x')",
  "a future's time": "concurrent.futures.Future().result(0)",
  "a key": "{}['key']",
  "an assertion": "assert False",
  "a missing module of our own": "import azr_jax.nosuch",
}
MISTAKES = {
  "a raise": "raise ValueError('x')",
  "a raise below": "refuse(1)",
  "from another": "try:\n  int('one')\nexcept ValueError:\n  refuse(1)",
  "instead of another": "try:\n  int('one')\nexcept ValueError:\n"
  "  raise RuntimeError('x') from None",
  "in a generator": "list(refuse(x) for x in [1])",
  "kept and raised later": "try:\n  refuse(1)\nexcept ValueError as error:\n"
  "  kept = error\nraise kept",
  "out of a future": "future = concurrent.futures.Future()\ntry:\n  refuse(1)\n"
  "except ValueError as error:\n  future.set_exception(error)\n"
  "future.result()",
  "a time that we name": "raise TimeoutError('a host did not come')",
  "a file": "open('/nosuch/file')",
  "a missing package": "import nosuch_package",
}


def error_of(call):
  try:
    call()
  except Exception as error:  # noqa: BLE001 - the test looks at it.
    return error
  raise AssertionError("expected an error")


def error_in_the_package(source):
  def call():
    namespace = {"__name__": "made_by_a_test"}
    exec(compile(ALWAYS_THERE + source, str(FILE), "exec"), namespace)

  return error_of(call)


@pytest.mark.parametrize("name", BUGS)
def test_what_no_statement_of_ours_refused_is_a_bug(name):
  assert not errors._is_users(error_in_the_package(BUGS[name]))


@pytest.mark.parametrize("name", MISTAKES)
def test_what_our_statements_refuse_can_be_mended(name):
  assert errors._is_users(error_in_the_package(MISTAKES[name]))


@pytest.mark.parametrize(
  "module, advice",
  [
    ("gcsfs", "pip install gcsfs"),
    ("pyarrow.parquet", "pip install pyarrow"),
    ("math_verify", "pip install 'azr_jax[eval]'"),
  ],
)
def test_a_missing_package_is_told_with_what_installs_it(
  monkeypatch, capsys, module, advice
):
  """The suggested extra is neither for another device nor for tests."""
  monkeypatch.setattr(sys, "argv", ["command"])

  def main():
    raise ModuleNotFoundError(name=module)

  with pytest.raises(SystemExit):
    errors.guard(main)
  assert capsys.readouterr().err.strip().endswith(f"is missing: {advice}")


def test_real_lines_of_the_package():
  rows = np.zeros((5, 3))
  assert not errors._is_users(
    error_of(lambda: update.to_micro_batches(cast(Batch, {"rows": rows}), 2))
  )
  for refused in (
    lambda: OptimizerSettings(learning_rate=-1.0),
    lambda: settings.build(OptimizerSettings, {"rate": 1.0}),
    lambda: hosts.join("nowhere", 1, 0),
  ):
    assert errors._is_users(error_of(refused))
  pool = concurrent.futures.ThreadPoolExecutor(1)
  with pool:
    far = pool.submit(OptimizerSettings, learning_rate=-1.0)
    assert errors._is_users(error_of(far.result))


@pytest.mark.parametrize(
  "module, line, code, shown",
  [
    (
      "update",
      "update.to_micro_batches({'x': np.zeros((5, 3))}, 2)",
      *(1, "Traceback"),
    ),
    (
      "settings",
      "settings.OptimizerSettings(learning_rate=-1.0)",
      *(2, "error: learning_rate=-1.0"),
    ),
  ],
)
def test_a_command_shows_the_traceback_of_a_bug_alone(
  module, line, code, shown
):
  program = (
    "import numpy as np\nfrom azr_jax.cli import errors\n"
    f"from azr_jax.learner import {module}\n"
    f"def main():\n  {line}\n\nerrors.guard(main)"
  )
  done = subprocess.run(
    [sys.executable, "-c", program],
    capture_output=True,
    text=True,
    check=False,
    timeout=120,
  )
  assert done.returncode == code, done.stderr
  assert done.stderr.startswith(shown)
  assert ("to_micro_batches" in done.stderr) == (code == 1)
