"""Composite programs: an `f` that is built on programs found before.

Appendix D.2 asks for f(g_0, ..., g_c) and leaves open how to refuse an `f` that
does nothing with them, or nothing but call one. Both are found by running `f`
once more for each question: it is `unused` where what g_i returns to it can be
a little more and a little less without another result, and `trivial` where the
result is something that its only g returned to it; of several, each has to
matter already.
"""

import ast
import functools
import io
import tokenize
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from azr_jax.executor import Executor, Job, Result, futures, literals
from azr_jax.grading import values
from azr_jax.grading.literals import are_literal_arguments
from azr_jax.systems.azr.appendix import rewriting
from azr_jax.tasks.programs import validation
from azr_jax.tasks.programs.task import Task, Triplet, component_name

# Between the components and `f`: what they were before `f` could change it.
_KEPT = "_components = {names}"
# After `f`: calls it with its components watched. What they call themselves is
# left alone. `nudge` is None to look only, else whether a value gets larger.
_WATCH = """
import copy as _copy
def _nudged(value, larger):
  kind = type(value)
  if value is None or kind is bool:
    return not value
  if kind in (int, float, complex):
    return value + 1 if larger else value - 1
  if kind is str:
    return value + "a" if larger else value[1:]
  if kind is bytes:
    return value + b"a" if larger else value[1:]
  if kind in (list, tuple):
    return kind(_nudged(v, True) for v in value) if larger else value[1:]
  if kind in (set, frozenset):
    return value | {0, -1} if larger else kind(list(value)[1:])
  if kind is dict and larger:
    return {key: _nudged(v, True) for key, v in value.items()}
  if kind is dict:
    return dict(list(value.items())[1:])
  return None
def _watched(part, seen, nudge):
  inside = []
  def call(*values, **named):
    if inside:
      return part(*values, **named)
    inside.append(True)
    try:
      value = part(*values, **named)
    finally:
      inside.pop()
    seen.append(_copy.deepcopy(value))
    return value if nudge is None else _nudged(value, nudge)
  return call
def _probe(which, nudge):
  def entry(*values, **named):
    names, seen = globals(), []
    for index, part in enumerate(_components):
      if names[part.__name__] is not part:
        return "changed"
      if which in (None, index):
        names[part.__name__] = _watched(part, seen, nudge)
    value = f(*values, **named)
    if nudge is not None:
      return value
    found = [value]
    if type(value) in (list, tuple) and len(value) == 1:
      found += value
    return any(type(v) is type(w) and v == w for v in seen for w in found)
  return entry
"""


def as_component(code: str, new_name: str) -> str | None:
  """Renames a program's `f`.

  Args:
    code: a program.
    new_name: what is to be called instead of `f`.

  Returns:
    The program, without comments; None where it has other functions or
    globals (so a composite one is never a component), or means something else
    by `f` or by a component's name.
  """
  tree = _simple(code)
  if tree is None:
    return None
  # The tree is kept for the next time.
  renamed = _Rename(new_name).visit(ast.parse(ast.unparse(tree)))
  return rewriting.write(renamed)


class _Rename(ast.NodeTransformer):
  """Calls `f` otherwise, where it is defined and where it is called."""

  def __init__(self, new_name: str):
    self._name = new_name

  def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
    if node.name == "f":
      node.name = self._name
    return self.generic_visit(node)

  def visit_Name(self, node: ast.Name) -> ast.AST:
    if node.id == "f":
      node.id = self._name
    return node


@functools.lru_cache(maxsize=4096)
def _simple(code: str) -> ast.Module | None:
  """The tree of a program that can be a component, or None."""
  if code.count("def f") != 1 or "g_" in code:  # Composite ones, at once.
    return None
  try:
    tree = literals.guarded_parse(code, "exec")
    assert isinstance(tree, ast.Module)
    words = [
      unicodedata.normalize("NFKC", token.string)
      for token in tokenize.generate_tokens(io.StringIO(code).readline)
      if token.type == tokenize.NAME
    ]
    ast.unparse(tree)  # Not if it is too deep, or has too long integers.
  except (ValueError, RecursionError, SyntaxError, tokenize.TokenError):
    return None
  *imports, function = tree.body or [None]
  if not isinstance(function, ast.FunctionDef) or function.name != "f":
    return None
  if not all(map(_is_plain_import, imports)):
    return None
  calls = sum(
    isinstance(node, ast.Name)
    and node.id == "f"
    and isinstance(node.ctx, ast.Load)
    for node in ast.walk(tree)
  )
  return tree if words.count("f") == 1 + calls else None


