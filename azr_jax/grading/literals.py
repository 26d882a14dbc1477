"""Reads untrusted text as values and call arguments, without running it.

Graders compare values by the rules by which the executor compares runs. The
definition is in `executor/literals.py`; this module reexports it.
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
  """Returns whether `f(<text>)` is exactly one call with literals only."""
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
