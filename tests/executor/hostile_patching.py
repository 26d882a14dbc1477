"""Programs that patch the code which runs them and writes their report.

At most, they can make it lie about their own output.
"""

from tests.executor.hostile_case import (
  UNBELIEVED,
  Case,
  body,
  denied,
  ends,
  fails,
  gives,
)

_GLOBALS = """
import builtins, os, sys
def program():
  frame = sys._getframe()
  while "canonical" not in frame.f_globals:
    frame = frame.f_back
  return frame.f_globals
def report():
  frame = sys._getframe()
  while "calls" not in frame.f_locals:
    frame = frame.f_back
  return frame.f_locals
"""


def _patches(*lines, inputs=("",)):
  """Returns a case that must give the right value or an error."""
  code = f"{_GLOBALS}def f(x=0):{body(lines)}\n  return [1]"
  outputs = ("[1]",) * len(inputs)
  return Case(code, inputs, statuses=("ok", "error"), outputs=outputs)


def _spoils(*lines, errors=UNBELIEVED):
  """Returns a case whose report must be missing or refused.

  It makes two calls in one process, because the first may already use the
  unpatched code.
  """
  code = f"{_GLOBALS}def f(x):{body(lines)}\n  return [1]"
  return fails(code, *errors, inputs=("1", "2"), shares=True)


_ONE = "program()['canonical'] = lambda value: {}"

