"""Parses config values of the form `NAME(key=value)`."""

import ast
from typing import Any


def read(text: str) -> tuple[str, dict[str, Any]]:
  """Parses text such as `products(min_digits=3)` into a name and its settings.

  Raises:
    ValueError: the text has another form.
  """
  try:
    node = ast.parse(text.strip(), mode="eval").body
    if isinstance(node, ast.Name):
      return node.id, {}
    if (
      isinstance(node, ast.Call)
      and isinstance(node.func, ast.Name)
      and not node.args
    ):
      settings = {
        str(keyword.arg): ast.literal_eval(keyword.value)
        for keyword in node.keywords
      }
      return node.func.id, settings
  except (SyntaxError, ValueError):
    pass
  raise ValueError(f"{text!r}: expected NAME or NAME(key=value)")
