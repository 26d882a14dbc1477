"""Programs with odd values, odd exceptions, or no fixed answer."""

from tests.executor.hostile_case import Case, fails, gives

_RETURNS = "def f():\n  return {}"
_OBJECT = "class V{}:\n  {}\ndef f():\n  return {}"


def _no_text(expression, setup=""):
  return fails(f"{setup}\n{_RETURNS.format(expression)}", "Unserializable")


def _object(method, bases="", value="V()", *errors):
  """Returns a case whose value has methods that must not be called."""
  code = _OBJECT.format(bases and f"({bases})", method, value)
  return fails(code, *(errors or ("Unserializable",)))


def _text(expression, text, **options):
  return gives(_RETURNS.format(expression), text, **options)


VALUES = {
  "not_a_number": _text("float('nan')", "float('nan')", runs=2),
  "not_a_number_inside": _text("[-float('nan')]", "[float('nan')]", runs=2),
  "infinity": _text("[1e999, -1e999]", "[float('inf'), float('-inf')]"),
  "negative_zero": _text("-0.0", "-0.0", runs=2),
  "complex_of_odd_parts": _text(
    "complex(-0.0, float('nan'))", "complex(-0.0, float('nan'))", runs=2
  ),
  "huge_integer": fails(_RETURNS.format("10**5000"), "Unserializable"),
  "huge_integer_with_the_limit_off": fails(
    "import sys\ndef f():\n  sys.set_int_max_str_digits(0)\n  return 10**5000",
    "MalformedReport",
    runs=2,
  ),
  "huge_decimal": Case(
    "from decimal import Decimal\n"
    + _RETURNS.format("Decimal('1e999999999999999999')"),
    runs=2,
    statuses=("ok", "error"),
    outputs=("Decimal('1E+999999999999999999')",),
  ),
  "signalling_decimal": Case(
    "from decimal import Decimal\n"
    + _RETURNS.format("[Decimal('sNaN'), Decimal('-NaN123')]"),
    runs=2,
    statuses=("ok", "error"),
    outputs=("[Decimal('sNaN'), Decimal('-NaN123')]",),
  ),
  "cyclic_list": _no_text("x", "x = []\nx.append(x)"),
  "cyclic_dictionary": _no_text("x", "x = {}\nx[1] = x"),
  "cyclic_queue": _no_text(
    "x", "from collections import deque\nx = deque()\nx.append(x)"
  ),
  "deep_list": _no_text("x", "x = []\nfor _ in range(100_000): x = [x]"),
  "deep_list_with_a_high_limit": _no_text(
    "x",
    "import sys\nsys.setrecursionlimit(10**9)\n"
    "x = []\nfor _ in range(100_000): x = [x]",
  ),
  "surrogate": _text("chr(0xd800)", "'\\ud800'", runs=2),
  "null_byte": _text("chr(0)", "'\\x00'", runs=2),
  "line_separators": _text(
    "'\\n\\r\\u2028\\x85\\x1c'", "'\\n\\r\\u2028\\x85\\x1c'", runs=2
  ),
  "terminal_escape": _text("'\\x1b[2J'", "'\\x1b[2J'"),
  "text_that_is_code": _text(
    "'__import__(\"os\")._exit(0)'", "'__import__(\"os\")._exit(0)'", runs=2
  ),
  "both_quotes": _text("'\\'\"\\\\'", "'\\'\"\\\\'", runs=2),
  "bytes_of_everything": gives(
    _RETURNS.format("bytes(range(256)) == eval(ascii(bytes(range(256))))"),
    "True",
  ),
  "generator": _no_text("(x for x in [1])"),
  "function": _no_text("f"),
  "module": _no_text("__import__('math')"),
  "class": _no_text("int"),
  "ellipsis": _no_text("..."),
  "own_frame": _no_text("__import__('sys')._getframe()"),
  "memory_view": _no_text("memoryview(b'x')"),
  "dictionary_view": _no_text("{}.keys()"),
  "range": _no_text("range(3)"),
  "dictionary_of_odd_keys": _no_text("{(): {}, f: 1}"),
  "list_that_grows_when_written": Case(
    "import sys\nx = [1]\ndef grow(*event):\n  x.append(1)\n  return grow\n"
    "def f():\n  sys.settrace(grow)\n  return x",
    statuses=("ok", "error", "timeout"),
    errors=("Unserializable", "MemoryError", "RuntimeError", "TimeoutError"),
  ),
}