CASES = {
  "patched_builtins": _patches(
    "for name in ('len', 'print', 'isinstance', 'type', 'map', 'ascii'):",
    "  setattr(builtins, name, lambda *a, **k: 7)",
  ),
  "patched_base_exception": _patches("builtins.BaseException = int"),
  "patched_base_exception_and_an_error": _spoils(
    "builtins.BaseException = int", "raise ValueError"
  ),
  "patched_import": _patches("builtins.__import__ = None"),
  "patched_class_maker": _patches("builtins.__build_class__ = None"),
  "patched_json": _patches(
    "import json", "json.dumps = json.loads = json.encoder = None"
  ),
  "patched_os": _patches("os.write = os._exit = os.kill = print"),
  "patched_system_modules": _patches("sys.modules.clear()"),
  "patched_module_with_a_hook": _patches(
    "class M(dict):",
    "  def __setitem__(self, *a): os._exit(0)",
    "sys.modules = M()",
    inputs=("1", "2"),
  ),
  "patched_standard_output": _patches("sys.stdout = sys.stderr = None"),
  "patched_exception_hook": _patches(
    "sys.excepthook = sys.unraisablehook = lambda *a: os._exit(0)"
  ),
  "patched_garbage_hook": _patches(
    "import gc", "gc.callbacks.append(lambda *a: 1 / 0)", "gc.collect()"
  ),
  "patched_frozen_table": _patches(
    "import re", "re.compile = re.match = re._cache = None"
  ),
  "patched_canonical": Case(
    f"{_GLOBALS}def f(x):\n  {_ONE.format(repr('7'))}\n  return [1]",
    ("1", "2"),
    shares=True,
    statuses=("ok", "error"),
    outputs=("[1]", "7"),
  ),
  "canonical_with_two_lines": _spoils(_ONE.format("'1\\n2'")),
  "canonical_with_nothing": _spoils(_ONE.format("''")),
  "canonical_with_other_letters": _spoils(_ONE.format("'\\u00e9'")),
  "canonical_with_a_number": _spoils(_ONE.format("7")),
  "canonical_with_a_subclass": _patches(
    "class S(str):",
    "  def encode(self, *a): os._exit(0)",
    "  def __len__(self): return -1",
    _ONE.format("S('[1]')"),
  ),
  "canonical_that_hangs": Case(
    f"{_GLOBALS}def g(value):\n  while True: pass\n"
    "def f(x):\n  program()['canonical'] = g",
    ("1", "2"),
    shares=True,
    statuses=("timeout",),
  ),
  "canonical_that_kills": _spoils(
    _ONE.format("os.kill(os.getppid(), 0)"), errors=("Unserializable",)
  ),
  "patched_table_of_types": Case(
    f"{_GLOBALS}class V: pass\ndef f():\n"
    "  table = program()['canonical'].__globals__['_SCALARS']\n"
    "  table[V] = lambda value: '7'\n  return V()",
    statuses=("ok", "error"),
    outputs=("7",),
  ),
  "longer_texts_allowed": _spoils(
    "own = program()['canonical'].__globals__",
    "own['MAX_CHARS'] = program()['MAX_REPORT_CHARS'] = 10**9",
    "if x == 2: return 'x' * 10**6",
  ),
  "much_longer_texts_allowed": _spoils(
    "own = program()['canonical'].__globals__",
    "own['MAX_CHARS'] = program()['MAX_REPORT_CHARS'] = 10**9",
    "return 'x' * 10**7",
    errors=(*UNBELIEVED, "OutputTooLarge"),
  ),
  "fewer_calls": _spoils("report()['calls'].clear()"),
  "more_calls": _spoils("if x == 2: report()['calls'].append(None)"),
  "calls_without_end": Case(
    f"{_GLOBALS}def f(x):\n  calls = report()['calls']\n"
    "  calls.append(calls[0])\n  return x",
    ("1", "2"),
    shares=True,
    statuses=("error", "timeout"),
    errors=(*UNBELIEVED, "OutputTooLarge", "JobTimeout"),
  ),
  "longer_inputs": Case(
    f"{_GLOBALS}def f(x):\n  report()['inputs'] += ('7',)\n  return x",
    ("1", "2"),
    shares=True,
    statuses=("ok", "error"),
    outputs=("1", "2"),
  ),
  "patched_exit": _spoils("program()['_exit'] = lambda status: None"),
  "patched_exits_back_into_the_zygote": _patches(
    "os._exit = program()['_exit'] = lambda status: None", inputs=("1", "2")
  ),
  "patched_exits_and_another_report": _spoils(
    "os._exit = program()['_exit'] = lambda status: None",
    "for number in range(3, 16):",
    "  try: os.write(number, b'7\\n')",
    "  except OSError: pass",
  ),
  "patched_exit_that_raises": _spoils(
    "def g(status): raise KeyboardInterrupt",
    "os._exit = program()['_exit'] = g",
    errors=("NoReport",),
  ),
  "patched_write": _spoils(
    "program()['_write'] = lambda number, data: len(data)"
  ),
  "patched_write_without_progress": ends(
    f"{_GLOBALS}def f():\n  program()['_write'] = lambda number, data: 0"
  ),
  "patched_type_name": _spoils(
    "builtins.ascii = lambda value: '\\'a\\nb\\''", "raise ValueError"
  ),
  "patched_name_of_the_error": _spoils(
    "program()['_type_name'] = lambda error: ''", "raise ValueError"
  ),
  "patched_name_with_a_report": _spoils(
    "program()['_type_name'] = lambda error: 'x\\n7\\ndone'", "raise ValueError"
  ),
  "zygote_functions": denied(
    "frame.f_globals['os'].kill(frame.f_globals['os'].getppid(), 9)",
    "sys\nframe = sys._getframe()\n"
    "while 'serve' not in frame.f_globals: frame = frame.f_back\n",
  ),
  "tracer_that_raises": Case(
    "import sys\ndef trace(*event): 1 / 0\n"
    "def f():\n  sys.settrace(trace)\n  return [[1]]",
  ),
  "tracer_of_the_report": Case(
    "import sys\ndef trace(frame, event, arg):\n"
    "  if 'payload' in frame.f_locals: frame.f_locals['payload'] = b'ok'\n"
    "  return trace\n"
    "def f():\n  sys.settrace(trace)\n  return [[1]]",
    statuses=("ok",),
    outputs=("[[1]]",),
  ),
  "profiler_that_raises": Case(
    "import sys\ndef profile(*event): 1 / 0\n"
    "def f():\n  sys.setprofile(profile)\n  return [[1]]",
  ),
  "audit_that_raises": Case(
    "import sys\ndef audit(*event): raise KeyboardInterrupt\n"
    "def f(x):\n  sys.addaudithook(audit)\n  return [1]",
    ("1", "2"),
    errors=("KeyboardInterrupt", "NoReport", "Unserializable"),
  ),
  "exit_handler": gives(
    "import atexit, os\ndef f():\n"
    "  atexit.register(os.write, 2, b'x')\n"
    "  atexit.register(lambda: os._exit(3))\n  return 1",
    "1",
  ),
  "finalizer": gives(
    "import os, weakref\nclass V: pass\nv = V()\ndef f():\n"
    "  weakref.finalize(v, os._exit, 3).atexit = True\n"
    "  globals()['kept'] = __import__('sys').modules['math'].kept = v\n"
    "  return 1",
    "1",
  ),
  "destructor_at_the_exit": gives(
    "import math, os\nclass V:\n  def __del__(self, exit=os._exit): exit(3)\n"
    "math.kept = V()\ndef f(): return 1",
    "1",
  ),
  "destructor_of_a_global": fails(
    "import gc, os\ngc.collect()\n"
    "class V:\n  def __del__(self, exit=os._exit): exit(0)\n"
    "v = V()\ndef f(): return 1",
    "NoReport",
    inputs=("", ""),
    shares=True,
  ),
}
