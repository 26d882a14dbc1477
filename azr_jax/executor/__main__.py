"""Runs jobs from standard input: JSON lines in, JSON lines out, same order.

  python -m azr_jax.executor < jobs.jsonl > results.jsonl
  python -m azr_jax.executor --doctor

| field of a job | meaning |
| --- | --- |
| `id` | a string, repeated in the result |
| `code` | Python source that defines `entry` |
| `inputs` | strings, each one call's arguments: `"1, [2]"`, `"x=3"`, `""` |
| `entry` | the function to call (default `"f"`) |
| `runs` | 2 or 3 compares the values of as many processes (default 1) |
| `forbidden` | modules that the program may not use (default none) |
| `validation` | true to run with a quarter of the limits (default false) |
| `per_call` | true for no limit on all calls together (default false) |
| `libraries` | beyond the standard library: `["math_verify"]` (default none) |

A result has the job's `id`; `status` (ok, error, timeout, blocked or
nondeterministic); `outputs`, the text of each call's value, or null; `error`,
the name of the error, or null; `seconds`, wall-clock time; and `cpu_s`, CPU
seconds. Every non-empty line gets a result; if the line is not a job, `error`
says why. Each result is written as soon as all earlier results are known.
"""

import argparse
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator

from azr_jax.cli import errors
from azr_jax.executor import Executor, Job, Result, hash_seeds, streaming
from azr_jax.executor.pool.pending import ResultFuture
from azr_jax.executor.settings import BACKENDS

MAX_RUNS = len(hash_seeds.HASH_SEEDS)
REPORTED = ("id", "status", "outputs", "error", "seconds", "cpu_s")
_FIELDS = {field.name for field in dataclasses.fields(Job)}


def read_job(line: str) -> Job:
  """Parses a line of input.

  Raises:
    ValueError, TypeError: the line is not a job; the message says why.
  """
  record = json.loads(line)
  if not isinstance(record, dict):
    raise TypeError("expected a JSON object")
  missing = {"id", "code", "inputs"} - record.keys()
  unknown = record.keys() - _FIELDS
  if missing or unknown:
    raise ValueError(
      f"missing {sorted(missing)}, unknown {sorted(unknown)}; expected id, "
      "code, inputs and perhaps entry, runs, forbidden, libraries, validation, "
      "per_call"
    )
  for name in ("inputs", "forbidden", "libraries"):
    if not isinstance(record.get(name, []), list):
      raise TypeError(f"{name} is {record[name]!r:.80}; expected a list")
    record[name] = tuple(record.get(name, []))
  job = Job(**record)
  job.check()
  if job.runs > MAX_RUNS:
    raise ValueError(f"runs is {job.runs}; expected 1 to {MAX_RUNS}")
  return job


def results(executor: Executor, lines: Iterable[str]) -> Iterator[Result]:
  """Yields a result for each non-empty line, in order."""
  return streaming.in_order(
    _submit(executor, number, line)
    for number, line in enumerate(lines, start=1)
    if line.strip()
  )


def _submit(executor: Executor, number: int, line: str) -> ResultFuture:
  try:
    return executor.submit(read_job(line))
  except (ValueError, TypeError, RecursionError) as error:
    done = ResultFuture()
    reason = f"line {number} is no job: {error}"
    done.set_result(Result(_id(line), "error", (), reason, 0.0))
    return done


def _id(line: str) -> str:
  """Returns the id of a line that is not a job, or an empty string."""
  try:
    record = json.loads(line)
  except (ValueError, RecursionError):
    return ""
  job_id = record.get("id", "") if isinstance(record, dict) else ""
  return job_id if isinstance(job_id, str) else ""


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the pool's flags, which `make_executor` reads."""
  parser.add_argument(
    "--workers",
    type=int,
    default=os.cpu_count() or 1,
    help="pairs of zygotes; one per core by default (%(default)s)",
  )
  parser.add_argument(
    "--timeout_s",
    type=float,
    default=2.0,
    help="CPU seconds per call of a program (%(default)s)",
  )
  parser.add_argument(
    "--memory_mb",
    type=int,
    default=512,
    help="address space that a program may allocate, in MiB (%(default)s)",
  )
  parser.add_argument(
    "--unsafe",
    action="store_true",
    help="run without seccomp, the sandbox layer that is otherwise required",
  )
  parser.add_argument("--backend", choices=BACKENDS, default="local")
  parser.add_argument(
    "--nodes", type=int, default=0, help="ray: actors; 0 for one per node"
  )
  parser.add_argument("--address", default="", help="ray: cluster address")


def make_executor(
  parser: argparse.ArgumentParser, flags: argparse.Namespace
) -> Executor:
  """Starts the pool; on a bad flag, exits with an error that names it."""
  try:
    return Executor(
      flags.workers,
      flags.timeout_s,
      flags.memory_mb,
      flags.unsafe,
      backend=flags.backend,
      nodes=flags.nodes,
      address=flags.address,
    )
  except (ValueError, RuntimeError) as error:
    parser.error(str(error))


def main() -> None:
  """Parses the flags and runs the jobs."""
  parser = errors.Parser(__doc__, "azr_jax.executor")
  add_flags(parser)
  parser.add_argument(
    "--doctor",
    action="store_true",
    help="print which sandbox layers this machine supports",
  )
  flags = parser.parse_args()
  with make_executor(parser, flags) as executor:
    if flags.doctor:
      print(json.dumps(executor.layers(), indent=2))
      return
    in_order = results(executor, streaming.input_lines())
    for result in streaming.counted(in_order, "jobs"):
      record = {name: getattr(result, name) for name in REPORTED}
      print(json.dumps(record), flush=True)


def run() -> None:
  """Runs the command."""
  errors.guard(lambda: streaming.run_command(main))


if __name__ == "__main__":
  run()