OBJECTS = {
  "object_with_a_repr": _object("def __repr__(self): return '1'"),
  "object_with_a_huge_repr": _object("def __repr__(self): return '1' * 10**9"),
  "object_that_equals_everything": _object("def __eq__(self, x): return True"),
  "object_with_a_hash": _object(
    "def __hash__(self): return 1", value="{V(): 1}"
  ),
  "object_that_lies_about_its_class": _object("__class__ = int"),
  "object_with_every_attribute": _object(
    "def __getattribute__(self, name): return int"
  ),
  "object_that_exits_when_asked": _object(
    "def __getattribute__(self, name): __import__('os')._exit(0)"
  ),
  "object_that_pickles_to_a_call": _object(
    "def __reduce__(self): return eval, ('1',)"
  ),
  "object_that_is_a_number": _object("def __index__(self): return 1"),
  "object_with_an_iterator": _object("def __iter__(self): return iter([1])"),
  "subclass_of_str": _object("def __str__(self): return '2'", "str"),
  "subclass_of_int": _object("def __repr__(self): return '2'", "int"),
  "subclass_of_float": _object("def __repr__(self): return '2'", "float"),
  "subclass_of_list": _object("def __iter__(self): return iter([2])", "list"),
  "subclass_of_tuple": _object("def __len__(self): return 1", "tuple"),
  "subclass_of_dict": _object("def items(self): return [(1, 2)]", "dict"),
  "subclass_of_set": _object("def __iter__(self): return iter([2])", "set"),
  "subclass_of_bytes": _object("def __repr__(self): return '2'", "bytes"),
  "subclass_inside": _object("pass", "int", "[{1: (V(),)}]"),
  "subclass_as_a_key": _object("pass", "str", "{V('x'): 1}"),
  "enumeration": fails(
    "import enum\nclass V(enum.IntEnum):\n  A = 1\n" + _RETURNS.format("V.A"),
    "Unserializable",
  ),
  "named_tuple": _no_text(
    "namedtuple('V', 'x')(1)", "from collections import namedtuple"
  ),
  "metaclass_that_equals_int": fails(
    "class M(type):\n  def __eq__(self, other): return True\n"
    "  def __hash__(self): return hash(int)\n"
    "class V(metaclass=M):\n  def __repr__(self): return '1'\n"
    + _RETURNS.format("V()"),
    "Unserializable",
    "AttributeError",
    "TypeError",
  ),
  "metaclass_that_exits": fails(
    "class M(type):\n  def __hash__(self): __import__('os')._exit(0)\n"
    "class V(metaclass=M): pass\n" + _RETURNS.format("V()"),
    "Unserializable",
    "NoReport",
  ),
  "hash_of_a_key_that_changes": gives(
    "class V(int):\n  def __hash__(self): return 1\n"
    "def f():\n  return len({V(1): 1, 1: 2})",
    "1",
  ),
}

_RAISES = "def f():\n  raise {}"
_NAMED = "def f():\n  raise type({}, (Exception,), {{}})"


def _raises(raised, name):
  return fails(_RAISES.format(raised), name)


def _named(name, reported):
  return fails(_NAMED.format(name), reported)


