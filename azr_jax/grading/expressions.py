"""Evaluates expressions in place of literals, such as `list(range(10))`.

Proposers and solvers may write an expression where a literal is expected. The
life of an expression:

1. `are_arguments` or `is_value` checks its syntax tree in this process. Text
   outside the language below never costs a process.
2. A separate job evaluates it under each hash seed, in processes that hold
   neither the program nor the reference answer.
3. The canonical text of its value replaces it.

The language is Python's expressions over values: operators, containers,
comprehensions, `lambda`, methods of values, and the names in `BUILTINS` and
`executor/child/arguments.py`. It has no assignment (`:=`), no names from the
program, no import, no `eval` or `getattr`, and no attributes that start with
`_` or lead to stack frames. The executor's limits bound the cost of an
expression.
"""

import ast
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future

from azr_jax.executor import Executor, Job, Result, futures, hash_seeds
from azr_jax.executor.child import arguments
from azr_jax.grading import literals

MAX_CHARS = 4096
# Runs that must agree: a result that depends on the iteration order of a set
# changes with the hash seed.
RUNS = len(hash_seeds.HASH_SEEDS)
BUILTINS = frozenset(
  "abs all any ascii bin bool bytearray bytes chr complex dict divmod "
  "enumerate filter float format frozenset hex int iter len list map max min "
  "next oct ord pow range repr reversed round set slice sorted str sum tuple "
  "zip".split()
)
# The parts of the modules in `arguments.py` that expressions may use. The rest
# creates classes, reads attributes by name, or changes number arithmetic.
_OF_MODULE = {
  "collections": frozenset(("Counter", "OrderedDict", "defaultdict", "deque")),
  "decimal": frozenset(("Decimal",)),
  "fractions": frozenset(("Fraction",)),
  "functools": frozenset(("reduce",)),
  "string": frozenset(
    name
    for name, value in vars(arguments.MODULES["string"]).items()
    if isinstance(value, str) and not name.startswith("_")
  ),
} | {
  name: frozenset(
    attribute
    for attribute in vars(arguments.MODULES[name])
    if not attribute.startswith("_")
  )
  for name in ("cmath", "itertools", "math")
}
_NAMES = BUILTINS | arguments.CONSTRUCTORS.keys()
# Prefixes of the attributes of frames, code, generators and classes. No other
# attribute of a value starts with one.
_PRIVATE = ("_", "ag_", "co_", "cr_", "f_", "gi_", "mro", "tb_")
# Nodes that are allowed if all of their children are.
_COMPOUND = (
  ast.BinOp,
  ast.BoolOp,
  ast.Call,
  ast.Compare,
  ast.Constant,
  ast.Dict,
  ast.FormattedValue,
  ast.IfExp,
  ast.JoinedStr,
  ast.keyword,
  ast.List,
  ast.Set,
  ast.Slice,
  ast.Starred,
  ast.Subscript,
  ast.Tuple,
  ast.UnaryOp,
)
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
# Allowed arguments of each constructor in a written-out value. Others would
# compute: `Counter` counts the items of a sequence, `list` splits a string.
_NUMBERS = (ast.Attribute, ast.Constant, ast.UnaryOp)
_SEQUENCES = (ast.List, ast.Tuple, ast.Set)
_CONTENT_OF: Mapping[str, tuple[type[ast.expr], ...]] = {
  "complex": _NUMBERS,
  "Counter": (ast.Dict,),
  "Decimal": _NUMBERS,
  "defaultdict": (*_SEQUENCES, ast.Dict),
  "deque": _SEQUENCES,
  "dict": (*_SEQUENCES, ast.Dict),
  "float": _NUMBERS,
  "Fraction": _NUMBERS,
  "frozenset": _SEQUENCES,
  "list": _SEQUENCES,
  "OrderedDict": (*_SEQUENCES, ast.Dict),
  "set": _SEQUENCES,
  "tuple": _SEQUENCES,
}
# When nested, `deque([...])` is treated as this kind of literal.
_LITERAL_OF: Mapping[str, type[ast.expr]] = {
  "Counter": ast.Dict,
  "defaultdict": ast.Dict,
  "deque": ast.List,
  "dict": ast.Dict,
  "float": ast.Constant,
  "frozenset": ast.Set,
  "list": ast.List,
  "OrderedDict": ast.Dict,
  "set": ast.Set,
  "tuple": ast.Tuple,
}
_NUMBERS_OF_MODULE = {
  module: frozenset(
    name
    for name in _OF_MODULE[module]
    if isinstance(getattr(arguments.MODULES[module], name), float | complex)
  )
  for module in ("cmath", "math")
}
_VALUE = "def f(value):\n  return value"
_ARGUMENTS = "def f(*values, **named):\n  return [values, named]"


