"""Tests that a script's output comes back, however the script ends."""

import ast
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.executor import Executor, Result, scripts


def run(executor, script, libraries=()):
  job = scripts.script_job(script, libraries)
  return scripts.read_result(executor.submit(job).result())


@pytest.mark.parametrize(
  "script, output",
  [
    ("print(1 + 1)", "2\n"),
    ("print('ü', '語', sep='\\n')", "ü\n語\n"),
    ("if __name__ == '__main__': print('main')", "main\n"),
    ("print('a', end=''); exit()", "a"),
    ("import time; time.sleep(0.05); print('late')", "late\n"),
    ("import sys; sys.stdout.write('x')", "x"),
    ("from math import *\nprint(comb(5, 2))", "10\n"),
    ("def f(n): return n and n * f(n - 1) or 1\nprint(f(5))", "120\n"),
    ("import random; a = random.random()", ""),
    ("", ""),
  ],
)
def test_what_is_printed_comes_back(executor, script, output):
  result = run(executor, script)
  assert (result.status, str(result.output), str(result.errors)) == (
    "ok",
    output,
    "",
  )


@pytest.mark.parametrize(
  "script",
  ["1 / 0", "def f():\n  raise KeyError('ü')\nf()", "x = (", "print(y)"],
)
def test_errors_read_as_an_interpreter_prints_them(executor, script, tmp_path):
  result = run(executor, script)
  path = tmp_path / "run.py"
  path.write_text(script)
  real = subprocess.run(
    [sys.executable, "run.py"],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=False,
  )
  want = real.stderr.replace(f"{tmp_path}/", "")
  assert result.status == "error"
  assert str(result.errors) == want


@pytest.mark.parametrize(
  "script, last_frame",
  [
    ("open('/etc/passwd')", '"<sandbox>", line'),
    (
      "import traceback\ntry: open('x')\nexcept OSError:\n"
      "  traceback.print_exc()\n  exit(1)",
      '"<sandbox>", line',
    ),
    (
      "import threading\ndef g(): 1 / 0\nthread = threading.Thread(target=g)\n"
      "thread.start()\nexit(1)",
      '"run.py", line 2, in g',
    ),
    (
      "from concurrent.futures import *\ndef g(): 1 / 0\n"
      "with ThreadPoolExecutor() as pool: pool.submit(g).result()",
      '"run.py", line 2, in g',
    ),
    ("import os\nos.remove('x')", '"<sandbox>", line'),
  ],
)
def test_a_traceback_shows_no_path_of_this_package(
  executor, script, last_frame
):
  result = run(executor, script)
  frames = [line for line in str(result.errors).splitlines() if "File " in line]
  assert result.status == "error" and last_frame in frames[-1]
  assert "azr_jax" not in str(result.errors)


def test_both_streams_and_what_was_printed_before_an_error_are_kept(executor):
  script = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n1 / 0"
  result = run(executor, script)
  assert result.status == "error" and str(result.output) == "out\n"
  assert str(result.errors).startswith("err\nTraceback")
  assert run(executor, "raise SystemExit('bye')").errors.head == "bye"


@pytest.mark.parametrize("letter", ["x", "語"])
def test_of_ten_megabytes_the_beginning_and_the_end_are_kept(executor, letter):
  script = f"print('first', {letter!r} * 10_000_000, 'last')"
  result = run(executor, script)
  total = len("first  last\n") + 10_000_000
  kept = result.output
  assert result.status == "ok"
  assert kept.head.startswith("first ") and kept.tail.endswith(" last\n")
  assert len(kept.head) + kept.omitted + len(kept.tail) == total
  assert 1000 < len(kept.head) <= 8000
  assert f"{kept.omitted} characters omitted" in str(kept)


def test_the_end_of_an_output_of_long_characters_is_kept(executor):
  output = run(executor, "print('語' * 7000 + 'END')").output
  assert str(output).endswith("END\n") and output.omitted > 0