EXCEPTIONS = {
  "keyboard_interrupt": _raises("KeyboardInterrupt", "KeyboardInterrupt"),
  "generator_exit": _raises("GeneratorExit", "GeneratorExit"),
  "stop_iteration": _raises("StopIteration", "StopIteration"),
  "stop_iteration_with_a_value": _raises("StopIteration(1)", "StopIteration"),
  "system_exit": _raises("SystemExit(0)", "SystemExit"),
  "base_exception": _raises("BaseException", "BaseException"),
  "exception_group": _raises(
    "BaseExceptionGroup('', [SystemExit()])", "BaseExceptionGroup"
  ),
  "no_exception": _raises("1", "TypeError"),
  "recursion": fails("def f(): f()", "RecursionError"),
  "recursion_in_the_c_library": Case(
    "import sys\nsys.setrecursionlimit(10**8)\n"
    "def g(x): return [*map(g, [x])]\ndef f(): return g(1)",
    statuses=("error", "timeout"),
  ),
  "recursion_of_destructors": Case(
    "def f():\n  x = []\n  for _ in range(3 * 10**5): x = [x]\n"
    "  del x\n  return 1",
    statuses=("ok", "error"),
    outputs=("1",),
  ),
  "name_of_odd_letters": _named("'\\u00e9'", "\\xe9"),
  "name_of_many_letters": _named("'\\u00e9' * 1000", "\\xe9" * 20),
  "name_of_a_line_break": _named("'ok\\n\\n1'", "ok\\n\\n1"),
  "name_of_an_escape": _named("'\\x1b[2J'", "\\x1b[2J"),
  "name_of_nothing": _named("''", "Exception"),
  "name_of_a_quote": _named("'\\''", "'"),
  "name_of_a_timeout": _named("'TimeoutError'", "TimeoutError"),
  "name_of_a_dead_worker": _named("'WorkerDied'", "WorkerDied"),
  "name_of_a_kill": _named("'Signal9'", "Signal9"),
  "name_of_ok": _named("'ok'", "ok"),
  "name_by_a_metaclass": fails(
    "class M(type):\n  __name__ = 'ok\\n\\n1'\n"
    "class E(Exception, metaclass=M): pass\n" + _RAISES.format("E"),
    "E",
  ),
  "name_that_exits_when_asked": fails(
    "class M(type):\n"
    "  def __getattribute__(self, name): __import__('os')._exit(0)\n"
    "class E(Exception, metaclass=M): pass\n" + _RAISES.format("E"),
    "E",
  ),
  "name_given_later": fails(
    "class E(Exception): pass\nE.__name__ = 'ok\\n'\n" + _RAISES.format("E"),
    "ok\\n",
  ),
  "class_that_lies": fails(
    "class E(Exception):\n  __class__ = property(lambda self: 1 / 0)\n"
    + _RAISES.format("E"),
    "E",
  ),
  "message_that_hangs": fails(
    "class E(Exception):\n  def __str__(self):\n    while True: pass\n"
    "  __repr__ = __str__\n" + _RAISES.format("E"),
    "E",
  ),
  "message_that_exits": fails(
    "class E(Exception):\n  def __str__(self): __import__('os')._exit(0)\n"
    "  __repr__ = __str__\n" + _RAISES.format("E"),
    "E",
  ),
  "message_of_a_gibibyte": fails(
    "class E(Exception):\n  def __str__(self): return 'x' * 2**30\n"
    + _RAISES.format("E"),
    "E",
  ),
  "check_of_an_exception_that_exits": fails(
    "class M(type):\n  def __subclasscheck__(self, c): return False\n"
    "  __instancecheck__ = __subclasscheck__\n"
    "class E(BaseException, metaclass=M): pass\n" + _RAISES.format("E"),
    "E",
  ),
  "context_without_an_end": fails(
    "def f():\n  a, b = ValueError(), KeyError()\n"
    "  a.__context__, b.__context__ = b, a\n  raise a",
    "ValueError",
  ),
}


def _differs(expression):
  return Case(
    _RETURNS.format(expression),
    runs=2,
    statuses=("nondeterministic",),
    errors=("RunsDiffer",),
  )


ANSWERS = {
  "time_of_day": _differs("__import__('time').time_ns()"),
  "clock": _differs("__import__('time').perf_counter_ns()"),
  "process_number": gives(
    _RETURNS.format("__import__('os').getpid()"), "0", runs=2
  ),
  "address": _differs("id(object())"),
  "address_in_a_text": _differs("str(object())"),
  "hash_of_a_text": _differs("hash('text')"),
  "order_of_a_set": _differs("list(set('abcdefghijklmnop'))"),
  "random_number": _differs("__import__('random').random()"),
  "system_random_number": Case(
    _RETURNS.format("__import__('os').urandom(8)"),
    runs=2,
    statuses=("nondeterministic", "error"),
    errors=("RunsDiffer", "PermissionError"),
  ),
}

CASES = VALUES | OBJECTS | EXCEPTIONS | ANSWERS
