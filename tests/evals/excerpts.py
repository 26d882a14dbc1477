"""Excerpts of public datasets, and programs made from them."""

import ast
import pathlib

from azr_jax.tasks import records

FIXTURES = pathlib.Path(__file__).parent / "fixtures"


def rows(name):
  """Returns the records of a file of `fixtures/`."""
  return list(records.read(str(FIXTURES / name)))


def with_other_returns(code, entry):
  """Returns the program with every return value of `entry` replaced."""
  tree = ast.parse(code)
  for node in ast.walk(tree):
    if isinstance(node, ast.FunctionDef) and node.name == entry:
      node.body.append(ast.parse("return 'other'").body[0])
      for part in ast.walk(node):
        if isinstance(part, ast.Return):
          part.value = ast.Constant("other")
  return ast.unparse(ast.fix_missing_locations(tree))
