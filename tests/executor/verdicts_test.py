"""Tests of verdicts on honest programs."""

import tracemalloc

import pytest

from azr_jax.executor import Executor, Job, Result, comparison
from azr_jax.executor.child import frames
from azr_jax.executor.job import KILLED
from azr_jax.executor.pool import verdict

ADD = "def f(a, b=1):\n  return a + b"
# From one that leaves room on the stack to one that leaves none.
DEPTHS = range(970, 1000, 2)


def test_ok_gives_one_text_per_input(run):
  result = run(ADD, "1", "'x', 'y'", "a=[1], b=[2]")
  assert (result.status, result.error) == ("ok", None)
  assert result.outputs == ("2", "'xy'", "[1, 2]")
  assert result.id == "job" and result.seconds > 0


def test_error_names_the_first_type_and_keeps_other_outputs(run):
  result = run("def f(x):\n  return 1 / x", "1", "0", "'a'")
  assert (result.status, result.error) == ("error", "ZeroDivisionError")
  assert result.outputs == ("1.0", None, None)


def test_error_never_carries_the_message(run):
  result = run("def f():\n  raise ValueError('secret')")
  assert result.error == "ValueError"


@pytest.mark.parametrize(
  "code, error",
  [
    ("def f(:", "SyntaxError"),
    ("def g():\n  return 1", "NameError"),
    ("def f():\n  return lambda: 1", "Unserializable"),
    ("def f():\n  raise StopIteration", "StopIteration"),
    ("import sys\ndef f():\n  sys.exit(0)", "SystemExit"),
    ("class Done(Exception): pass\ndef f():\n  raise Done", "Done"),
    ("def f():\n  raise KeyboardInterrupt", "KeyboardInterrupt"),
    ("def f():\n  return f()", "RecursionError"),
    ("import os\ndef f():\n  os._exit(0)", "NoReport"),
    ("def f():\n  return 'x' * 70_000", "Unserializable"),
    ("import numpy\ndef f():\n  return 1", "ModuleNotFoundError"),
  ],
)
def test_error(run, code, error):
  result = run(code)
  assert (result.status, result.error) == ("error", error)
  assert result.outputs == (None,)


def test_outputs_too_large_together(run):
  result = run("def f():\n  return 'x' * 60_000", *[""] * 20)
  assert (result.status, result.error) == ("error", "OutputTooLarge")
  text = f"'{'x' * 60_000}'"
  assert result.outputs == (text,) * 17 + (None,) * 3


def test_a_timeout_keeps_the_values_of_the_calls_before(run):
  code = "def f(x):\n  while x == 3: pass\n  return x"
  result = run(code, "1", "2", "3", "4")
  assert (result.status, result.error) == ("timeout", "TimeoutError")
  assert result.outputs == ("1", "2", None, None)
  # With two runs, values must be confirmed, so a timeout keeps none.
  result = run(code, "1", "2", "3", "4", runs=2)
  assert (result.status, result.outputs) == ("timeout", (None,) * 4)


def test_patterns_of_an_earlier_call_are_compiled_again(run):
  # Compiling takes a deeper stack than matching does.
  code = (
    "import re\ndef f(n):\n  if n: return f(n - 1)\n"
    "  return bool(re.match('a+b|c', 'aab'))"
  )
  alone = [run(code, str(n)).outputs for n in DEPTHS]
  second = [run(code, "0", str(n)).outputs[1:] for n in DEPTHS]
  assert second == alone
  assert set(alone) == {("True",), (None,)}


def test_too_much_output_is_not_hidden_by_an_error_before_it(run):
  code = "def f(x):\n  return 'x' * (60_000 // bool(x))"
  assert run(code, "0", *["1"] * 20).error == "OutputTooLarge"


def test_a_child_killed_twice_is_not_nondeterminism():
  job = Job("1", ADD, ("1",), runs=2)
  ok = Result("1", "ok", ("2",), None, 0.1)
  killed = verdict.failure(job, "error", KILLED, is_lost=True)
  assert verdict.early_verdict([ok, killed]) == killed


def test_a_value_with_a_comment_is_refused_when_runs_are_compared():
  job = Job("1", ADD, ("1",), runs=2)
  seen = [
    verdict.read_reply(job, 0.1, 0.1, frames.REPORTED, b"5 # 7\ndone\n")
  ] * 2
  assert verdict.early_verdict(seen) is None
  agreed = verdict.compared_verdict(seen[0], *comparison.compare(seen))
  assert agreed.error == "MalformedReport"


