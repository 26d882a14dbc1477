"""Turns a zygote's reply into a `Result`, and several runs into one verdict.

This module runs in the trusted process and treats a program's report as
untrusted data. The zygote's own observations (clocks, exit status) take
precedence over the report. `program.py` documents the report's format; any
other format is an error. So only ASCII values and errors no longer than a name
leave this module.
"""

import dataclasses
import itertools
from collections.abc import Sequence

from azr_jax.executor.child import frames
from azr_jax.executor.job import JOB_TIMEOUT, KILLED, Job, Result

MAX_OUTPUT_CHARS = 64 * 1024
MAX_ERROR_CHARS = 160  # An error is a type's name, or `import` and a rule.
# Limit on the total size of a job's values; `program.py` has the same one.
MAX_REPORT_CHARS = 1 << 20
TOO_LARGE = "OutputTooLarge"
# A child reports this if its program might tell its calls apart. The calls
# then run in separate processes.
SPLIT = b"split\n"
# Errors by the limit at which a child was killed.
_TIMEOUTS = {
  frames.CALL_TIMED_OUT: "TimeoutError",
  frames.RUN_TIMED_OUT: JOB_TIMEOUT,
  frames.SLEPT: "Asleep",
}
_MALFORMED: tuple[str, str, list[str]] = ("error", "MalformedReport", [])
RAISED = "!"  # Starts an exception's line; no value starts with it.


def failure(job: Job, status: str, error: str, is_lost: bool = False) -> Result:
  """Returns a result without values."""
  outputs = (None,) * len(job.inputs)
  return Result(job.id, status, outputs, error, 0.0, is_lost=is_lost)


def read_reply(
  job: Job, seconds: float, cpu_s: float, ending: int, payload: bytes
) -> Result:
  """Returns the result of one run.

  A program that ran out of time keeps the values of its earlier calls. A
  report that no honest child writes is an error.

  Args:
    job: the job that was run.
    seconds: the run's wall-clock time.
    cpu_s: CPU seconds of the run.
    ending: how the child ended, one of the constants in `frames`.
    payload: the report, or the signal's number if `ending` is SIGNALLED.
  """
  status, error, lines = _read(job, ending, payload)
  if error is not None and not 0 < len(error) <= MAX_ERROR_CHARS:
    status, error, lines = _MALFORMED
  outputs = [None if line.startswith(RAISED) else line for line in lines]
  outputs += [None] * (len(job.inputs) - len(outputs))
  is_lost = ending == frames.SIGNALLED and error == KILLED
  finished = len(lines)
  return Result(
    job.id, status, tuple(outputs), error, seconds, finished, cpu_s, is_lost
  )


def asks_for_split(ending: int, payload: bytes) -> bool:
  """Returns whether a child requests a separate process for each call."""
  return ending == frames.REPORTED and payload == SPLIT


def ends_run(part: Result) -> bool:
  """Returns whether a run stops after this call."""
  return part.is_lost or part.status in ("timeout", "blocked")


def of_parts(job: Job, parts: Sequence[Result]) -> Result:
  """Merges the results of a run with one process per call.

  Args:
    job: the job that was run.
    parts: the result of each call, in order. There are fewer results than
      inputs if the last one ended the run; the earlier values are kept.
  """
  errors = [part for part in parts if part.error is not None]
  decisive = parts[-1] if ends_run(parts[-1]) else next(iter(errors), parts[-1])
  error = decisive.error
  outputs = [part.outputs[0] for part in parts]
  sizes = list(itertools.accumulate(len(text or "") for text in outputs))
  if sizes[-1] > MAX_REPORT_CHARS:
    kept = zip(outputs, sizes, strict=True)
    outputs = [text if n <= MAX_REPORT_CHARS else None for text, n in kept]
    if not ends_run(decisive):
      decisive, error = parts[0], TOO_LARGE
  outputs += [None] * (len(job.inputs) - len(outputs))
  status = "error" if error == TOO_LARGE else decisive.status
  return Result(
    job.id,
    status,
    (None,) * len(outputs) if status == "blocked" else tuple(outputs),
    error,
    sum(part.seconds for part in parts),
    len(parts) - ends_run(parts[-1]),
    sum(part.cpu_s for part in parts),
    decisive.is_lost,
  )


def _read(
  job: Job, ending: int, payload: bytes
) -> tuple[str, str | None, list[str]]:
  """Returns the status, the error, and the lines of the finished calls."""
  if ending == frames.SIGNALLED:
    return "error", f"Signal{payload.decode('ascii')}", []
  if ending == frames.NO_REPORT:
    return "error", "NoReport", []
  calls = len(job.inputs)
  # A child can write half a million lines. Split only as many as it takes to
  # see that there are too many.
  *lines, rest = payload.decode("ascii", "replace").split("\n", calls + 2)
  if not all(_is_plain(line, MAX_OUTPUT_CHARS) for line in lines):
    return _MALFORMED
  if ending in _TIMEOUTS:
    return "timeout", _TIMEOUTS[ending], lines[:calls]
  # `rest` is empty unless the program exited in the middle of a line.
  if rest or len(lines) > calls + 1:
    return _MALFORMED
  end = lines.pop() if lines else ""
  if end == "done" and len(lines) == calls:
    errors = [line[1:] for line in lines if line.startswith(RAISED)]
    # The size limit says more about the job than one call's exception.
    error = TOO_LARGE if TOO_LARGE in errors else errors[0] if errors else None
    return "error" if errors else "ok", error, lines
  status, _, rule = end.partition(" ")
  if not lines and status == "blocked" and 0 < len(rule) <= MAX_ERROR_CHARS:
    return "blocked", rule, []
  if not lines and end.startswith(RAISED):
    return "error", end[1:], [end] * calls
  return "error", "NoReport", []


def _is_plain(text: str, max_chars: int) -> bool:
  return 0 < len(text) <= max_chars and text.isascii() and text.isprintable()


def early_verdict(results: Sequence[Result]) -> Result | None:
  """Returns the verdict of several runs; None if values must be compared.

  If any run timed out, was blocked or lost its worker, that is the verdict,
  because such a run says nothing about agreement.
  """
  first = results[0]
  if len(results) == 1:
    return first
  for result in results:
    if result.is_lost or result.status in ("timeout", "blocked"):
      # Values of earlier calls are dropped, because no other run confirms them.
      outputs = (None,) * len(result.outputs)
      return dataclasses.replace(result, outputs=outputs, finished=0)
  if any((r.status, r.error) != (first.status, first.error) for r in results):
    return _without_values(first, "nondeterministic", "RunsDiffer")
  return None


def compared_verdict(
  first: Result, are_values: bool, are_equal: bool
) -> Result:
  """Returns the verdict of runs that `early_verdict` did not decide.

  Outputs that agree must also be values, because the caller may keep them as
  reference answers.

  Args:
    first: the first run's result.
    are_values: whether all of the first run's outputs are values.
    are_equal: whether the other runs have equal outputs.
  """
  if first.status == "ok" and not are_values:
    return _without_values(first, "error", "MalformedReport")
  if not are_equal:
    return _without_values(first, "nondeterministic", "RunsDiffer")
  return first


def _without_values(result: Result, status: str, error: str) -> Result:
  outputs = (None,) * len(result.outputs)
  return dataclasses.replace(
    result, status=status, outputs=outputs, error=error
  )
