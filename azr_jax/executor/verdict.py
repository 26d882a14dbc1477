"""From a zygote's reply to a `Result`, and from several runs to one.

Runs in the trusted process. What a program reported is data to be checked:
the zygote's own view (clock, exit status) came first and is already in the
reply. Text that no honest child writes never gets past this module: no line
breaks, nothing outside ASCII, no error longer than a name.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from azr_jax.executor import literals
from azr_jax.executor.job import Job, Result

MAX_OUTPUT_CHARS = 64 * 1024
MAX_ERROR_CHARS = 160  # A type's name, or a rule after `import`.


def failure(job: Job, status: str, error: str, seconds: float = 0.0) -> Result:
  """A result without values."""
  return Result(job.id, status, (None,) * len(job.inputs), error, seconds)


def read_reply(job: Job, reply: dict[str, Any]) -> Result:
  """Checks a reply; a malformed report is an error."""
  seconds = float(reply["seconds"])
  if "report" not in reply:
    return failure(job, reply["status"], reply["error"], seconds)
  forged = failure(job, "error", "MalformedReport", seconds)
  try:
    report = json.loads(reply["report"])
    status, error = report["status"], report["error"]
    outputs = tuple(report["outputs"])
  except (ValueError, KeyError, TypeError, RecursionError):
    return forged
  if len(outputs) != len(job.inputs) or not all(
    output is None or _is_plain(output, MAX_OUTPUT_CHARS) for output in outputs
  ):
    return forged
  if status == "ok" and error is None and None not in outputs:
    return Result(job.id, status, outputs, None, seconds)
  if not _is_plain(error, MAX_ERROR_CHARS):
    return forged
  if status == "blocked":
    return failure(job, status, error, seconds)
  if status == "error":
    return Result(job.id, status, outputs, error, seconds)
  return forged


def _is_plain(text: object, most: int) -> bool:
  if not isinstance(text, str) or len(text) > most:
    return False
  return text.isascii() and text.isprintable()


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
