"""Splits unit tests into assertions checked outside the child, and the rest.

`read_tests` parses a program of assertions without running it. An assertion of
one of these shapes is `compared`: the executor runs its call, and this process
checks the condition on the returned value.

| shape | notes |
| --- | --- |
| `assert f(1) == 2`, `assert 2 != f(1)` | the literal may be on either side |
| `assert f(1) is None` | also True, False, `is not`; f may return any object |
| `assert f(1)` | f may return any object |
| `assert abs(f(1) - 2.5) < 1e-6` | also `<=` |
| `assert math.isclose(f(1), 2.5, rel_tol=1e-9)` | |
| `assert not ...` | negates any of the above |

`f` is a name that the tests do not define, or the parameter of a
`def check(candidate)` that is called once. Its arguments are literals, which
may use the builtins `set`, `frozenset`, `float` and `complex`. All other
assertions are `trusted`: loops, computed expectations, and every assertion
after a statement that may change later calls, such as `random.seed(0)`.
"""

import ast
import dataclasses
import keyword
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from azr_jax.grading import literals, statements, values

CHECK = "check"
_CONSTRUCTORS = frozenset(("set", "frozenset", "float", "complex"))
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
  ast.Eq: operator.eq,
  ast.NotEq: operator.ne,
  ast.Is: operator.is_,
  ast.IsNot: operator.is_not,
}
_TOLERANCES: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
  ast.Lt: operator.lt,
  ast.LtE: operator.le,
}

Condition = Callable[[Any], bool]


class BadTests(ValueError):
  """The tests are unusable. The message says why."""


@dataclasses.dataclass(frozen=True)
class Assertion:
  """An assertion about the value of one call.

  Attributes:
    entry: the function to call.
    arguments: the text of its arguments.
    holds: checks a value against the assertion. Raises if the assertion would
      raise.
    truthiness_only: whether `holds` only looks at the truth of the value and
      at its identity with None, True or False. The value may then be any
      object.
  """

  entry: str
  arguments: str
  holds: Condition
  truthiness_only: bool = False


@dataclasses.dataclass(frozen=True)
class Tests:
  """Tests, split by the process that checks them.

  Attributes:
    compared: the assertions that are checked outside the child.
    trusted: a program with the remaining assertions, empty if there are none.
    trusted_count: the number of assertions in that program.
    called: the names of the functions known to be under test.
  """

  compared: tuple[Assertion, ...]
  trusted: str
  trusted_count: int
  called: frozenset[str]


@dataclasses.dataclass(frozen=True)
class _Check:
  """`def check(<parameter>)` and its one call, `check(<function>)`."""

  definition: ast.FunctionDef
  call: ast.stmt
  parameter: str
  function: str


def read_tests(text: str, entry: str | None = None) -> Tests:
  """Parses tests and splits their assertions.

  Args:
    text: a program of assertions. It may define `check(candidate)`, and may
      call it.
    entry: the function to pass to `check` if the text does not call it.

  Raises:
    BadTests: the text does not parse, asserts nothing, or has assertions in
      a function that is never called.
  """
  if entry is not None and not _is_name(entry):
    raise BadTests(f"entry is {entry!r:.80}; expected a function's name")
  try:
    tree = literals.guarded_parse(text, "exec")
  except literals.ParseError as error:
    raise BadTests(f"tests is not a program: {error}") from None
  assert isinstance(tree, ast.Module)
  try:
    return _split(_with_call(tree.body, entry), entry)
  except RecursionError:
    raise BadTests("tests is not a program: nested too deep") from None


def _is_name(text: str) -> bool:
  return text.isidentifier() and not keyword.iskeyword(text)


def _with_call(body: list[ast.stmt], entry: str | None) -> list[ast.stmt]:
  """Adds `check(<entry>)` if the tests define `check` but never call it."""
  is_defined = any(
    isinstance(statement, ast.FunctionDef) and statement.name == CHECK
    for statement in body
  )
  if entry is None or not is_defined or statements.uses(body, CHECK):
    return body
  return [*body, *literals.parse(f"{CHECK}({entry})").body]


def _split(body: list[ast.stmt], entry: str | None) -> Tests:
  names_read = statements.names_read(body)
  for statement in body:
    if (
      isinstance(statement, statements.DEFINITIONS)
      and statement.name not in names_read
      and statements.count([statement], ast.Assert)
    ):
      name = statement.name
      hint = "; expected entry" if name == CHECK else ""
      raise BadTests(f"{name} has assertions and is never called{hint}")
  check = _find_check(body)
  bound = statements.bound(body)
  reader = _Reader(bound)
  called = {entry} if entry else set()
  if check is None:
    rest = reader.split(body)
  else:
    called.add(check.function)
    rest = reader.split([s for s in body if s is not check.call])
    # `check` stays in the trusted program, without its compared assertions.
    local = statements.bound(check.definition.body)
    inner = _Reader(bound | local, {check.parameter: check.function})
    inner.acted = reader.acted
    check.definition.body = inner.split(check.definition.body) or [ast.Pass()]
    reader.compared += inner.compared
    rest.append(check.call)
  count = statements.count(rest, ast.Assert, ast.Raise)
  if not count and not reader.compared:
    raise BadTests("tests has no assertion")
  return Tests(
    compared=tuple(reader.compared),
    trusted=ast.unparse(ast.Module(rest, [])) if count else "",
    trusted_count=count,
    called=frozenset(called | {a.entry for a in reader.compared}),
  )


