"""Runs tested programs as the published graders of benchmarks do.

| the executor | in the harness |
| --- | --- |
| writes no integer of more than 4,300 digits | 50,000 digits |
| sends no value of more than 64 KiB | sends its digest (`digests.py`) |
| starts no thread | `Thread.start` runs it to its end |

A digest is compared exactly, so a long value gets no tolerance.
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

# LiveCodeBench's own runner has this limit.
MAX_INT_DIGITS = 50_000
_DEFAULT_INT_DIGITS = 4300  # The trusted process reads no more digits.
# The executor sends 1 MiB of values per job.
_CALLS_AT_ONCE = (1 << 20) // canonical.MAX_CHARS
_MARK = "digest of a long value"


def source(module: ModuleType, indent: int = 2) -> str:
  """Returns the source of a module, as the body of a function."""
  assert module.__file__ is not None
  text = pathlib.Path(module.__file__).read_text(encoding="utf-8")
  return textwrap.indent(text, " " * indent)


# `begin` applies the table above. `own_names` makes a module with its own
# builtins for the tested program, so that its names cannot shadow those of the
# harness, whose functions are local.
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
# `shown` makes what a call returns. Here a longer integer has no text.
_WHOLE = f"""
  def shown(value):
    sys.set_int_max_str_digits({_DEFAULT_INT_DIGITS})
    return value
"""
# A value that has no text for another reason than its size stays without one. A
# long one that has no digest either is too large.
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
# A program can lie about the truth of a value, as about any value.
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
  """A value known only by its digest. It equals values with that digest."""

  def __init__(self, digest: str):
    """Keeps the digest, from `digests.of_value`."""
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
  """Starts calls of a program's function; `value` reads the outputs.

  If all values together are too long, the missing calls are repeated, a few at
  a time. A call whose own value is too long is repeated for its digest.

  Args:
    executor: makes the calls.
    name: the id of the job.
    code: the program to test.
    function: the name of its function.
    inputs: argument text of each call.
    truthiness_only: whether to return None, True and False as they are, and the
      truth of any other object as 0 or 1.
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
  """Merges the results of repeated calls into a result.

  Args:
    first: the original result, whose own failure is dropped.
    parts: indices of the calls that each repetition made.
    results: results of the repetitions. The first one that is not `ok` sets
      status and error.
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
  """Returns the value of an output of `submit`.

  Raises:
    ParseError: the output is not a value.
  """
  key = literals.typed_key(output)
  match key:
    case ("tuple", (("str", mark), ("str", str(digest)))) if mark == _MARK:
      return LongValue(digest)
  return values.plain_value(key)
