"""Parses untrusted text as values and call arguments, without running it.

Graders compare values by the same rules as the executor compares runs. The
rules live in `executor/literals.py`; this module re-exports them.
"""

import ast
from collections.abc import Hashable

from azr_jax.executor.literals import (
  ParseError,
  guarded_parse,
  literal_value,
  node_key,
  parse,
  typed_key,
)

__all__ = [
  "ParseError",
  "arguments_text",
  "are_literal_arguments",
  "guarded_parse",
  "key_text",
  "literal_value",
  "node_key",
  "parse",
  "typed_key",
  "without_layout",
]
# Longer text is not worth a second parse.
_MAX_LAYOUT_CHARS = 4096


def are_literal_arguments(text: str) -> bool:
  """Returns whether `f(<text>)` is one call with only literal arguments."""
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


def without_layout(text: str) -> str:
  """Returns the arguments of a call without extra whitespace and comments.

  No program can tell the result from the original. Unlike `arguments_text`, it
  keeps 0.0 and -0.0 apart. Text over 4,096 characters is returned unchanged.
  """
  if len(text) > _MAX_LAYOUT_CHARS:
    return text
  try:
    return ast.unparse(guarded_parse(f"f({text}\n)", "eval"))[2:-1]
  except (ParseError, RecursionError):
    return text


def arguments_text(text: str) -> str:
  """Returns the canonical text of a call's literal arguments.

  Equal arguments have the same canonical text: whitespace, quotes, and the
  order of keywords, sets and dictionaries make no difference.

  Raises:
    ParseError: the arguments are not literals.
  """
  tree = guarded_parse(f"f({text}\n)", "eval")
  assert isinstance(tree, ast.Expression)
  call = tree.body
  if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
    raise ParseError("expected the arguments of one call")
  named = sorted(
    (k.arg or "**", key_text(node_key(k.value))) for k in call.keywords
  )
  return "; ".join(
    [
      *(key_text(node_key(value)) for value in call.args),
      *(f"{name}={value}" for name, value in named),
    ]
  )


def key_text(key: Hashable) -> str:
  """Returns a text of a value's key that is the same in every process."""
  if isinstance(key, tuple):
    return f"({', '.join(map(key_text, key))})"
  if isinstance(key, frozenset):
    return f"{{{', '.join(sorted(map(key_text, key)))}}}"
  return repr(key)