def _find_check(body: Sequence[ast.stmt]) -> _Check | None:
  """Returns the `check` that can be inlined, or None.

  Its one call must be equivalent to its body with the parameter replaced by
  the function's name.
  """
  definitions = [
    statement
    for statement in body
    if isinstance(statement, ast.FunctionDef) and statement.name == CHECK
  ]
  if len(definitions) != 1 or len(statements.uses(body, CHECK)) != 1:
    return None
  definition = definitions[0]
  match definition:
    case ast.FunctionDef(
      args=ast.arguments(
        posonlyargs=[],
        args=[ast.arg(arg=parameter)],
        vararg=None,
        kwonlyargs=[],
        kwarg=None,
      ),
      decorator_list=[],
    ):
      pass
    case _:
      return None
  for statement in body:
    match statement:
      case ast.Expr(
        value=ast.Call(
          func=ast.Name(id="check"),
          args=[ast.Name(id=function)],
          keywords=[],
        )
      ):
        free = function not in statements.bound(body)
        if free and parameter not in statements.bound(definition.body):
          return _Check(definition, statement, parameter, function)
  return None


class _Reader:
  """Collects the compared assertions of a list of statements.

  Attributes:
    compared: the assertions collected so far.
    acted: whether an earlier statement may change what later calls return.
  """

  def __init__(
    self, bound: frozenset[str], known: Mapping[str, str] | None = None
  ):
    """Creates an empty reader.

    Args:
      bound: names that the tests define. Calls of these are not calls of the
        answer.
      known: maps each parameter of `check` to the answer's function.
    """
    self.compared: list[Assertion] = []
    self.acted = False
    self._bound = bound
    self._known = known or {}

  def split(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Collects assertions and returns the statements left for the child.

    Assertions that are always true are dropped.
    """
    rest = []
    for statement in body:
      if isinstance(statement, ast.Assert):
        if isinstance(statement.test, ast.Constant) and statement.test.value:
          continue
        assertion = None if self.acted else self._assertion(statement.test)
        if assertion is not None:
          self.compared.append(assertion)
          continue
      self.acted = self.acted or statements.acts(statement)
      rest.append(statement)
    return rest

  def _assertion(self, test: ast.expr) -> Assertion | None:
    try:
      return self._read(test)
    except literals.ParseError:
      return None

  def _read(self, test: ast.expr) -> Assertion | None:
    match test:
      case ast.UnaryOp(op=ast.Not(), operand=operand):
        inner = self._read(operand)
        if inner is None:
          return None
        holds = inner.holds
        return dataclasses.replace(inner, holds=lambda v: not holds(v))
      case ast.Call(
        func=ast.Attribute(value=ast.Name(id="math"), attr="isclose"),
        args=[left, right],
        keywords=keywords,
      ):
        call, expected = self._sides(left, right)
        options = {str(k.arg): self._value(k.value) for k in keywords}
        return self._call(call, lambda v: math.isclose(v, expected, **options))
      case ast.Call():
        return self._call(test, bool, truthiness_only=True)
      case ast.Compare(left=left, ops=[sign], comparators=[right]):
        return self._comparison(left, sign, right)
    return None

  def _comparison(
    self, left: ast.expr, sign: ast.cmpop, right: ast.expr
  ) -> Assertion | None:
    match left:
      case ast.Call(
        func=ast.Name(id="abs"),
        args=[ast.BinOp(left=minuend, op=ast.Sub(), right=subtrahend)],
        keywords=[],
      ):
        within = _TOLERANCES.get(type(sign))
        if within is None or "abs" in self._bound:
          return None
        limit = self._value(right)
        call, expected = self._sides(minuend, subtrahend)
        return self._call(call, lambda v: within(abs(v - expected), limit))
    compare = _COMPARISONS.get(type(sign))
    if compare is None:
      return None
    call, expected = self._sides(left, right)
    by_identity = compare in (operator.is_, operator.is_not)
    if by_identity and not (expected is None or isinstance(expected, bool)):
      return None
    return self._call(
      call, lambda v: compare(v, expected), truthiness_only=by_identity
    )

  def _sides(self, left: ast.expr, right: ast.expr) -> tuple[ast.expr, Any]:
    """Returns the call and the value of the literal, given in any order."""
    if self._function(left) is not None:
      return left, self._value(right)
    return right, self._value(left)

  def _call(
    self, node: ast.expr, holds: Condition, truthiness_only: bool = False
  ) -> Assertion | None:
    entry = self._function(node)
    if entry is None:
      return None
    assert isinstance(node, ast.Call)
    for part in (*node.args, *(k.value for k in node.keywords)):
      self._value(part)
    if any(k.arg is None for k in node.keywords):
      return None
    parts = map(ast.unparse, (*node.args, *node.keywords))
    return Assertion(entry, ", ".join(parts), holds, truthiness_only)

  def _function(self, node: ast.expr) -> str | None:
    """Returns the name of the answer's function that a node calls, or None."""
    match node:
      case ast.Call(func=ast.Name(id=name)) if name not in _CONSTRUCTORS:
        return self._known.get(name, None if name in self._bound else name)
    return None

  def _value(self, node: ast.expr) -> Any:
    """Returns the value of a literal.

    Raises:
      ParseError: the node is not a literal, or it uses a constructor name
        that the tests redefine.
    """
    for part in ast.walk(node):
      if isinstance(part, ast.Name):
        if part.id not in _CONSTRUCTORS - self._bound:
          raise literals.ParseError(f"{part.id}: expected a literal")
    return values.plain_value(literals.node_key(node))
