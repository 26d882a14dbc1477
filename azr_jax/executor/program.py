"""Running one program in a child that is about to die.

Every input meets the program as if it were the only one: the program's top
level is run anew for it, so what one call leaves in a global or in a mutable
default does not change the next. (Patches of the library's own modules do
reach the next input; nothing reaches the next program.)

The report is data: a canonical text per input and, for the first input that
failed, a verdict with an exception type's name, never its message. Whatever
the program patches or forges here changes only what it says about itself.
"""

import ast
import builtins
import gc
import json
import os
import sys
import types

from canonical import canonical
from forbidden import forbidden_use

MAX_REPORT_BYTES = 1 << 20
_WITHHELD = ("open", "input", "breakpoint", "help", "exit", "quit")
_BUILTINS = {
  name: value for name, value in vars(builtins).items() if name not in _WITHHELD
}
_NAME = "program"
# Bound here, before the program has a chance to replace them.
_dumps, _write, _exit = json.dumps, os.write, os._exit


def run(request, descriptor):
  """Runs the request's program, writes its report, and never returns."""
  payload = _dumps(_report(request)).encode("ascii")
  if len(payload) > MAX_REPORT_BYTES:
    report = _failure(request, "error", "OutputTooLarge")
    payload = _dumps(report).encode("ascii")
  frame = len(payload).to_bytes(8, "big") + payload
  while frame:
    frame = frame[_write(descriptor, frame) :]
  _exit(0)


def _failure(request, status, error):
  outputs = [None] * len(request["inputs"])
  return {"status": status, "outputs": outputs, "error": error}


def _report(request):
  try:
    code = request["code"]
    calls = [_parse_call(request["entry"], text) for text in request["inputs"]]
    if request["forbidden"]:  # Without rules, no tree: it costs a tenth.
      code = ast.parse(code)
      for parsed in filter(None, (code, *calls)):
        rule = forbidden_use(parsed, request["forbidden"])
        if rule is not None:
          return _failure(request, "blocked", f"import {rule}")
    code = compile(code, "<program>", "exec", 0, True)
    gc.enable()  # The zygote has it off; its own objects are frozen.
    if not calls:
      _define(code)
  except BaseException as error:  # noqa: BLE001 - becomes the verdict.
    return _failure(request, "error", _type_name(error))
  outputs, verdict = [], None
  for call in calls:
    try:
      outputs.append(canonical(_call(_define(code), call)))
    except BaseException as error:  # noqa: BLE001 - becomes the verdict.
      outputs.append(None)
      verdict = verdict or _type_name(error)
  status = "ok" if verdict is None else "error"
  return {"status": status, "outputs": outputs, "error": verdict}


def _define(code):
  """Runs a program's top level in a module of its own; returns its globals.

  The module is listed as imported, for `dataclasses` looks for it there.
  """
  module = sys.modules[_NAME] = types.ModuleType(_NAME)
  vars(module)["__builtins__"] = dict(_BUILTINS)
  exec(code, vars(module))
  return vars(module)


def _call(namespace, call):
  if call is None:
    raise SyntaxError("not the arguments of one call")
  return eval(compile(call, "<input>", "eval", 0, True), namespace)


def _parse_call(entry, text):
  """Parses argument text as exactly one call of the entry, or gives None."""
  try:
    tree = ast.parse(f"{entry}({text}\n)", mode="eval")
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return None
  function = getattr(tree.body, "func", None)
  return tree if getattr(function, "id", None) == entry else None


def _type_name(error):
  name = type.__dict__["__name__"].__get__(type(error))
  return ascii(name)[1:-1][:80]
