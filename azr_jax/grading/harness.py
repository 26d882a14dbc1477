"""Runs tested programs under the rules of the benchmarks' published graders.

| plain executor | harness |
| --- | --- |
| prints integers of up to 4,300 digits | up to 50,000 digits |
| sends values of up to 64 KiB | sends digests of longer ones (`digests.py`) |
| does not start threads | `Thread.start` runs the thread to completion |

Digests are compared exactly, so a tolerance does not apply to a long value.
"""

import dataclasses
import pathlib
import textwrap
from collections.abc import Sequence
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from azr_jax.executor import Executor, Job, Result, futures
from azr_jax.executor.child import canonical
from azr_jax.executor.child.canonical import Unserializable
from azr_jax.executor.pool.verdict import TOO_LARGE
from azr_jax.grading import digests, literals, values

# The limit of LiveCodeBench's own runner.
MAX_INT_DIGITS = 50_000
_DEFAULT_INT_DIGITS = 4300  # The limit of the trusted process that reads them.
# The executor sends up to 1 MiB of values per job.
_CALLS_AT_ONCE = (1 << 20) // canonical.MAX_CHARS
_MARK = "digest of a long value"


def source(module: ModuleType, indent: int = 2) -> str:
  """Returns the source of a module, indented as the body of a function."""
  assert module.__file__ is not None
  text = pathlib.Path(module.__file__).read_text(encoding="utf-8")
  return textwrap.indent(text, " " * indent)


# `begin` applies the table above. `own_names` gives the tested program a module
# with its own builtins, so it cannot shadow names of the harness, whose
# functions are local.
BEGIN = f"""
  import sys, threading
  def begin():
    sys.set_int_max_str_digits({MAX_INT_DIGITS})
    threading.Thread.start = lambda self: self.run()
    threading.Thread.join = lambda self, timeout=None: None
    threading.stack_size = lambda size=0: 0
  def own_names():
    module = sys.modules[__name__] = type(sys)(__name__)
    module.__builtins__ = dict(__builtins__)
    return vars(module)
"""
# `shown` turns the value of a call into the job's output. In this variant an
# integer over the default digit limit cannot be printed.
_WHOLE = f"""
  def shown(value):
    sys.set_int_max_str_digits({_DEFAULT_INT_DIGITS})
    return value
"""
# Only values that are too long get a digest; values that cannot be serialized
# for another reason still fail. A long value without a digest is too large.
_DIGEST = f"""
{source(canonical)}
{source(digests)}
  class {TOO_LARGE}(Exception):
    pass
  def shown(value):
    sys.set_int_max_str_digits({_DEFAULT_INT_DIGITS})
    try:
      canonical(value)
      return value
    except Unserializable as error:
      if str(error) != "size":
        return value
    except ValueError:
      pass
    try:
      return {_MARK!r}, of_value(value)
    except TypeError:
      raise {TOO_LARGE} from None
    except ValueError:
      return value
"""
# A program can lie about the truth of a value, just as about the value itself.
_TRUTH = """
  def shown(value, truth=bool):
    if value is None or value is True or value is False:
      return value
    return 1 if truth(value) else 0
"""
_ENTRY = "call_in_harness"
_CALLING = f"""
def {_ENTRY}(run):
{BEGIN}
{{shown}}
  def call(*arguments, **named):
    begin()
    names = own_names()
    run({{code}}, names)
    return shown(names[{{function}}](*arguments, **named))
  return call
{_ENTRY} = {_ENTRY}(exec)
"""


class LongValue:
  """A value known only by its digest. It equals any value with that digest."""

  def __init__(self, digest: str):
    """Stores a digest from `digests.of_value`."""
    self._digest = digest

  def __eq__(self, other: object) -> bool:
    if isinstance(other, LongValue):
      return self._digest == other._digest
    try:
      return self._digest == digests.of_value(other)
    except (TypeError, ValueError):
      return False


def submit(
  executor: Executor,
  name: str,
  code: str,
  function: str,
  inputs: Sequence[str],
  truthiness_only: bool = False,
) -> "Future[Result]":
  """Starts calling a program's function. Decode the outputs with `value`.

  If all values together exceed the output limit, the missing calls are retried
  in small batches. If a single value is too long, its call is retried to return
  a digest.

  Args:
    executor: runs the calls.
    name: the id of the job.
    code: the program to test.
    function: the name of the function to call.
    inputs: the argument text of each call.
    truthiness_only: return None, True and False unchanged, and the truth of any
      other object as 0 or 1.
  """

  def run(shown: str, inputs: Sequence[str]) -> "Future[Result]":
    program = _CALLING.format(
      shown=shown, code=ascii(code), function=ascii(function)
    )
    job = Job(name, program, tuple(inputs), _ENTRY, per_call=True)
    return executor.submit(job)

  def in_parts(result: Result) -> "Result | Future[Result]":
    if result.error != TOO_LARGE:
      return as_digests(inputs, result)
    missing = _missing(result)
    starts = range(0, len(missing), _CALLS_AT_ONCE)
    parts = [missing[start : start + _CALLS_AT_ONCE] for start in starts]
    runs = [whole([inputs[i] for i in part]) for part in parts]
    return futures.then(
      futures.gather(runs), lambda results: _merged(result, parts, results)
    )

  def whole(inputs: Sequence[str]) -> "Future[Result]":
    return futures.then(run(_WHOLE, inputs), lambda r: as_digests(inputs, r))

  def as_digests(
    inputs: Sequence[str], result: Result
  ) -> "Result | Future[Result]":
    missing = _missing(result)
    if result.error != Unserializable.__name__ or not missing:
      return result
    return futures.then(
      run(_DIGEST, [inputs[i] for i in missing]),
      lambda digested: _merged(result, [missing], [digested]),
    )

  if truthiness_only:
    return run(_TRUTH, inputs)
  return futures.then(run(_WHOLE, inputs), in_parts)


def _missing(result: Result) -> list[int]:
  return [i for i, output in enumerate(result.outputs) if output is None]


def _merged(
  first: Result, parts: Sequence[Sequence[int]], results: Sequence[Result]
) -> Result:
  """Merges the results of retried calls into the first result.

  Args:
    first: the original result. Its failure is dropped.
    parts: the indices of the calls in each retry.
    results: the results of the retries. The first one that is not `ok` sets
      the status and the error.
  """
  outputs = list(first.outputs)
  for part, result in zip(parts, results, strict=True):
    for index, output in zip(part, result.outputs, strict=True):
      outputs[index] = output
  status, error, finished = "ok", None, len(outputs)
  for part, result in zip(parts, results, strict=True):
    if result.status != "ok":
      status, error = result.status, result.error
      finished = [*part, len(outputs)][result.finished]
      break
  return dataclasses.replace(
    first,
    outputs=tuple(outputs),
    status=status,
    error=error,
    finished=finished,
  )


def value(output: str) -> Any:
  """Decodes an output of `submit`.

  Raises:
    ParseError: the output is not a value.
  """
  key = literals.typed_key(output)
  match key:
    case ("tuple", (("str", mark), ("str", str(digest)))) if mark == _MARK:
      return LongValue(digest)
  return values.plain_value(key)
