"""Programs that use up time, memory or space for output.

The memory bombs and the floods end at about a gibibyte, because some runs have
no sandbox.
"""

from tests.executor.hostile_case import (
  Case,
  denied,
  ends,
  fails,
  gives,
  refused,
)


def _bomb(expression, setup="", errors=("MemoryError",)):
  """Returns a case whose expression needs memory beyond the limit."""
  return denied(f"{setup}\n  len({expression})", "array, itertools", errors)


def _loop(*lines):
  return ends("\n".join(("def f():", *(f"  {line}" for line in lines))))


MEMORY = {
  "list": _bomb("[0] * 10**8"),
  "list_of_lists": _bomb("[[0] * 10**5 for _ in range(1000)]"),
  "list_that_grows": denied(
    "a = []\n  for i in range(1000): a.append(str(i) * 10**6)",
    errors=("MemoryError",),
  ),
  "string_that_doubles": _bomb("x", "x = 'x'\n  for _ in range(30): x += x"),
  "bytes": _bomb("bytes(2**30)"),
  "bytearray_that_grows": _bomb(
    "x", "x = bytearray()\n  for _ in range(1000): x += bytes(2**20)"
  ),
  "integer_shift": _bomb("range(1 << 2**33 >> 2**33)"),
  "integer_product": _bomb("range(x * x)", "x = 1 << 2**30"),
  "dictionary": _bomb("{i: bytes(4096) for i in range(10**6)}"),
  "set": _bomb("set(range(5 * 10**6))"),
  "array": _bomb("array.array('q', [0]) * 2**27"),
  "padding": _bomb("'%01000000000d' % 1"),
  "join": _bomb("','.join(itertools.repeat('x' * 10**6, 1000))"),
  "replace": _bomb("('x' * 10**5).replace('x', 'y' * 10**4)"),
  "recursion": fails(
    "import sys\nsys.setrecursionlimit(1300)\ndef g(x):\n"
    "  return g([x] * 10**5)\ndef f():\n  return g(0)",
    "MemoryError",
    "Signal11",
  ),
  "at_the_top_level": fails("x = [0] * 10**8\ndef f(): pass", "MemoryError"),
  "in_the_input": fails(
    "def f(x): return 0", "MemoryError", inputs=("[0] * 10**8",)
  ),
  "caught": gives(
    "def f():\n  a = []\n  try:\n"
    "    for i in range(1000): a.append(str(i) * 10**6)\n"
    "  except MemoryError: a.clear()\n  return len(a)",
    "0",
  ),
  "shared_mapping": refused("mmap(None, 2**30, 3, 0x21, -1, 0)"),
  "mapping_without_reserve": refused("mmap(None, 2**30, 3, 0x4022, -1, 0)"),
  "break": refused(
    "brk(libc.sbrk(0) + 2**30)",
    "libc.sbrk.restype = kind = libc.__init__.__globals__['c_void_p']\n"
    "libc.brk.argtypes = [kind]",
  ),
  "mapping_that_grows_down": refused("mmap(None, 2**30, 3, 0x20122, -1, 0)"),
}

TIME = {
  "endless_loop": _loop("while True: pass"),
  "endless_loop_at_the_top_level": ends("while True: pass"),
  "endless_loop_in_the_input": ends(
    "def f(x): pass", ("sum(0 for _ in iter(int, 1))",)
  ),
  "integer_power": _loop("return 10**10**8"),
  "regular_expression": ends(
    "import re\ndef f():\n  return re.match('(a+)+$', 'a' * 50 + 'b')"
  ),
  "sort": _loop(
    "x = [i * 7919 % 10**6 for i in range(10**6)]",
    "while True: sorted(x, key=str)",
  ),
  "sum": _loop("return sum(range(10**12))"),
  "equal_hashes": _loop(
    "return len({i * (2**61 - 1): 0 for i in range(1, 10**5)})"
  ),
  "loop_in_hash": _loop(
    "class V:",
    "  def __hash__(self):",
    "    while True: pass",
    "return {V()}",
  ),
  "loop_in_destructor": _loop(
    "class V:",
    "  def __del__(self):",
    "    while True: pass",
    "V()",
  ),
  "loop_in_finally": _loop(
    "try:", "  raise ValueError", "finally:", "  while True: pass"
  ),
  "loop_that_catches_everything": _loop(
    "while True:",
    "  try:",
    "    while True: raise BaseException",
    "  except BaseException: pass",
  ),
  "lock": ends(
    "import _thread\nlock = _thread.allocate_lock()\n"
    "def f():\n  lock.acquire()\n  lock.acquire()"
  ),
  "report_by_a_tracer": ends(
    "import sys\ndef trace(*event):\n  while True: pass\n"
    "def f():\n  sys.settrace(trace)\n  return [[1]]"
  ),
  "compiler": Case(
    f"x = {'[' * 90}{']' * 90}\n" * 9000 + "def f(): return 1",
    statuses=("ok", "error", "timeout"),
    outputs=("1",),
  ),
  "compiler_of_the_input": Case(
    "def f(x): return 1",
    ("1 if 1 else " * 50_000 + "1",),
    statuses=("ok", "error", "timeout"),
    outputs=("1",),
  ),
}

OUTPUT = {
  "long_text": fails("def f():\n  return 'x' * 2**20", "Unserializable"),
  "long_list": fails("def f():\n  return [0] * 10**6", "Unserializable"),
  "long_dictionary_key": fails(
    "def f():\n  return {'x' * 70_000: 1}", "Unserializable"
  ),
  "text_that_grows_when_written": fails(
    "def f():\n  return chr(0x10ffff) * 10_000", "Unserializable"
  ),
  "shared_structure": fails(
    "def f():\n  x = []\n  for _ in range(60): x = [x, x]\n  return x",
    "Unserializable",
  ),
  "shared_structure_in_keys": fails(
    "def f():\n  x = ()\n  for _ in range(20): x = (x, x)\n  return {x: x}",
    "Unserializable",
  ),
  "shared_long_texts": fails(
    "def f():\n  x = 'x' * 10**4\n  return [x] * 10**6", "Unserializable"
  ),
  "many_outputs": fails(
    "def f(x):\n  return 'x' * 60_000",
    "OutputTooLarge",
    inputs=tuple(map(str, range(40))),
  ),
  "flood_of_prints": gives(
    "def f():\n  for _ in range(2000): print('x' * 1000)\n  return 1", "1"
  ),
  "flood_of_errors": gives(
    "import os, sys\ndef f():\n"
    "  for _ in range(2000): sys.stderr.write('x' * 1000)\n"
    "  for _ in range(2000): os.write(2, b'x' * 1000)\n  return 1",
    "1",
  ),
  "flood_of_the_pipe": Case(
    "import os\ndef f():\n  for _ in range(10**5):\n"
    "    for number in range(3, 16):\n      try:\n"
    "        os.write(number, bytes(2**16))\n      except OSError: pass",
    statuses=("error", "timeout"),
    errors=("NoReport",),
  ),
  "flood_of_warnings": gives(
    "import warnings\ndef f():\n"
    "  for i in range(1000): warnings.warn(str(i))\n  return 1",
    "1",
  ),
}


def _named(kind, cases):
  return {f"{kind}_{name}": case for name, case in cases.items()}


CASES = _named("memory", MEMORY) | _named("time", TIME) | OUTPUT
