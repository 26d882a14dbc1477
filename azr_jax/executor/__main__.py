"""Runs jobs from standard input: JSON lines in, JSON lines out, in order.

  python -m azr_jax.executor < jobs.jsonl > results.jsonl
  python -m azr_jax.executor --doctor

A job is {"id", "code", "inputs", "entry", "runs"}; the last two may be left
out. A line that is no job gives an error result, so every line has one.
"""

import argparse
import concurrent.futures
import dataclasses
import io
import json
import os
import sys
import time

from azr_jax.executor import Executor, Job, Result

MAX_RUNS = 2


def read_job(line: str) -> Job | Result:
  """Reads one line; a `Result` of status error if it is no job."""
  name = ""
  try:
    record = json.loads(line)
    name = str(record["id"])
    job = Job(
      id=name,
      code=record["code"],
      inputs=_as_tuple(record["inputs"]),
      entry=record.get("entry", "f"),
      runs=record.get("runs", 1),
      forbidden=_as_tuple(record.get("forbidden", [])),
    )
    job.check()
    if job.runs <= MAX_RUNS:
      return job
  except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
    pass
  return Result(name, "error", (), "the line is not a job", 0.0)


def _as_tuple(value: object) -> tuple:
  if not isinstance(value, list):
    raise TypeError("expected a list")
  return tuple(value)


def main() -> None:
  """Reads the flags and the jobs."""
  parser = argparse.ArgumentParser(prog="azr_jax.executor")
  parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
  parser.add_argument("--timeout_s", type=float, default=2.0)
  parser.add_argument("--memory_mb", type=int, default=512)
  parser.add_argument("--unsafe", action="store_true")
  parser.add_argument("--doctor", action="store_true")
  flags = parser.parse_args()
  with Executor(
    flags.workers, flags.timeout_s, flags.memory_mb, flags.unsafe
  ) as executor:
    if flags.doctor:
      print(json.dumps(executor.layers(), indent=2))
      return
    lines = io.TextIOWrapper(sys.stdin.buffer, "utf-8", errors="replace")
    start = time.monotonic()
    pending: list[concurrent.futures.Future[Result] | Result] = []
    for line in lines:
      if line.strip():
        job = read_job(line)
        pending.append(job if isinstance(job, Result) else executor.submit(job))
    for entry in pending:
      result = entry if isinstance(entry, Result) else entry.result()
      print(json.dumps(dataclasses.asdict(result)))
    seconds = time.monotonic() - start
    print(
      f"{len(pending)} jobs in {seconds:.1f} s, "
      f"{len(pending) / max(seconds, 1e-9):.0f} a second",
      file=sys.stderr,
    )


if __name__ == "__main__":
  main()
