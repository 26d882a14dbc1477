"""Running one program in a child that is about to die.

The report is data: a list of canonical texts and, for the first input that
failed, a verdict with an exception type's name, never its message.
"""

import ast
import builtins
import gc
import json
import os

from canonical import MAX_CHARS, NoText, canonical

MAX_REPORT_BYTES = 1 << 20
_WITHHELD = ("open", "input", "breakpoint", "help", "exit", "quit")
_NAMESPACE = {
  name: value for name, value in vars(builtins).items() if name not in _WITHHELD
}
_dumps, _write, _exit = json.dumps, os.write, os._exit


def run(request, descriptor):
  """Runs the request's program, writes its report, and never returns."""
  report = _report(request)
  payload = _dumps(report).encode("ascii")
  if len(payload) > MAX_REPORT_BYTES:
    payload = _dumps(
      {"status": "error", "outputs": [], "error": "OutputTooLarge"}
    ).encode("ascii")
  frame = len(payload).to_bytes(8, "big") + payload
  while frame:
    frame = frame[_write(descriptor, frame) :]
  _exit(0)


def _failure(status, error, outputs=()):
  return {"status": status, "outputs": list(outputs), "error": error}


def _report(request):
  try:
    tree = ast.parse(request["code"])
    rule = _forbidden_use(tree, request["forbidden"])
    if rule is not None:
      return _failure("blocked", rule)
    namespace = {"__name__": "program", "__builtins__": dict(_NAMESPACE)}
    exec(compile(tree, "<program>", "exec"), namespace)
  except BaseException as error:  # noqa: BLE001 - becomes the verdict.
    return _failure("error", _type_name(error))
  outputs, verdict = [], None
  for text in request["inputs"]:
    try:
      outputs.append(_call(request["entry"], text, namespace))
    except BaseException as error:  # noqa: BLE001 - becomes the verdict.
      outputs.append(None)
      verdict = verdict or _type_name(error)
  gc.disable()
  if verdict is not None:
    return _failure("error", verdict, outputs)
  return {"status": "ok", "outputs": outputs, "error": None}


def _call(entry, text, namespace):
  """Calls the entry with argument text; returns the value's text."""
  tree = ast.parse(f"{entry}({text}\n)", mode="eval")
  call = tree.body
  one_call = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
  if not one_call or call.func.id != entry:
    raise SyntaxError("not the arguments of one call")
  value = eval(compile(tree, "<input>", "eval"), namespace)
  output = canonical(value)
  if len(output) > MAX_CHARS:
    raise NoText("size")
  return output


def _type_name(error):
  name = type.__dict__["__name__"].__get__(type(error))
  return ascii(name)[1:-1][:80]


def _forbidden_use(tree, forbidden):
  """Returns the first forbidden import or dotted name, or None.

  An entry `a` forbids importing a and its submodules; an entry `a.b` forbids
  importing a.b, taking b from a, and the expression a.b.
  """
  if not forbidden:
    return None
  for node in ast.walk(tree):
    for name in _used_names(node):
      for rule in forbidden:
        if name == rule or name.startswith(rule + "."):
          return f"uses {rule}"
  return None


def _used_names(node):
  if isinstance(node, ast.Import):
    return [alias.name for alias in node.names]
  if isinstance(node, ast.ImportFrom):
    module = node.module or ""
    return [module, *(f"{module}.{alias.name}" for alias in node.names)]
  if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
    return (
      [f"{node.value.id}.{node.attr}"]
      if node.value.id
      in (
        "os",
        "sys",
      )
      else []
    )
  if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
    if node.func.id == "__import__" and node.args:
      argument = node.args[0]
      if isinstance(argument, ast.Constant):
        return [str(argument.value)]
  return []