def _is_plain_import(node: ast.stmt | None) -> bool:
  """Whether a statement imports names that it lists, now and not for good."""
  if isinstance(node, ast.Import):
    return True
  return (
    isinstance(node, ast.ImportFrom)
    and node.module != "__future__"
    and all(alias.name != "*" for alias in node.names)
  )


def _imported(code: str) -> Mapping[str, str]:
  """What the names that a program imports stand for."""
  found = {}
  for node in ast.parse(code).body:
    if isinstance(node, ast.Import | ast.ImportFrom):
      source = getattr(node, "module", "")
      for alias in node.names:
        bound = alias.asname or alias.name.partition(".")[0]
        found[bound] = f"{source}.{alias.name if alias.asname else bound}"
  return found


def components(tasks: Iterable[Task], count: int) -> tuple[str, ...]:
  """The first programs that can be components together, each once.

  Perhaps fewer than `count`: they leave half of a program's room to what is
  built on them, and none imports as a name what another one means otherwise.
  """
  found: list[str] = []
  seen: set[str] = set()
  imported: dict[str, str] = {}
  room = validation.MAX_CODE_CHARS // 2
  for task in tasks:
    if len(found) == count:
      break
    component = as_component(task.code, component_name(len(found)))
    if component is None or task.code in seen or len(component) > room:
      continue
    own = _imported(component)
    if any(imported.get(bound, what) != what for bound, what in own.items()):
      continue
    found.append(component)
    seen.add(task.code)
    imported |= own
    room -= len(component)
  return tuple(found)


def own_part(code: str, parts: Sequence[str]) -> str:
  """What of a composite program is not its components."""
  return code.removeprefix("".join(f"{part}\n" for part in parts))


def submit(
  executor: Executor, code: str, parts: Sequence[str], argument_text: str
) -> validation.Verdict:
  """Starts the validation of a program with its components and one input.

  Args:
    executor: runs it.
    code: defines `f`, which uses every component.
    parts: the components, the i-th of which defines
      `component_name(i)`.
    argument_text: literal arguments of one call of `f`.

  Returns:
    The future of the task, whose program has all parts, or of a rejection,
    `unused` or `trivial` where it is not built on them.
  """
  if not are_literal_arguments(argument_text):  # They could use the parts.
    return futures.done(validation.Rejection("error"))
  names = [component_name(index) for index in range(len(parts))]
  kept = _KEPT.format(names=f"({', '.join(names)},)")

  def probe(which: int | None, nudge: bool | None) -> Job:
    entry = f"_entry = _probe({which}, {nudge})"
    text = "\n".join([*parts, kept, code, _WATCH, entry])
    return Job("composite", text, (argument_text,), entry="_entry")

  def tell_apart(
    task: Task | validation.Rejection,
  ) -> "Task | validation.Rejection | validation.Verdict":
    if not isinstance(task, Triplet):
      return task
    jobs = [probe(None, None)] + [
      probe(index, larger)
      for index in range(len(parts))
      for larger in (True, False)
    ]

    def judge(results: Sequence[Result]) -> Task | validation.Rejection:
      returned = results[0].outputs[0]
      if returned not in ("True", "False"):
        return validation.Rejection("unused")  # Or put something in its place.
      if returned == "True" and len(parts) == 1:
        return validation.Rejection("trivial")
      other = [
        output is not None and not values.values_equal(task.output, output)
        for output in (result.outputs[0] for result in results[1:])
      ]
      if not all(any(other[i : i + 2]) for i in range(0, len(other), 2)):
        return validation.Rejection("unused")
      return task

    ran = futures.gather([executor.submit(job) for job in jobs])
    return futures.then(ran, judge)

  whole = "\n".join([*parts, code])
  valid = validation.submit_triplet(executor, whole, argument_text)
  return futures.then(valid, tell_apart)
