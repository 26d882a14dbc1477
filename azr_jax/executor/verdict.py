"""From a zygote's reply to a `Result`, and from several runs to one.

Runs in the trusted process. What a program reported is data to be checked:
the zygote's own view (clock, exit status) came first and is already in the
reply. A report is lines (`program.py` writes them): a status, an error's name
or nothing, and per input a value's text or nothing. What no honest child writes
never gets past this module: nothing outside ASCII, no error longer than a name.
"""

import dataclasses
from collections.abc import Sequence

from azr_jax.executor import frames, literals
from azr_jax.executor.job import Job, Result

MAX_OUTPUT_CHARS = 64 * 1024
MAX_ERROR_CHARS = 160  # A type's name, or a rule after `import`.


def failure(job: Job, status: str, error: str, seconds: float = 0.0) -> Result:
  """A result without values."""
  return Result(job.id, status, (None,) * len(job.inputs), error, seconds)


def read_reply(job: Job, seconds: float, seen: int, payload: bytes) -> Result:
  """Decides one run from what its zygote saw; see `frames.take_replies`.

  A report that no honest child writes is an error.
  """
  text = payload.decode("ascii", "replace")
  if seen == frames.TIMED_OUT:
    return failure(job, "timeout", "TimeoutError", seconds)
  if seen != frames.REPORTED:
    error = f"Signal{text}" if seen == frames.SIGNALLED else "NoReport"
    return failure(job, "error", error, seconds)
  status, _, rest = text.partition("\n")
  error, *lines = rest.split("\n")
  outputs = tuple(line or None for line in lines)
  plain = _is_plain(error, MAX_ERROR_CHARS) and all(
    _is_plain(line, MAX_OUTPUT_CHARS) for line in lines
  )
  if plain and len(outputs) == len(job.inputs):
    if status == "ok" and not error and None not in outputs:
      return Result(job.id, status, outputs, None, seconds)
    if status == "blocked" and error:
      return failure(job, status, error, seconds)
    if status == "error" and error:
      return Result(job.id, status, outputs, error, seconds)
  return failure(job, "error", "MalformedReport", seconds)


def _is_plain(text: str, most: int) -> bool:
  return len(text) <= most and text.isascii() and text.isprintable()


def agree(results: Sequence[Result]) -> Result:
  """One verdict from independent runs, whose typed values must agree.

  A timeout, a refusal or a lost worker in any run is the job's verdict, for
  it says nothing about agreement. What agrees must also be values: this is
  where a text becomes a gold.
  """
  first = results[0]
  if len(results) == 1:
    return first
  for result in results:
    lost = result.error == "WorkerDied"
    if lost or result.status in ("timeout", "blocked"):
      return result
  if first.status == "ok" and not all(map(_is_value, first.outputs)):
    return dataclasses.replace(
      first,
      status="error",
      outputs=(None,) * len(first.outputs),
      error="MalformedReport",
    )
  for other in results[1:]:
    if not _same(first, other):
      outputs = (None,) * len(first.outputs)
      return dataclasses.replace(
        first, status="nondeterministic", outputs=outputs, error="RunsDiffer"
      )
  return first


def _same(first: Result, second: Result) -> bool:
  if (first.status, first.error) != (second.status, second.error):
    return False
  pairs = zip(first.outputs, second.outputs, strict=True)
  return all(one == other or _same_value(one, other) for one, other in pairs)


def _is_value(text: str | None) -> bool:
  try:
    literals.typed_key(text or "")
  except literals.ParseError:
    return False
  return True


def _same_value(one: str | None, other: str | None) -> bool:
  if one is None or other is None:
    return False
  try:
    return literals.typed_key(one) == literals.typed_key(other)
  except literals.ParseError:
    return False
