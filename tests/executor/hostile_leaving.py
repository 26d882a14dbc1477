"""Programs that change state for the next program, or for the next input."""

from tests.executor.hostile_case import Case, gives


def _left(before, setup, ask, outputs):
  """Returns a case: a program changes state, and the next one looks at it."""
  code = f"{setup}\ndef f():\n  return {ask}"
  before = f"{before}\ndef f(x):\n  return 1"
  return gives(code, outputs, before=before, runs=2)


def _counts(setup, count, number):
  """Returns a case that tries to return the number of its call."""
  code = f"{setup}\ndef f(x):\n  {count}\n  return {number}"
  return gives(code, *("1", "1", "1"), inputs=("1", "2", "3"))


# Name -> the change; then the next program's setup, expression and output.
BETWEEN_PROGRAMS = {
  "builtins": (
    "import builtins\nbuiltins.len = builtins.leak = lambda *a: 7",
    "",
    "len([]), 'leak' in dir(__builtins__)",
    "(0, False)",
  ),
  "module_attribute": (
    "import math\nmath.leak = 1\nmath.sqrt = lambda x: 7",
    "import math",
    "hasattr(math, 'leak'), math.sqrt(4)",
    "(False, 2.0)",
  ),
  "module": (
    "import sys\nsys.modules['leak'] = sys\ndel sys.modules['math']",
    "import sys, math",
    "'leak' in sys.modules",
    "False",
  ),
  "class_attribute": (
    "import fractions\nfractions.Fraction.__add__ = lambda *a: 7",
    "from fractions import Fraction",
    "Fraction(1) + 1",
    "Fraction(2, 1)",
  ),
  "recursion_limit": (
    "import sys\nsys.setrecursionlimit(123)",
    "import sys",
    "sys.getrecursionlimit()",
    "1000",
  ),
  "decimal_context": (
    "import decimal\ndecimal.getcontext().prec = 3",
    "import decimal",
    "decimal.getcontext().prec",
    "28",
  ),
  "digits_of_integers": (
    "import sys\nsys.set_int_max_str_digits(0)",
    "import sys",
    "sys.get_int_max_str_digits()",
    "4300",
  ),
  "random_seed": (
    "import random\nrandom.seed(0)",
    "import random",
    "random.random() == 0.8444218515250481",
    "False",
  ),
  "locale": (
    "import locale\nlocale.setlocale(locale.LC_ALL, 'C')",
    "import locale",
    "locale.setlocale(locale.LC_CTYPE)",
    "'C.UTF-8'",
  ),
  "environment": (
    "import os\nos.environ['LEAK'] = '1'\nos.environ.pop('TZ')",
    "import os",
    "sorted(os.environ), os.getenv('LEAK')",
    "(['LC_ALL', 'PATH', 'PYTHONHASHSEED', 'TZ'], None)",
  ),
  "time_zone": (
    "import os, time\nos.environ['TZ'] = 'Asia/Tokyo'",
    "import time",
    "time.tzname, time.localtime(0).tm_hour",
    "(('UTC', 'UTC'), 0)",
  ),
  "signal_handler": (
    # Signals that end a whole run, such as 15, are ignored in every program.
    "import signal\nsignal.signal(10, signal.SIG_IGN)",
    "import signal",
    "signal.getsignal(10) == signal.SIG_DFL",
    "True",
  ),
  "blocked_signals": (
    "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {15})",
    "import signal",
    "len(signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    "0",
  ),
  "import_path": (
    "import sys\nsys.path.append('/leak')\nsys.meta_path.clear()",
    "import sys",
    "sys.path, len(sys.meta_path) > 0",
    "([], True)",
  ),
  "tracer": (
    "import sys\nsys.settrace(lambda *a: 1 / 0)",
    "import sys",
    "sys.gettrace()",
    "None",
  ),
  "garbage_collector": (
    "import gc\ngc.disable()\ngc.set_threshold(1)",
    "import gc",
    "gc.isenabled(), gc.get_threshold()[0] > 1",
    "(True, True)",
  ),
  "warning_filters": (
    "import warnings\nwarnings.simplefilter('error')",
    "import warnings",
    "warnings.warn('x')",
    "None",
  ),
  "own_module": (
    "import sys\nsys.modules['program'].leak = 1\nleak = 1",
    "import sys",
    "'leak' in globals() or hasattr(sys.modules['program'], 'leak')",
    "False",
  ),
  "executor_module": (
    "import sys\nframe = sys._getframe()\n"
    "while '_type_name' not in frame.f_globals: frame = frame.f_back\n"
    "frame.f_globals['canonical'] = frame.f_globals['_write'] = None",
    "",
    "[1]",
    "[1]",
  ),
}

