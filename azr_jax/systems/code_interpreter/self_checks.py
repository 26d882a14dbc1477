"""Detects conversations that check an answer with code (R1-CI, section 5.2).

The paper asks GPT-4o whether a script tries to validate an earlier answer. Here
it is a heuristic. A script other than the first counts as a check if it

1. contains an earlier value as a literal: a whole line printed by an earlier
   script, or an earlier answer between answer marks; and
2. tests something: it asserts, prints a comparison, or prints a text under an
   `if` that compares. Comparing a loop variable with a literal does not count.

The heuristic misses checks that recompute an answer without naming it, and it
counts scripts that use an earlier value but test something else.
"""

import ast
from collections.abc import Iterator, Sequence

from azr_jax.executor import literals
from azr_jax.tools import code_blocks

# Only the parts of more deeply nested literals are compared.
_MAX_DEPTH = 4


def has_self_check(turns: Sequence[str]) -> bool:
  """Returns whether a conversation checks an earlier answer with code.

  Args:
    turns: the model's turns and tool outputs, alternating.
  """
  seen: set[str] = set()
  has_script = False
  for index, turn in enumerate(turns):
    if index % 2:
      output = turn.removeprefix(code_blocks.OUTPUT_PREFIX)
      seen |= {_normal(line) for line in (*output.splitlines(), output)}
      continue
    block = code_blocks.find_block(turn)
    if block is not None:
      if has_script and _checks(block.code, seen - {""}):
        return True
      has_script = True
    answer = code_blocks.find_answer(turn)
    if answer is not None:
      seen.add(_normal(answer))
  return False


def _normal(text: str) -> str:
  """Strips whitespace and quotes from a text."""
  return "".join(text.replace('"', "").replace("'", "").split())


def _checks(code: str, seen: set[str]) -> bool:
  """Returns whether a script contains one of the values and tests something."""
  try:
    tree = literals.guarded_parse(code, "exec")
  except literals.ParseError:
    return False
  nodes = list(ast.walk(tree))
  return any(text in seen for text in _literals(nodes)) and _judges(nodes)


def _literals(nodes: Sequence[ast.AST]) -> Iterator[str]:
  """Yields the texts of a script's literals, including nested ones."""
  for node in nodes:
    text = _text(node, _MAX_DEPTH)
    if text is not None:
      yield text


def _text(node: ast.AST | None, depth: int) -> str | None:
  """Returns a literal as Python prints it, without blanks and quotes.

  Returns None for nodes that are not literals or are nested too deeply.

  Args:
    node: any node of a script.
    depth: the maximum nesting depth.
  """
  if isinstance(node, ast.Constant):
    return _normal(str(node.value))
  if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
    is_number = isinstance(node.operand, ast.Constant)
    return f"-{_text(node.operand, 0)}" if is_number else None
  if depth == 0 or not isinstance(node, ast.List | ast.Tuple | ast.Dict):
    return None
  if isinstance(node, ast.Dict):
    pairs = [
      (_text(key, depth - 1), _text(value, depth - 1))
      for key, value in zip(node.keys, node.values, strict=True)
    ]
    parts = [None if None in pair else f"{pair[0]}:{pair[1]}" for pair in pairs]
    left, right = "{}"
  else:
    parts = [_text(part, depth - 1) for part in node.elts]
    left, right = "[]" if isinstance(node, ast.List) else "()"
  texts = [part for part in parts if part is not None]
  whole = f"{left}{','.join(texts)}{right}"
  return whole if len(texts) == len(parts) else None


def _judges(nodes: Sequence[ast.AST]) -> bool:
  """Returns whether a script asserts, or reports the result of a comparison."""
  loop_names = {
    name.id
    for node in nodes
    if isinstance(node, ast.For | ast.comprehension)
    for name in ast.walk(node.target)
    if isinstance(name, ast.Name)
  }

  def compares(node: ast.AST) -> bool:
    return any(
      isinstance(part, ast.Compare) and not _is_counting(part, loop_names)
      for part in ast.walk(node)
    )

  judged: set[str] = set()  # Names that hold the result of a comparison.
  for node in nodes:
    if isinstance(node, ast.Assign) and compares(node.value):
      judged |= {t.id for t in node.targets if isinstance(t, ast.Name)}
  for node in nodes:
    if isinstance(node, ast.Assert):
      return True
    if isinstance(node, ast.Return) and node.value and compares(node.value):
      return True
    if _is_print(node) and (compares(node) or _names(node) & judged):
      return True
    if isinstance(node, ast.If) and (
      compares(node.test) or _names(node.test) & judged
    ):
      if any(_says(part) for part in (*node.body, *node.orelse)):
        return True
  return False


def _is_counting(node: ast.Compare, loop_names: set[str]) -> bool:
  """Returns whether a comparison only involves loop variables and literals."""
  sides = (node.left, *node.comparators)
  return all(
    isinstance(side, ast.Constant)
    or (isinstance(side, ast.Name) and side.id in loop_names)
    for side in sides
  )


def _names(node: ast.AST) -> set[str]:
  return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _is_print(node: ast.AST) -> bool:
  return (
    isinstance(node, ast.Call)
    and isinstance(node.func, ast.Name)
    and node.func.id == "print"
  )


def _says(statement: ast.stmt) -> bool:
  """Returns whether a statement prints, returns a boolean, or raises."""
  if isinstance(statement, ast.Raise):
    return True
  if isinstance(statement, ast.Return):
    value = statement.value
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)
  return isinstance(statement, ast.Expr) and _is_print(statement.value)