def is_value(text: str) -> bool:
  """Returns whether a text is a single expression of the language."""
  tree = _parse(text.strip())
  return tree is not None and _is_allowed(tree.body)


def is_written_out(text: str) -> bool:
  """Returns whether a text spells a value out instead of computing it.

  Values are spelled out by literals, by constructors with literal arguments
  such as `set()`, `Counter({'a': 2})` or `defaultdict(int, {'a': 1})`, and by
  the constants of `math` and `cmath` such as `math.inf`. Operators,
  comprehensions and other calls compute: `[0] * 3`, `sorted([2, 1])`,
  `Counter('aab')`.
  """
  tree = _parse(text.strip())
  try:
    return tree is not None and _is_written_out(tree.body)
  except RecursionError:
    return False


def are_arguments(text: str) -> bool:
  """Returns whether `f(<text>)` is one call whose arguments are expressions."""
  tree = _parse(f"f({text}\n)")
  if tree is None:
    return False
  match tree.body:
    case ast.Call(func=ast.Name("f"), args=parts, keywords=named):
      return _is_allowed(*parts, *(keyword.value for keyword in named))
  return False


def submit_value(
  executor: Executor, text: str, runs: int = RUNS
) -> "Future[Result]":
  """Starts evaluating an expression.

  Args:
    executor: runs the expression in a process of its own.
    text: an expression that passes `is_value`.
    runs: the number of processes that must agree on the value.

  Returns:
    A future result. Its output is the canonical text of the value.
  """
  job = Job("value", _VALUE, (f"({text.strip()}\n)",), runs=runs)
  return executor.submit(job)


def submit_arguments(
  executor: Executor, texts: Sequence[str], validation: bool = False
) -> "Future[Result]":
  """Starts evaluating the arguments of several calls in one process.

  Args:
    executor: runs the job.
    texts: arguments that pass `are_arguments`. They share a process, so they
      must come from the same author.
    validation: whether the texts will be evaluated again (see `Job`).

  Returns:
    A future result. Its outputs are canonical argument texts such as
    `1, x=[2]`.
  """
  job = Job(
    "arguments", _ARGUMENTS, tuple(texts), runs=RUNS, validation=validation
  )

  def write(result: Result) -> Result:
    outputs = tuple(
      None if output is None else _argument_text(output)
      for output in result.outputs
    )
    if result.status != "ok" or None not in outputs:
      return dataclasses.replace(result, outputs=outputs)
    # A keyword such as `**{'a b': 1}` cannot be written as an argument.
    return dataclasses.replace(
      result, outputs=outputs, status="error", error="SyntaxError"
    )

  return futures.then(executor.submit(job), write)


def _is_written_out(node: ast.expr) -> bool:
  match node:
    case ast.Constant():
      return True
    case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
      return _is_number(operand)
    case ast.BinOp(
      left=real,
      op=ast.Add() | ast.Sub(),
      right=ast.Constant(value=complex()),
    ):
      return _is_number(real)
    case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
      return all(map(_is_written_out, parts))
    case ast.Dict(keys=keys, values=parts):
      return None not in keys and all(
        map(_is_written_out, (*filter(None, keys), *parts))
      )
    case ast.Call(func=called, args=parts, keywords=named):
      kind = _constructor(called)
      if kind == "defaultdict" and parts and _is_factory(parts[0]):
        parts = parts[1:]
      return (
        kind in _CONTENT_OF
        and all(_is_content(part, _CONTENT_OF[kind]) for part in parts[:1])
        and all(map(_is_written_out, parts))
        and all(k.arg and _is_written_out(k.value) for k in named)
      )
  return _is_number(node)


def _is_factory(node: ast.expr) -> bool:
  """Returns whether a node can be the first argument of `defaultdict`."""
  return isinstance(node, ast.Name) or (
    isinstance(node, ast.Constant) and node.value is None
  )


