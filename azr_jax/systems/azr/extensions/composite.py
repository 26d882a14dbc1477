"""Composite programs: an `f` that calls earlier programs g_0, ..., g_c.

AZR (appendix D.2) does not say how to reject an `f` that ignores its
components, or merely calls one. Here `f` runs again with instrumented
components. It is rejected as:

* `unused` if, for some g_i, making its return value slightly larger and
  slightly smaller both leave the result of `f` unchanged;
* `trivial` if there is one component, and the result of `f` is a value that
  this component returned.
"""

import ast
import functools
import io
import tokenize
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from azr_jax.executor import Executor, Job, Result, futures, literals
from azr_jax.grading import values
from azr_jax.systems.azr.extensions import rewriting
from azr_jax.tasks.programs import validation
from azr_jax.tasks.programs.task import (
  FORBIDDEN_MODULES,
  Task,
  Triplet,
  component_name,
)

# Inserted before `f`, which could rebind the names.
_COMPONENTS_LINE = "_components = {names}"
# Appended after `f`; calls it with instrumented components. Calls of one
# component by another are not instrumented. If `nudge` is not None, return
# values are made larger (True) or smaller (False).
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
def _probe(watched, nudge):
  def entry(*values, **named):
    names, seen = globals(), []
    for index, part in enumerate(_components):
      if names[part.__name__] is not part:
        return "changed"
      if watched in (None, index):
        names[part.__name__] = _watched(part, seen, nudge)
    value = f(*values, **named)
    if nudge is not None:
      return value
    results = [value]
    if type(value) in (list, tuple) and len(value) == 1:
      results += value
    return any(type(v) is type(w) and v == w for v in seen for w in results)
  return entry
"""


def as_component(code: str, new_name: str) -> str | None:
  """Renames `f` in a program, so that it can serve as a component.

  Returns:
    The program without comments. None if it cannot be a component: it has other
    functions or globals (like every composite program), or uses `f` or a
    component's name for something else.
  """
  tree = _component_tree(code)
  if tree is None:
    return None
  # Modify a copy, because `_component_tree` caches the tree.
  renamed = _Rename(new_name).visit(literals.parse(ast.unparse(tree)))
  return rewriting.write(renamed)


class _Rename(ast.NodeTransformer):
  """Renames the definition and the calls of `f`."""

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
def _component_tree(code: str) -> ast.Module | None:
  """Returns the tree of a program that can be a component, or None."""
  # Reject composite programs without the cost of a parse.
  if code.count("def f") != 1 or "g_" in code:
    return None
  try:
    tree = literals.guarded_parse(code, "exec")
    assert isinstance(tree, ast.Module)
    words = [
      unicodedata.normalize("NFKC", token.string)
      for token in tokenize.generate_tokens(io.StringIO(code).readline)
      if token.type == tokenize.NAME
    ]
    ast.unparse(tree)  # Raises if the tree is too deep or a number too long.
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
  """Returns whether a statement is an import with explicit names.

  `import *` has no names, and `__future__` would affect the code that follows.
  """
  if isinstance(node, ast.Import):
    return True
  return (
    isinstance(node, ast.ImportFrom)
    and node.module != "__future__"
    and all(alias.name != "*" for alias in node.names)
  )


def _imported(code: str) -> Mapping[str, str]:
  """Returns {imported name: the module or attribute that it is bound to}."""
  meanings = {}
  for node in literals.parse(code).body:
    if isinstance(node, ast.Import | ast.ImportFrom):
      source = getattr(node, "module", "")
      for alias in node.names:
        bound = alias.asname or alias.name.partition(".")[0]
        meanings[bound] = f"{source}.{alias.name if alias.asname else bound}"
  return meanings


def components(tasks: Iterable[Task], count: int) -> tuple[str, ...]:
  """Selects the first programs that can be components of the same program.

  Together they take at most half of the maximum program length, and no two
  import different things under the same name.

  Args:
    tasks: the tasks whose programs are candidates.
    count: the maximum number of components.

  Returns:
    Up to `count` distinct components.
  """
  chosen: list[str] = []
  used: set[str] = set()
  imported: dict[str, str] = {}
  chars_left = validation.MAX_CODE_CHARS // 2
  for task in tasks:
    if len(chosen) == count:
      break
    component = as_component(task.code, component_name(len(chosen)))
    if component is None or task.code in used or len(component) > chars_left:
      continue
    meanings = _imported(component)
    if any(imported.get(name, m) != m for name, m in meanings.items()):
      continue
    chosen.append(component)
    used.add(task.code)
    imported |= meanings
    chars_left -= len(component)
  return tuple(chosen)


def without_components(code: str, components: Sequence[str]) -> str:
  """Removes the components from a composite program."""
  return code.removeprefix(
    "".join(f"{component}\n" for component in components)
  )


def submit(
  executor: Executor, code: str, components: Sequence[str], argument_text: str
) -> validation.ValidationFuture:
  """Submits the validation of a composite program on one input.

  Args:
    executor: runs the program.
    code: the definition of `f`.
    components: the components; component i defines `component_name(i)`.
    argument_text: the arguments of one call of `f`.

  Returns:
    The future of a task whose program includes all components, or of a
    rejection. Its reason is `unused` or `trivial` if `f` does not build on the
    components.
  """
  names = [component_name(index) for index in range(len(components))]
  line = _COMPONENTS_LINE.format(names=f"({', '.join(names)},)")

  def probe(task: Triplet, watched: int | None, nudge: bool | None) -> Job:
    entry = f"_entry = _probe({watched}, {nudge})"
    text = "\n".join([*components, line, code, _WATCH, entry])
    return Job(
      "composite",
      text,
      (task.input,),
      entry="_entry",
      forbidden=FORBIDDEN_MODULES,
    )

  def probe_task(
    task: validation.Verdict,
  ) -> "validation.Verdict | validation.ValidationFuture":
    if not isinstance(task, Triplet):
      return task
    jobs = [probe(task, None, None)] + [
      probe(task, index, larger)
      for index in range(len(components))
      for larger in (True, False)
    ]

    def judge(results: Sequence[Result]) -> Task | validation.Rejection:
      if results[0].status == "timeout":
        return validation.Rejection("timeout")
      returned = results[0].outputs[0]
      if returned not in ("True", "False"):  # `f` replaced a component.
        return validation.Rejection("unused")
      if returned == "True" and len(components) == 1:
        return validation.Rejection("trivial")
      # Two jobs per component: larger return values, then smaller ones.
      differs = [
        output is not None and not values.values_equal(task.output, output)
        for output in (result.outputs[0] for result in results[1:])
      ]
      if not all(any(differs[i : i + 2]) for i in range(0, len(differs), 2)):
        return validation.Rejection("unused")
      return task

    ran = futures.gather([executor.submit(job) for job in jobs])
    return futures.then(ran, judge)

  whole = "\n".join([*components, code])
  valid = validation.submit_triplet(executor, whole, argument_text)
  return futures.then(valid, probe_task)
