"""Runs one program on its inputs and writes the report, in a short-lived child.

The program's top level runs again for each input. So a call cannot affect the
next one through a global, a mutable default, the decimal context or the
recursion limit. If a program might affect it in another way, such as through an
attribute of a module, the report is `split` and each call gets its own process
(`independence.py`). Argument texts can use only the names in `arguments.py`, so
they do not depend on the program's names.

The report consists of ASCII lines, each written when its call ends: a canonical
text, or `!` and the name of an exception's type (never its message). The last
line is `done`. It is written together with the line before it, because each
write wakes the zygote. If the program could not start, the only line is `!` and
an exception's name, `split`, or `blocked` and a rule. A program that patches or
forges this report changes only what it says about itself.

A child spends most of its time copying pages of the zygote that it writes to,
and updating a reference count is a write. So `prepare` does in the zygote,
once, what each child would otherwise do first, and a syntax tree is built only
where it is needed.
"""

import ast
import builtins
import decimal
import gc
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from arguments import NAMES
from canonical import Unserializable, canonical
from forbidden import REMOVED_BUILTINS, forbidden_use
from independence import are_independent

MAX_REPORT_CHARS = 1 << 20  # All values of a job together.
_BUILTINS = {
  name: value
  for name, value in vars(builtins).items()
  if name not in REMOVED_BUILTINS
}
_NAME = "program"
# The globals of argument texts. Names that a text binds go into its own locals.
_ARGUMENT_NAMES: dict[str, Any] = {"__builtins__": dict(_BUILTINS), **NAMES}
_RECURSION_LIMIT = 1000
# Copies of the builtins, made in advance because copying touches 150 objects.
_SPARE_BUILTINS: list[dict[str, Any]] = []
_SPARES = 8
_WARM_UPS = 20  # CPython specializes code after eight runs.
_WARM_UP = """
from collections import Counter
class Point:
  def __init__(self, x):
    self.x = x
def f(x, y=1):
  try:
    total = sum(Point(i).x for i in x if i % 2)
    words = {str(i): [i + y, i * 2.5] for i in sorted(x, reverse=True)}
    return total, words, Counter(x).most_common(1), "a,b".split(",")
  except ValueError as error:
    return None
"""
# Bound before a program can replace them.
_write, _exit = os.write, os._exit


def prepare() -> None:
  """Warms up this module in the zygote, so that children have less to do."""
  for _ in range(_WARM_UPS):
    for forbidden in ([], ["os.path"]):
      inputs = ["[3, 1, 2]", "(1, 2), y=2"]
      list(_report(_WARM_UP, inputs, "f", forbidden, may_share=True))
  for code in ("def f(x): return x", _WARM_UP):
    are_independent(code, ["[3, 1, 2]"])
  gc.disable()
  _reset()
  del sys.modules[_NAME]
  _SPARE_BUILTINS.extend(dict(_BUILTINS) for _ in range(_SPARES))


def run(
  code: str,
  inputs: Sequence[str],
  entry: str,
  forbidden: Sequence[str],
  may_share: bool,
  descriptor: int,
) -> NoReturn:
  """Runs a program, writes its report to a pipe, and never returns.

  Args:
    code, inputs, entry, forbidden: as in `job.Job`.
    may_share: whether the calls share this process without checking that they
      are independent.
    descriptor: the pipe to write to.
  """
  for text in _report(code, inputs, entry, forbidden, may_share):
    data = text.encode("ascii") + b"\n"
    while data:
      data = data[_write(descriptor, data) :]
  _exit(0)