def test_lone_surrogates_are_replaced(executor):
  result = run(executor, "print(chr(0xd800) + 'x')")
  assert str(result.output) == "?x\n"


def test_a_script_that_does_not_end_is_a_timeout(executor):
  assert run(executor, "while True: pass").status == "timeout"


@pytest.mark.parametrize(
  "script",
  [
    "import os; os.open('/etc/passwd', 0)",
    "print(open('/etc/passwd').read())",
    "import socket; socket.socket()",
  ],
)
def test_scripts_run_in_the_sandbox(executor, script):
  result = run(executor, script)
  assert result.status == "error" and "Error" in str(result.errors)


@pytest.mark.parametrize(
  "libraries, script, output",
  [
    (("numpy",), "print(numpy.ones((300, 300)) @ numpy.ones(300))", "300."),
    (("numpy",), "print(numpy.random.rand(), numpy.random.rand())", "0.5488"),
    (("numpy",), "print(numpy.random.default_rng().random())", "0.6369"),
    (("numpy",), "print(numpy.random.RandomState().rand())", "0.4793"),
  ],
)
def test_scripts_may_be_given_libraries(executor, libraries, script, output):
  script = f"import {libraries[0]}\n{script}"
  result = run(executor, script, libraries)
  assert output in str(result.output), result
  assert run(executor, script, libraries) == result
  assert "ModuleNotFoundError" in str(run(executor, script).errors)


ELSEWHERE = """
from azr_jax.executor import Executor, Job
module = "azr_jax.tasks.programs.measures"
code = f"from {module} import measure\\ndef f(): return 1"
with Executor(workers=1, timeout_s=10.0, memory_mb=512) as pool:
  job = Job("one", code, ("",), libraries=(module,))
  print(pool.submit(job).result())
"""


def test_modules_of_the_package_are_found_from_any_folder(tmp_path):
  command = [sys.executable, "-c", ELSEWHERE]
  done = subprocess.run(
    command, cwd=tmp_path, timeout=100, capture_output=True, text=True
  )
  assert "status='ok'" in done.stdout, done.stderr[-2000:]


@pytest.mark.slow
def test_sympy_works_without_files():
  script = """
from sympy import *
x = Symbol("x")
print(solve(x**2 - 4), integrate(sin(x)**2, (x, 0, pi)), lambdify(x, x**2)(3))
print(nsolve(cos(x) - x, 1), sympify("x + 1/3"), summation(x, (x, 1, 10)))
"""
  with Executor(workers=1, timeout_s=10.0, memory_mb=1024) as executor:
    result = run(executor, script, ("sympy",))
  assert str(result.output) == (
    "[-2, 2] pi/2 9\n0.739085133215161 x + 1/3 55\n"
  ), result


def test_the_kernel_holds_what_numpy_lets_through(executor):
  script = """
import numpy
library = numpy._core._internal.ctypes.CDLL(None)
print(library.open(b"/etc/passwd", 0), library.fork(), library.socket(2, 1, 0))
"""
  assert str(run(executor, script, ("numpy",)).output) == "-1 -1 -1\n"


@given(st.text(max_size=60))
def test_a_script_reaches_the_runner_as_it_is(script):
  (text,) = scripts.script_job(script).inputs
  assert ast.literal_eval(text) == script


@pytest.mark.parametrize(
  "output",
  [
    "3",
    "(True,)",
    "(True, 1, 2)",
    "(False, ('a', 'b', 'c'), ('', 0, ''))",
    "(False, ('', 1e999, ''), ('', 0, ''))",
    "(False, ('', -5, ''), ('', 0, ''))",
    f"(False, ('', 0x{'f' * 8000}, ''), ('', 0, ''))",
    "(False, ([1], 0, ''), ('', 0, ''))",
    "(",
  ],
)
def test_a_forged_report_is_an_error(output):
  result = Result("script", "ok", (output,), None, 0.1)
  assert scripts.read_result(result).status == "error"