def _is_content(node: ast.expr, accepted: tuple[type[ast.expr], ...]) -> bool:
  """Returns whether a node is, or constructs, one of the accepted literals."""
  if isinstance(node, ast.Call):
    return _LITERAL_OF.get(_constructor(node.func)) in accepted
  return isinstance(node, accepted)


def _is_number(node: ast.expr) -> bool:
  """Returns whether a node is a numeric literal or constant, maybe signed."""
  while isinstance(node, ast.UnaryOp):
    if not isinstance(node.op, ast.UAdd | ast.USub):
      return False
    node = node.operand
  match node:
    case ast.Attribute(value=ast.Name(id=module), attr=name):
      return name in _NUMBERS_OF_MODULE.get(module, ())
    case ast.Constant(value=value):
      return type(value) in (int, float, complex)
  return False


def _constructor(node: ast.expr) -> str:
  """Returns the name of a constructor without its module, "" for others."""
  match node:
    case ast.Name(id=name):
      return name
    case ast.Attribute(value=ast.Name(id=module), attr=name) if (
      name in _OF_MODULE.get(module, ())
    ):
      return name
  return ""


def _parse(text: str) -> ast.Expression | None:
  if len(text) > MAX_CHARS:
    return None
  try:
    tree = literals.guarded_parse(text, "eval")
  except literals.ParseError:
    return None
  assert isinstance(tree, ast.Expression)
  return tree


def _is_allowed(*nodes: ast.expr) -> bool:
  try:
    return all(_allows(node, frozenset()) for node in nodes)
  except RecursionError:
    return False


def _allows(node: ast.AST, bound: frozenset[str]) -> bool:
  """Returns whether a node belongs to the language.

  Args:
    node: an expression or a part of one.
    bound: the variables bound by enclosing comprehensions and lambdas.
  """
  match node:
    case ast.Name(id=name):
      return name in bound or name in _NAMES
    case ast.Attribute(value=ast.Name(id=name), attr=attribute) if (
      name in _OF_MODULE and name not in bound
    ):
      return attribute in _OF_MODULE[name]
    case ast.Attribute(value=value, attr=attribute):
      return not attribute.startswith(_PRIVATE) and _allows(value, bound)
    case ast.Lambda(args=parameters, body=body):
      defaults = (*parameters.defaults, *filter(None, parameters.kw_defaults))
      names = {
        part.arg
        for part in ast.iter_child_nodes(parameters)
        if isinstance(part, ast.arg)
      }
      return _allow(defaults, bound) and _allows(body, bound | names)
  if isinstance(node, _COMPREHENSION):
    return _allows_comprehension(node, bound)
  return isinstance(node, _COMPOUND) and _allow(
    (
      part
      for part in ast.iter_child_nodes(node)
      if isinstance(part, ast.expr | ast.keyword)
    ),
    bound,
  )


def _allow(nodes: Iterable[ast.AST], bound: frozenset[str]) -> bool:
  return all(_allows(node, bound) for node in nodes)


def _allows_comprehension(
  node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
  bound: frozenset[str],
) -> bool:
  for generator in node.generators:
    if not _allows(generator.iter, bound):
      return False
    for part in ast.walk(generator.target):
      match part:
        case ast.Name(id=name):
          bound |= {name}
        case ast.Attribute() | ast.Subscript():
          return False
    if not _allow(generator.ifs, bound):
      return False
  results = (
    (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
  )
  return _allow(results, bound)


def _argument_text(text: str) -> str | None:
  """Converts `[(1, [2]), {'x': 3}]` to `1, [2], x=3`.

  Args:
    text: the canonical text of the value that `_ARGUMENTS` returned.

  Returns:
    The argument text. None if it would not consist of literal arguments.
  """

  def source(node: ast.expr) -> str:
    # Canonical text is one line of ASCII, so columns are indices.
    return text[node.col_offset : node.end_col_offset]

  try:
    tree = literals.guarded_parse(text, "eval")
  except literals.ParseError:
    return None
  match tree:
    case ast.Expression(
      ast.List([ast.Tuple(elts=values), ast.Dict(keys=names, values=named)])
    ):
      parts = [source(value) for value in values]
      for name, value in zip(names, named, strict=True):
        assert isinstance(name, ast.Constant)
        parts.append(f"{name.value}={source(value)}")
      written = ", ".join(parts)
      return written if literals.are_literal_arguments(written) else None
  return None