@pytest.mark.parametrize(
  "report, finished",
  [
    (b"1\n2\n", 2),
    (b"1\n2\n3\n", 2),
    (b"1\n2\n3\n4", 2),
    (b"1\n2\n" + b"3\n" * 540_000, 2),
    (b"1\n2", 1),
  ],
)
def test_a_report_of_too_many_lines_is_refused(report, finished):
  job = Job("1", ADD, ("1", "2"))
  result = verdict.read_reply(job, 0.1, 0.1, frames.REPORTED, report)
  assert result.error in ("MalformedReport", "NoReport")
  late = verdict.read_reply(job, 0.1, 0.1, frames.CALL_TIMED_OUT, report)
  assert (late.status, late.finished) == ("timeout", finished)
  assert late.outputs == ("1", "2" if finished == 2 else None)


def test_a_report_of_half_a_million_lines_is_not_split():
  """Splitting every line would take 8 MB per report and 60 times as long."""
  job = Job("1", ADD, ("1",))
  report = b"1\n" * 540_000
  tracemalloc.start()
  verdict.read_reply(job, 0.1, 0.1, frames.REPORTED, report)
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert peak < 3 * len(report)


@pytest.mark.parametrize("inputs", [("7", "3"), ("3", "7")])
def test_a_decimal_context_does_not_reach_the_next_input(run, inputs):
  code = """
import decimal
def f(n):
  if n != 3:
    decimal.getcontext().prec = n
  return str(decimal.Decimal(1) / n)
"""
  outputs = dict(zip(inputs, run(code, *inputs).outputs, strict=True))
  assert outputs["3"] == f"'0.{'3' * 28}'"


def test_each_call_has_the_whole_time(executor, run):
  code = """
import time
def f(x):
  end = time.monotonic() + 0.2
  while time.monotonic() < end: pass
  return x
"""
  result = run(code, "1", "2", "3", "4")  # 0.8 s in all, at most 0.5 s each.
  assert result.outputs == ("1", "2", "3", "4")


def test_lines_buy_no_time():
  code = """
import os, time
def f(x):
  while True:
    end = time.monotonic() + 0.1
    while time.monotonic() < end: pass
    for fd in range(3, 16):
      try:
        os.write(fd, b"1\\n")
      except OSError:
        pass
"""
  with Executor(workers=1, timeout_s=0.3, memory_mb=256) as pool:
    result = pool.submit(Job("1", code, ("1", "2"))).result()
  assert result.status == "timeout" and result.cpu_s < 1.0


@pytest.mark.parametrize(
  "text", ["1) or f(2", "1); f(2", "1\n)\nf(2", "1, )(", "x for x in", "#("]
)
def test_an_input_is_exactly_one_call(run, text):
  result = run(ADD, text)
  assert result.status == "error"
  assert result.outputs == (None,)


def test_an_input_sees_builtins_and_constructors_but_not_the_program(run):
  code = "import os\nlimit = 3\nsorted = len\ndef f(*values):\n  return values"
  result = run(code, "sorted('ba')", "deque([math.inf])", "1, *[2]")
  assert result.outputs == (
    "(['a', 'b'],)",
    "(deque([float('inf')]),)",
    "(1, 2)",
  )
  for text in ("limit", "os", "f(1)[2]", "[limit for _ in [1]]"):
    result = run(code, text)
    assert result.error in ("NameError", "IndexError"), text


def test_timeout(run):
  result = run("def f():\n  while True: pass", "", "")
  assert (result.status, result.error) == ("timeout", "TimeoutError")
  assert result.outputs == (None, None)


def test_a_loop_in_one_c_call_times_out(run):
  assert run("def f():\n  return sum(range(10**12))").status == "timeout"


@pytest.mark.parametrize(
  "code",
  [
    "seen = []\ndef f(x):\n  seen.append(x)\n  return seen",
    "def f(x, seen=[]):\n  seen.append(x)\n  return seen",
    "n = 0\ndef f(x):\n  global n\n  n += x\n  return [n]",
  ],
)
def test_one_input_leaves_nothing_to_the_next(run, code):
  assert run(code, "1", "2", "1").outputs == ("[1]", "[2]", "[1]")


