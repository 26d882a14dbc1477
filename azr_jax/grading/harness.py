"""Runs programs that are tested as the published graders of benchmarks do.

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

from azr_jax.executor import Executor, Job, Result, canonical, futures
from azr_jax.executor.verdict import TOO_LARGE
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


# `begin` changes what the table says. `own_names` makes a module for the tested
# program, with builtins of its own, so that its names hide none of a harness,
# whose functions are local to another one.
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
# A value that has no text for another reason than its size is returned, so that
# the executor says why.
_SHORTEN = f"""
{source(canonical)}
{source(digests)}
  def shortened(value):
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
    except (TypeError, ValueError):
      return value
"""
# A program may lie about the truth of its value as about any value.
_TRUTH = """
  def shortened(value, truth=bool):
    if value is None or value is True or value is False:
      return value
    return 1 if truth(value) else 0
"""
_ENTRY = "call_in_harness"
_CALLING = f"""
def {_ENTRY}(run):
{BEGIN}
{{shorten}}
  def call(*arguments, **named):
    begin()
    names = own_names()
    run({{code}}, names)
    return shortened(names[{{function}}](*arguments, **named))
  return call
{_ENTRY} = {_ENTRY}(exec)
"""


class LongValue:
  """A value of which only the digest is known. It equals its equals."""

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


def calling(
  code: str, function: str, truthiness_only: bool = False
) -> tuple[str, str]:
  """Returns a program that calls a function of another one, and its entry.

  Args:
    code: the program to test.
    function: the name of its function.
    truthiness_only: whether to return None, True and False as they are, and the
      truth of any other object as 0 or 1.
  """
  program = _CALLING.format(
    shorten=_TRUTH if truthiness_only else _SHORTEN,
    code=ascii(code),
    function=ascii(function),
  )
  return program, _ENTRY


def submit(executor: Executor, job: Job) -> "Future[Result]":
  """Runs a job; its values together may be longer than the executor sends.

  Calls whose values were not sent are made again, a few at a time.
  """

  def again(result: Result) -> "Result | Future[Result]":
    if result.error != TOO_LARGE:
      return result
    missing = [i for i, text in enumerate(result.outputs) if text is None]
    parts = [
      missing[start : start + _CALLS_AT_ONCE]
      for start in range(0, len(missing), _CALLS_AT_ONCE)
    ]
    jobs = [
      dataclasses.replace(job, inputs=tuple(job.inputs[i] for i in part))
      for part in parts
    ]
    return futures.then(
      futures.gather([executor.submit(job) for job in jobs]),
      lambda results: _merged(result, parts, results),
    )

  return futures.then(executor.submit(job), again)


def _merged(
  first: Result, parts: Sequence[Sequence[int]], results: Sequence[Result]
) -> Result:
  """Returns a result with what other results say of some of its calls.

  Args:
    first: the result, whose own failure does not count.
    parts: the calls of each of the others.
    results: the others; the first one that is not `ok` is the failure.
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
  """Returns the value of an output of `calling`'s program.

  Raises:
    ParseError: the output is no value.
  """
  key = literals.typed_key(output)
  match key:
    case ("tuple", (("str", mark), ("str", str(digest)))) if mark == _MARK:
      return LongValue(digest)
  return values.plain_value(key)
