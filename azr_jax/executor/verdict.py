"""From a zygote's reply to a `Result`, and from several runs to one.

Runs in the trusted process. What a program reported is data to be checked:
the zygote's own view (clock, exit status) came first and is already in the
reply.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from azr_jax.executor import literals
from azr_jax.executor.job import Job, Result


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
  if status == "blocked" and isinstance(error, str):
    return failure(job, status, error, seconds)
  texts = all(output is None or isinstance(output, str) for output in outputs)
  if not texts or len(outputs) != len(job.inputs):
    return forged
  if status == "ok" and error is None and None not in outputs:
    return Result(job.id, status, outputs, None, seconds)
  if status == "error" and isinstance(error, str):
    return Result(job.id, status, outputs, error, seconds)
  return forged


def agree(results: Sequence[Result]) -> Result:
  """One verdict from independent runs, whose typed values must agree.

  A timeout or a refusal of any run is the job's, for it says nothing about
  agreement.
  """
  first = results[0]
  for result in results:
    if result.status in ("timeout", "blocked"):
      return result
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


def _same_value(one: str | None, other: str | None) -> bool:
  if one is None or other is None:
    return False
  try:
    return literals.typed_key(one) == literals.typed_key(other)
  except literals.ParseError:
    return False
