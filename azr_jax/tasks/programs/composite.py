"""Composite programs: an `f` that is built on programs found before.

Appendix D.2 asks for f(g_0, ..., g_c) and leaves open how to refuse an `f` that
does nothing with them, or nothing but call one. Both are found by running: an
`f` must give another result when any g_i is broken, and must not give what any
g_i gives for the same input.
"""

import ast
import io
import tokenize
from collections.abc import Iterable, Sequence

from azr_jax.executor import Executor, Job, Result, literals
from azr_jax.grading import futures, values
from azr_jax.tasks.programs import rewriting, validation
from azr_jax.tasks.programs.task import Task, Triplet

_BROKEN = "def {}(*values, **named):\n  raise LookupError"


def name(index: int) -> str:
  """What the program at a place among the components is called."""
  return f"g_{index}"


def as_component(code: str, new_name: str) -> str | None:
  """Renames a program's `f`.

  Args:
    code: a program.
    new_name: what is to be called instead of `f`.

  Returns:
    The program, without comments; None where it has other functions or
    globals, which could clash with others' (so a composite one is never a
    component), or means something else by `f` or by a component's name.
  """
  try:
    tree = literals.guarded_parse(code, "exec")
    assert isinstance(tree, ast.Module)
    words = [
      token.string
      for token in tokenize.generate_tokens(io.StringIO(code).readline)
      if token.type == tokenize.NAME
    ]
  except (ValueError, RecursionError, SyntaxError, tokenize.TokenError):
    return None
  *imports, function = tree.body or [None]
  if not isinstance(function, ast.FunctionDef) or function.name != "f":
    return None
  if not all(isinstance(one, ast.Import | ast.ImportFrom) for one in imports):
    return None
  calls = [
    node
    for node in ast.walk(tree)
    if isinstance(node, ast.Name)
    and node.id == "f"
    and isinstance(node.ctx, ast.Load)
  ]
  if words.count("f") != 1 + len(calls):
    return None
  if any(word.startswith("g_") and word[2:].isdigit() for word in words):
    return None
  function.name = new_name
  for node in calls:
    node.id = new_name
  try:
    return rewriting.write(tree)
  except (ValueError, RecursionError):  # Too deep, or integers too long.
    return None


def components(tasks: Iterable[Task], count: int) -> tuple[str, ...]:
  """The first programs that can be components, each once; perhaps fewer."""
  found: list[str] = []
  seen: set[str] = set()
  for task in tasks:
    if len(found) == count:
      break
    component = as_component(task.code, name(len(found)))
    if component is not None and task.code not in seen:
      found.append(component)
      seen.add(task.code)
  return tuple(found)


def submit(
  executor: Executor, code: str, parts: Sequence[str], argument_text: str
) -> validation.Verdict:
  """Starts the validation of a program with its components and one input.

  Args:
    executor: runs it.
    code: defines `f`, which uses every component.
    parts: the components, the i-th of which defines `name(i)`.
    argument_text: of one call of `f`.

  Returns:
    The future of the task, whose program has all parts, or of a rejection:
    `unused` where a component can be broken without a change, `trivial` where
    one gives the same for the input.
  """
  whole = "\n".join([*parts, code])
  inputs = (argument_text,)

  def tell_apart(
    task: Task | validation.Rejection,
  ) -> "Task | validation.Rejection | validation.Verdict":
    if not isinstance(task, Triplet):
      return task
    broken = [
      "\n".join([*parts, _BROKEN.format(name(index)), code])
      for index in range(len(parts))
    ]
    jobs = [Job("unused", text, inputs) for text in broken] + [
      Job("trivial", part, inputs, entry=name(index))
      for index, part in enumerate(parts)
    ]

    def judge(results: Sequence[Result]) -> Task | validation.Rejection:
      same = [
        result.outputs[0] is not None
        and values.values_equal(task.output, result.outputs[0])
        for result in results
      ]
      if any(same[: len(parts)]):
        return validation.Rejection("unused")
      if any(same[len(parts) :]):
        return validation.Rejection("trivial")
      return task

    ran = futures.gather([executor.submit(job) for job in jobs])
    return futures.then(ran, judge)

  valid = validation.submit_triplet(executor, whole, argument_text)
  return futures.then(valid, tell_apart)