BETWEEN_INPUTS = {
  "default_argument": gives(
    "def f(x, seen=[]):\n  seen.append(x)\n  return len(seen)",
    *("1", "1", "1"),
    inputs=("1", "2", "3"),
  ),
  "global_state": gives(
    "seen = []\ndef f(x):\n  seen.append(x)\n  return len(seen)",
    *("1", "1", "1"),
    inputs=("1", "2", "3"),
  ),
  "builtins_as_an_argument": gives(
    "def f(b):\n  b['n'] = b.get('n', 0) + 1\n  return b['n']",
    *("1", "1", "1"),
    inputs=("__builtins__", "__builtins__ ", "(__builtins__)"),
  ),
  "attribute_of_the_function": gives(
    "def f(x):\n  f.count = getattr(f, 'count', 0) + 1\n  return f.count",
    *("1", "1"),
    inputs=("1", "2"),
  ),
  "builtins_of_the_program": gives(
    "def f(x):\n  __builtins__['len'] = lambda y: 7\n  return x",
    *("0", "3"),
    inputs=("len('')", "len('abc')"),
  ),
  "attribute_of_a_module": _counts(
    "import math", "math.calls = getattr(math, 'calls', 0) + 1", "math.calls"
  ),
  "attribute_of_an_imported_class": _counts(
    "from collections import Counter\nCounter.calls = getattr("
    "Counter, 'calls', 0) + 1",
    "pass",
    "Counter.calls",
  ),
  "attribute_of_builtins": _counts(
    "import builtins",
    "builtins.calls = vars(builtins).get('calls', 0) + 1",
    "builtins.calls",
  ),
  "type_kept_by_a_comparison": _counts(
    "from collections import Counter\nclass Keeper:\n"
    "  def __eq__(self, other):\n    self.kept = other\n    return True\n"
    "keeper = Keeper()",
    "type(Counter()) == keeper; keeper.kept.n = Counter().n + 1 "
    "if hasattr(keeper.kept, 'n') else 1",
    "keeper.kept.n",
  ),
  "name_of_a_type": gives(
    "from collections import Counter\ndef f(x):\n"
    "  type(Counter()).__name__ += 'a'\n  return type(Counter()).__name__",
    *("'Countera'", "'Countera'"),
    inputs=("1", "2"),
  ),
  "one_name_for_two_modules": _counts(
    "import re as m\ndef g():\n  import operator as m",
    "m.sub.n = m.sub.n + 1 if hasattr(m.sub, 'n') else 1",
    "m.sub.n",
  ),
  "attribute_by_a_built_name": _counts(
    "import itertools",
    "d = __builtins__['var' + 's'](itertools); d['n'] = d.get('n', 0) + 1",
    "d['n']",
  ),
  "registered_class": _counts(
    "import collections.abc as c\nclass A: n = 1\n"
    "seen = len([k for k in c.Sized.__subclasses__() if k.__name__ == 'A'])",
    "pass",
    "1 + seen",
  ),
  "list_of_a_module": _counts(
    "from keyword import kwlist", "kwlist.append('x')", "kwlist.count('x')"
  ),
  "module_that_it_adds": _counts(
    "import sys",
    "n = sum(k[:4] == 'left' for k in sys.modules); "
    "sys.modules[f'left{n}'] = sys",
    "n + 1",
  ),
  "cache_of_regular_expressions": _counts(
    "import re",
    "n = 1\n"
    "  while re.search(s := ''.join(['|a', str(n)]), '').re.pattern is not s:\n"
    "    n += 1",
    "n",
  ),
  "mark_of_a_final_class": _counts(
    "import typing\nfrom fractions import Fraction\n"
    "seen = hasattr(Fraction, '\\x5f\\x5ffinal\\x5f\\x5f')",
    "typing.final(Fraction)",
    "1 + seen",
  ),
  "copy_of_a_class_that_it_builds": _counts(
    "import copy\nfrom fractions import Fraction\nU = chr(95) * 2\n"
    "state = {'n': vars(Fraction).get('n', 0) + 1}",
    "copy.copy(type('A', (), {U + 'reduce_ex' + U: "
    "lambda s, p: (lambda: Fraction, (), (None, state))})())",
    "Fraction.n",
  ),
  "private_attribute_behind_a_blank": _counts(
    "import re",
    "d = re.RegexFlag. _member_map_; d['n'] = d.get('n', 0) + 1",
    "d['n']",
  ),
  "default_decimal_context": _counts(
    "import decimal",
    "decimal.DefaultContext.prec += 1",
    "decimal.DefaultContext.prec - 28",
  ),
  "attribute_of_an_argument_s_class": gives(
    "def f(x, y):\n  try: n = x.calls + 1\n"
    "  except AttributeError: n = 1\n  type(x).calls = n\n  return n",
    *("1", "1"),
    inputs=("Counter(), 1", "Counter(), 2"),
  ),
  "state_by_an_input": gives(
    "def f(x):\n  return x",
    *("1", "1"),
    inputs=(
      "setattr(math, 'n', getattr(math, 'n', 0) + 1) or math.n",
      "setattr(math, 'n', getattr(math, 'n', 0) + 1) or math.n, ",
    ),
  ),
  "argument_changed_in_place": gives(
    "def f(x):\n  x.append(1)\n  return x",
    *("[1]", "[1]"),
    inputs=("[]", "[]"),
  ),
}


CASES = {
  f"left_{name}": _left(*row) for name, row in BETWEEN_PROGRAMS.items()
} | BETWEEN_INPUTS
CASES["left_codec_errors"] = Case(
  "def f():\n  return b'\\xff'.decode('ascii', 'leak')",
  before="import codecs\ncodecs.register_error('leak', lambda e: ('', 1))\n"
  "def f(x):\n  return 1",
  runs=2,
  errors=("LookupError",),
)
