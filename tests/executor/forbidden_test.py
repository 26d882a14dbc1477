"""Tests of the import rules."""

import pytest

RULES = ("time", "os.path", "sys.exit", "os.environ")


@pytest.mark.parametrize(
  "code, rule",
  [
    ("import time", "time"),
    ("import time as t", "time"),
    ("from time import sleep", "time"),
    ("def g():\n  import time", "time"),
    ("t = __import__('time')", "time"),
    ("import importlib\nt = importlib.import_module('time')", "time"),
    ("t = __import__(name='time')", "time"),
    ("from importlib import import_module as g\nt = g('time')", "time"),
    ("import os.path", "os.path"),
    ("from os import path", "os.path"),
    ("from os.path import join", "os.path"),
    ("import os\np = os.path.join", "os.path"),
    ("import os as o\np = o.path", "os.path"),
    ("from os import *", "os.path"),
    ("import sys\nsys.exit()", "sys.exit"),
    ("from sys import exit", "sys.exit"),
    ("import os\ne = os.environ", "os.environ"),
  ],
)
def test_blocked_before_running(run, code, rule):
  result = run(f"{code}\ndef f():\n  return 1", forbidden=RULES)
  assert (result.status, result.error) == ("blocked", f"import {rule}")
  assert result.outputs == (None,)


@pytest.mark.parametrize(
  "code",
  [
    "import math",
    "time = 1\nx = time.real",
    "class os:\n  path = 1\nx = os.path",
    "import sys\nx = sys.maxsize",
    "s = 'import time'",
  ],
)
def test_not_blocked(run, code):
  assert run(f"{code}\ndef f():\n  return 1", forbidden=RULES).status == "ok"


def test_inputs_are_checked_too(run):
  code = "def f(x):\n  return 1"
  result = run(code, "__import__('time').time()", forbidden=RULES)
  assert result.status == "blocked"


def test_nothing_is_forbidden_by_default(run):
  assert run("import time\ndef f():\n  return 1").status == "ok"
