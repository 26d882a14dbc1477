"""Reading untrusted text: values and call arguments, parsed, never run.

The rules of equality are those of the executor's own comparison of runs, so
there is one definition, in `executor/literals.py`; this module is the
graders' door to it.
"""

import ast

from azr_jax.executor.literals import (
  ParseError,
  guarded_parse,
  node_key,
  typed_key,
)

__all__ = [
  "ParseError",
  "are_literal_arguments",
  "guarded_parse",
  "node_key",
  "typed_key",
]


def are_literal_arguments(text: str) -> bool:
  """Whether `f(<text>)` is exactly one call, of literals only."""
  try:
    tree = guarded_parse(f"f({text}\n)", "eval")
    assert isinstance(tree, ast.Expression)
    call = tree.body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
      return False
    if call.func.id != "f" or any(k.arg is None for k in call.keywords):
      return False
    for value in (*call.args, *(keyword.value for keyword in call.keywords)):
      node_key(value)
  except ParseError:
    return False
  return True
