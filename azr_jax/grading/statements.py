"""Static analysis of Python statements."""

import ast
from collections.abc import Iterator, Sequence

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _scope_nodes(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
  """Yields the nodes of one scope, skipping function and class bodies."""
  stack = list(nodes)
  while stack:
    node = stack.pop()
    yield node
    if not isinstance(node, (*DEFINITIONS, ast.Lambda)):
      stack.extend(ast.iter_child_nodes(node))


def bound(body: Sequence[ast.stmt]) -> frozenset[str]:
  """Returns the names that a scope binds or any function declares global."""
  names: set[str] = set()
  for node in _scope_nodes(body):
    match node:
      case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
        names.add(name)
      case ast.alias(name=name, asname=asname):
        names.add(asname or name.partition(".")[0])
      case ast.MatchMapping(rest=str(name)):
        names.add(name)
      case (
        ast.FunctionDef(name=str(name))
        | ast.AsyncFunctionDef(name=str(name))
        | ast.ClassDef(name=str(name))
        | ast.ExceptHandler(name=str(name))
        | ast.MatchAs(name=str(name))
        | ast.MatchStar(name=str(name))
      ):
        names.add(name)
  for statement in body:
    for node in ast.walk(statement):
      if isinstance(node, ast.Global):
        names.update(node.names)
  return frozenset(names)


def acts(statement: ast.stmt) -> bool:
  """Returns whether a statement may affect later calls or return early."""
  return any(
    isinstance(node, ast.Delete | ast.Return)
    or (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant))
    or (
      isinstance(node, ast.Attribute | ast.Subscript)
      and not isinstance(node.ctx, ast.Load)
    )
    for node in _scope_nodes([statement])
  )


def uses(body: Sequence[ast.stmt], name: str) -> list[ast.Name]:
  """Returns the nodes that read a name."""
  return [
    node
    for statement in body
    for node in ast.walk(statement)
    if isinstance(node, ast.Name)
    and node.id == name
    and isinstance(node.ctx, ast.Load)
  ]


def names_read(body: Sequence[ast.stmt]) -> frozenset[str]:
  """Returns the names that statements read, in all scopes."""
  return frozenset(
    node.id
    for statement in body
    for node in ast.walk(statement)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
  )


def count(body: Sequence[ast.stmt], *kinds: type[ast.AST]) -> int:
  """Returns the number of nodes of the given kinds, in all scopes."""
  nodes = (node for statement in body for node in ast.walk(statement))
  return sum(isinstance(node, kinds) for node in nodes)
