"""Tests that rules hide modules from programs and change nothing else."""

import ast

import pytest

from azr_jax.executor import Job
from azr_jax.executor.child.forbidden import RULES_OF_PROPOSALS

# Expressions that reach a forbidden module without an import that names it, by
# the modules that they need.
WAYS = [
  ("queue", "queue.time()"),
  ("queue", "queue.threading.get_ident()"),
  ("sys", "sys.modules['time'].gmtime().tm_wday"),
  ("sys", "sys.modules['_strptime'].datetime_date.today().weekday()"),
  ("_strptime", "_strptime.time.gmtime().tm_wday"),
  ("_datetime", "_datetime.date.today().weekday()"),
  ("_random", "_random.Random(3).random()"),
  ("statistics", "statistics.random.Random(3).random()"),
  ("posixpath", "posixpath.join('a', 'b')"),
  ("traceback", "traceback.linecache.os.path.sep"),
  ("contextlib", "contextlib.os.path.sep"),
  ("contextlib", "contextlib.os.environ['TZ']"),
  ("dataclasses", "dataclasses.sys.modules['time'].gmtime().tm_wday"),
  ("pprint", "pprint._dataclasses.inspect.linecache.os.path.sep"),
  ("typing", "typing.contextlib.os.path.sep"),
  ("__main__", "__main__.time.gmtime().tm_wday"),
  ("os", "getattr(os, 'pa' + 'th').sep"),
  ("sys", "getattr(sys, 'ex' + 'it').__name__"),
  ("sys", "sys.__loader__.load_module('time').gmtime().tm_wday"),
  ("sys", "sys.modules.pop('time') is 1, __import__('ti' + 'me').daylight"),
  ("sys", "sys.modules.pop('os') is 1, __import__('o' + 's').path.sep"),
  ("math", "__builtins__['__imp' + 'ort__']('ti' + 'me').daylight"),
  ("math", "eval('__imp' + 'ort__')('ti' + 'me').daylight"),
  ("math", "exec('imp' + 'ort time')"),
  ("importlib", "vars(importlib)['import_' + 'module']('ti' + 'me').daylight"),
]
HIDDEN = ("AttributeError", "KeyError", "ModuleNotFoundError", "ImportError")


@pytest.mark.parametrize("modules, way", WAYS)
def test_no_name_leads_to_a_forbidden_module(run, modules, way):
  code = f"import {modules}\ndef f():\n  return {way}"
  result = run(code, forbidden=RULES_OF_PROPOSALS)
  assert result.status == "error" and result.error in HIDDEN, result
  assert run(code).status == "ok"


def test_other_rules_hide_other_modules(run):
  code = "import json, sys\ndef f():\n  return json.codecs.lookup('ascii').name"
  assert run(code, forbidden=("codecs",)).error == "AttributeError"
  assert run(code, forbidden=("time",)).outputs == ("'ascii'",)
  code = "import collections\ndef f():\n  return collections.abc.Sized.__name__"
  assert run(code, forbidden=("collections.abc",)).status == "blocked"
  code = code.replace("collections.abc", "vars(collections)['abc']")
  assert run(code, forbidden=("collections.abc",)).error == "KeyError"


# Programs whose libraries need forbidden modules themselves, or state of their
# own module: statements and the returned expression.
HONEST = {
  "queue": """
import queue
def f(x):
  first, last = queue.Queue(), queue.PriorityQueue()
  first.put(x), last.put((2, "b")), last.put((1, "a"))
  try:
    queue.LifoQueue().get(timeout=0.01)
  except queue.Empty:
    return first.get(timeout=1), last.get_nowait()
""",
  "warnings": """
import warnings
def f(x):
  with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    warnings.warn("x")
  return len(seen), str(seen[0].message)
""",
  "streams": """
import contextlib, io, sys
def f(x):
  with contextlib.redirect_stdout(io.StringIO()) as first:
    print(x)
  old, sys.stdout = sys.stdout, io.StringIO()
  print("a")
  second, sys.stdout = sys.stdout, old
  return first.getvalue(), second.getvalue()
""",
  "traceback": """
import traceback
def f(x):
  try:
    1 / 0
  except ZeroDivisionError:
    return traceback.format_exc().splitlines()[-1]
""",
  "classes": """
import abc, dataclasses, enum, inspect, typing
@dataclasses.dataclass(order=True)
class Point:
  x: int
  y: list = dataclasses.field(default_factory=list)
class Color(enum.Enum):
  RED = enum.auto()
class Base(abc.ABC):
  pass
def f(x: int):
  names = sorted(typing.get_type_hints(f)), str(inspect.signature(Point))
  return Point(x) < Point(x + 1), repr(Point(x)), Color.RED.name, names
""",
  "collections": """
import collections.abc, copy, functools, json, pprint, statistics
@functools.lru_cache(None)
def g(n):
  return n if n < 2 else g(n - 1) + g(n - 2)
def f(x):
  Pair = collections.namedtuple("Pair", "a b")
  pair = copy.deepcopy(Pair([x], 2))
  return pair._asdict(), g(50), json.loads(json.dumps([None, x])), [
    pprint.pformat(pair), statistics.median([1, x, 7]),
    isinstance([], collections.abc.Sequence)]
""",
  "imports": """
import errno, importlib, os, sys
def f(x):
  return errno.ENOENT, importlib.import_module("math").sqrt(4), os.sep, [
    "math" in sys.modules]
""",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_do_not_notice_rules(run, name):
  plain = run(HONEST[name], "3")
  assert plain.status == "ok", plain
  ruled = run(HONEST[name], "3", forbidden=RULES_OF_PROPOSALS, runs=2)
  assert (ruled.status, ruled.outputs) == ("ok", plain.outputs), ruled


def test_a_validation_looks_like_any_other_job(executor):
  code = """
import sys
def f():
  frame, seen = sys._getframe().f_back, []
  while frame:
    for name, value in sorted(frame.f_locals.items()):
      if type(value) in (int, float, str, tuple, list, bool):
        seen.append((name, repr(value)))
    frame = frame.f_back
  return seen
"""
  jobs = [
    Job("", code, ("",), forbidden=RULES_OF_PROPOSALS, validation=validation)
    for validation in (True, False)
  ]
  validated, graded = executor.map(jobs)
  assert validated.status == "ok"
  assert _settled(validated) == _settled(graded)


def _settled(result):
  """Returns an output without its process ids and descriptors."""
  pairs = ast.literal_eval(result.outputs[0])
  return [pair for pair in pairs if not pair[1].isdigit()]