def test_a_failing_top_level_fails_every_input(run):
  result = run("x = 1 / 0\ndef f(y):\n  return y", "1", "2")
  assert (result.error, result.outputs) == ("ZeroDivisionError", (None, None))
  assert run("x = 1 / 0").error == "ZeroDivisionError"


@pytest.mark.parametrize("head", ["from __future__ import annotations", ""])
def test_annotations_may_be_text(run, head):
  code = (
    f"{head}\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n"
    "  x: 'int'\ndef f():\n  return P(3).x"
  )
  assert run(code).outputs == ("3",)


def test_cyclic_garbage_is_collected(run):
  # The calls allocate 800 MB in all: fast, because they do not touch it.
  code = (
    "def f():\n  for _ in range(10_000):\n    a = [bytes(80_000)]; a.append(a)"
  )
  assert run(code).outputs == ("None",)


def test_none_is_a_value(run):
  assert run("def f():\n  pass").outputs == ("None",)


def test_entry_may_have_another_name(run):
  assert run("def g(x):\n  return x", "3", entry="g").outputs == ("3",)


@pytest.mark.parametrize(
  "body",
  [
    "list({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'})",
    "hash('text')",
    "id(object())",
    "__import__('random').random()",
  ],
)
def test_nondeterministic(run, body):
  result = run(f"def f():\n  return {body}", runs=2)
  assert result.status == "nondeterministic"
  assert result.outputs == (None,)


def test_no_true_randomness_is_to_be_had(run):
  code = "import os\ndef f():\n  return os.urandom(1)"
  assert run(code).error == "PermissionError"
  code = "import random\ndef f():\n  return 0 <= random.Random().random() < 1"
  assert run(code).outputs == ("True",)


def test_a_set_is_the_same_in_any_order(run):
  result = run("def f():\n  return set('abcdefgh')", runs=2)
  assert result.status == "ok"


def test_nan_is_deterministic(run):
  result = run("def f():\n  return float('nan')", runs=2)
  assert result.outputs == ("float('nan')",)


def test_failing_in_one_run_only_is_nondeterministic(run):
  code = "def f():\n  return 1 // (hash('a') == %d)"
  first = run("def f():\n  return hash('a')").outputs[0]
  assert run(code % int(first), runs=3).status == "nondeterministic"


def test_counters_add_up(executor, run):
  before = executor.counters()
  run(ADD, "1")
  run("def f(:")
  after = executor.counters()
  grown = {name: after[name] - before[name] for name in after}
  assert grown["ok"] == 1 and grown["error"] == 1 and grown["programs"] == 2


@pytest.mark.parametrize("name", ["WorkerDied", "Signal9", "JobTimeout"])
def test_an_exception_with_a_name_of_ours_is_the_program_s(run, name):
  result = run(f"class {name}(Exception): pass\ndef f():\n  raise {name}")
  assert (result.status, result.error) == ("error", name)
  assert not result.is_lost


def test_calls_share_a_process_only_if_they_cannot_tell(run):
  code = "import math\ndef f(x):\n  math.n = getattr(math, 'n', 0) + 1\n"
  code += "  return math.n"
  assert run(code, "1", "2", "3").outputs == ("1", "1", "1")
  # All tests of a benchmark come from one trusted file.
  assert run(code, "1", "2", "3", per_call=True).outputs == ("1", "2", "3")


def test_calls_with_a_process_each_are_one_verdict(run):
  code = "import sys\ndef f(x):\n  while x == 3: pass\n  return 6 // x"
  result = run(code, "1", "0", "2", "3", "4")
  assert (result.status, result.error) == ("timeout", "TimeoutError")
  assert result.outputs == ("6", None, "3", None, None)
  assert result.finished == 3
  result = run(code, "1", "0", "2")
  assert (result.status, result.error) == ("error", "ZeroDivisionError")
  assert result.finished == 3
  large = "import sys\ndef f(x):\n  return 'x' * 60_000"
  result = run(large, *map(str, range(20)))
  assert (result.status, result.error) == ("error", "OutputTooLarge")
  assert result.outputs[16] and result.outputs[17:] == (None,) * 3


@pytest.mark.parametrize("order", [1, -1])
def test_a_lost_worker_is_not_nondeterminism(order):
  job = Job("1", ADD, ("1",), runs=2)
  ok = Result("1", "ok", ("2",), None, 0.1)
  lost = verdict.failure(job, "error", "WorkerDied", is_lost=True)
  assert verdict.early_verdict([ok, lost][::order]) == lost
