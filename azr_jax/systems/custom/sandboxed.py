"""Rewards that run in the executor's sandbox (`custom.where=executor`).

The reward's file runs as a sandboxed program. It may import whatever the
sandbox allows: the standard library and `executor.libraries`. Arguments are
passed as literals, and the return value comes back as JSON.
"""

import ast
import dataclasses
import json
import pathlib
from concurrent.futures import Future
from typing import Any

from azr_jax.config import user_files
from azr_jax.config.settings import Invalid
from azr_jax.executor import Executor, Job, Result, futures, literals
from azr_jax.functions import pool, worker
from azr_jax.functions.pool import CallResult
from azr_jax.functions.spec import Signature

_ENTRY = "azr_jax_reward"
# Appended to the user's file.
_MAIN = """

def {entry}(arguments):
  import json

  def plain(value):
    if hasattr(value, "tolist"):
      return value.tolist()
    return float(value) if hasattr(value, "__float__") else str(value)

  return json.dumps({name}(**arguments), default=plain)
"""


@dataclasses.dataclass(frozen=True)
class RewardProgram:
  """A reward as a sandboxed program.

  Attributes:
    code: the user's file, plus an entry function that calls the reward.
    taken: the reward's signature.
  """

  code: str
  taken: Signature

  def submit(
    self, executor: Executor, arguments: dict[str, Any]
  ) -> "Future[CallResult]":
    """Submits a call of the reward to an executor."""
    try:
      text = repr(worker.plain(arguments))
    except (TypeError, ValueError, OverflowError) as error:
      message = f"a column cannot go into the sandbox: {error}"
      return futures.done(CallResult(None, pool.WRONG_TYPE, message))
    job = Job("reward", self.code, (text,), _ENTRY)
    return futures.then(executor.submit(job), answer)


def read(spec: str) -> RewardProgram:
  """Reads the file of a reward.

  Raises:
    Invalid: the spec is not FILE.py:NAME, or the file lacks the function.
  """
  problem = f": {spec!r} with where='executor': expected "
  where, _, name = spec.rpartition(":")
  path = pathlib.Path(where).expanduser()
  if not where.endswith(".py") or not path.is_file():
    raise Invalid("reward", f"{problem}FILE.py:NAME of an existing file")
  text = path.read_text(user_files.ENCODING)
  try:
    nodes = ast.parse(text).body
  except SyntaxError as error:
    raise Invalid(
      "reward", f"{problem}Python ({error.msg}, line {error.lineno})"
    ) from None
  functions = {n.name: n for n in nodes if isinstance(n, ast.FunctionDef)}
  if name not in functions:
    raise Invalid(
      "reward",
      f"{problem}one of the functions {sorted(functions)}; coroutines are not "
      "supported, because the sandbox has no network",
    )
  code = text + _MAIN.format(entry=_ENTRY, name=name)
  return RewardProgram(code, _signature(functions[name].args))


def _signature(arguments: ast.arguments) -> Signature:
  """Returns a function's signature without running its file."""
  names = [arg.arg for arg in (*arguments.args, *arguments.kwonlyargs)]
  first_optional = len(arguments.args) - len(arguments.defaults)
  optional = {arg.arg for arg in arguments.args[first_optional:]}
  pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
  optional |= {arg.arg for arg, default in pairs if default is not None}
  return Signature(
    tuple(names),
    tuple(name for name in names if name not in optional),
    arguments.kwarg is not None,
    False,
  )


def answer(result: Result) -> CallResult:
  """Converts an executor result to the result of the call."""
  text = result.outputs[0] if result.outputs else None
  if result.status == "ok" and text is not None:
    try:
      value = json.loads(_string(text))
    except (ValueError, RecursionError):
      message = f"returned {text[:60]}"
      return CallResult(None, pool.WRONG_TYPE, message, result.seconds)
    return CallResult(value, seconds=result.seconds)
  kind = pool.RAISED
  if result.status == "timeout":
    kind = pool.TIMEOUT
  elif result.is_lost:
    kind = pool.DIED
  message = f"{result.error or result.status} in the sandbox"
  if result.error == "ModuleNotFoundError":
    message += ", which offers part of the standard library and "
    message += "executor.libraries"
  return CallResult(None, kind, message, result.seconds)


def _string(text: str) -> str:
  """Returns the string that a program returned as a literal.

  Raises:
    ValueError: the literal is not a string.
  """
  match literals.typed_key(text):
    case ("str", str(string)):
      return string
  raise ValueError("expected a string")