def _report(
  code: str,
  inputs: Sequence[str],
  entry: str,
  forbidden: Sequence[str],
  may_share: bool,
) -> Iterator[str]:
  """Yields the report, in the pieces that are written together."""
  try:
    rule = _broken_rule(code, inputs, entry, forbidden)
    if rule is not None:
      yield f"blocked import {rule}"
      return
    if len(inputs) > 1 and not (may_share or are_independent(code, inputs)):
      yield "split"
      return
    calls = [compile_call(entry, text) for text in inputs]
    top_level = compile(code, "<program>", "exec", 0, True)
    gc.enable()  # The zygote has disabled it and frozen its objects.
    if not calls:
      define(top_level)
      yield "done"
  except BaseException as error:  # noqa: BLE001 - becomes the verdict.
    yield f"!{_type_name(error)}"
    return
  chars_left = MAX_REPORT_CHARS
  last = len(calls) - 1
  for index, compiled in enumerate(calls):
    write = canonical  # Bound before the program runs.
    try:
      if index:
        _reset()
      value = call(define(top_level), entry, compiled)
    except BaseException as error:  # noqa: BLE001 - becomes the verdict.
      line = f"!{_type_name(error)}"
    else:
      line = _text(write, value)
    chars_left -= len(line)
    if chars_left < 0:
      line = "!OutputTooLarge"
    yield line if index < last else f"{line}\ndone"


def _text(write: Callable[[object], str], value: object) -> str:
  """Returns the report's line for the value that a call returned."""
  try:
    return write(value)
  except BaseException:  # noqa: BLE001 - the program itself did not raise.
    return f"!{Unserializable.__name__}"


def _broken_rule(
  code: str, inputs: Sequence[str], entry: str, forbidden: Sequence[str]
) -> str | None:
  """Returns the first forbidden module that the program uses, or None."""
  # Every import contains this word, but Python also accepts it in non-ASCII
  # letters. So skip parsing only if the text is ASCII and lacks `import`.
  if not forbidden or all(
    text.isascii() and "import" not in text for text in (code, *inputs)
  ):
    return None
  trees = [ast.parse(code), *(_parse_call(entry, text) for text in inputs)]
  for tree in filter(None, trees):
    rule = forbidden_use(tree, forbidden)
    if rule is not None:
      return rule
  return None


def _reset() -> None:
  """Resets the process state that a call may have changed."""
  decimal.setcontext(decimal.Context())
  sys.setrecursionlimit(_RECURSION_LIMIT)
  re.purge()  # Compiling a pattern takes a deeper stack than finding it.


def define(code: types.CodeType) -> dict[str, Any]:
  """Runs a program's top level in a new module; returns the module's globals.

  The module goes into `sys.modules`, because `dataclasses` looks it up there.
  """
  module = sys.modules[_NAME] = types.ModuleType(_NAME)
  fresh = _SPARE_BUILTINS.pop() if _SPARE_BUILTINS else dict(_BUILTINS)
  vars(module)["__builtins__"] = fresh
  exec(code, vars(module))
  return vars(module)


def call(
  namespace: dict[str, Any], entry: str, compiled: types.CodeType | None
) -> object:
  """Calls the entry function and returns its value.

  The arguments are evaluated without the program's names.

  Raises:
    SyntaxError: `compiled` is None, because the text was not exactly one call.
    NameError: the program does not define the entry function.
  """
  if compiled is None:
    raise SyntaxError("not the arguments of one call")
  values, named = eval(compiled, _ARGUMENT_NAMES, {entry: _collect})
  if entry not in namespace:
    raise NameError(entry)
  return namespace[entry](*values, **named)


def _collect(
  *values: object, **named: object
) -> tuple[tuple[object, ...], dict[str, object]]:
  return values, named


def compile_call(entry: str, text: str) -> types.CodeType | None:
  """Compiles argument text as exactly one call of the entry, or returns None.

  The code is evaluated with `_collect` in place of the entry. Only text with a
  closing parenthesis can escape from the call, so only such text is parsed and
  checked.
  """
  try:
    if ")" in text:
      source = _parse_call(entry, text)
      if source is None:
        return None
    else:
      source = f"{entry}({text}\n)"
    return compile(source, "<input>", "eval", 0, True)
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return None


def _parse_call(entry: str, text: str) -> ast.Expression | None:
  """Parses argument text as exactly one call of the entry, or returns None."""
  try:
    tree = ast.parse(f"{entry}({text}\n)", mode="eval")
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return None
  function = getattr(tree.body, "func", None)
  return tree if getattr(function, "id", None) == entry else None


def _type_name(error: BaseException) -> str:
  name = type.__dict__["__name__"].__get__(type(error))
  return ascii(name)[1:-1][:80] or "Exception"
