"""Runs jobs from standard input: JSON lines in, JSON lines out, in order.

  python -m azr_jax.executor < jobs.jsonl > results.jsonl
  python -m azr_jax.executor --doctor

| field of a job | meaning |
| --- | --- |
| `id` | a text; the result has the same |
| `code` | Python source that defines `entry` |
| `inputs` | texts, each of one call's arguments: `"1, [2]"`, `"x=3"`, `""` |
| `entry` | the function to call; the default is `"f"` |
| `runs` | 2 or 3 compare the values of that many processes; the default is 1 |
| `forbidden` | modules that the program may not use; the default is none |
| `validation` | true for a quarter of the limits; the default is false |
| `per_call` | true for no limit of all calls together; the default is false |
| `libraries` | needed beside the standard library, as `math_verify`; or none |

A result has the job's `id`; `status` (ok, error, timeout, blocked or
nondeterministic); `outputs`, the text of each call's value or null; `error`,
the name of the error or null; `seconds` of wall clock; and `cpu_s`, seconds of
CPU time. For a line that is not a job, the error says why, so every line that
is not empty has a result. Each result is written as soon as those before it are
known.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator

from azr_jax.cli import errors
from azr_jax.executor import Executor, Job, Result, hash_seeds, streaming
from azr_jax.executor.settings import BACKENDS

MAX_RUNS = len(hash_seeds.HASH_SEEDS)
REPORTED = ("id", "status", "outputs", "error", "seconds", "cpu_s")
_FIELDS = {field.name for field in dataclasses.fields(Job)}

Pending = concurrent.futures.Future[Result]


def read_job(line: str) -> Job:
  """Reads one line.

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
  """Yields a result per line that is not empty, in order."""
  return streaming.in_order(
    _submit(executor, number, line)
    for number, line in enumerate(lines, start=1)
    if line.strip()
  )


def _submit(executor: Executor, number: int, line: str) -> Pending:
  try:
    return executor.submit(read_job(line))
  except (ValueError, TypeError, RecursionError) as error:
    done: Pending = concurrent.futures.Future()
    reason = f"line {number} is no job: {error}"
    done.set_result(Result(_id(line), "error", (), reason, 0.0))
    return done


def _id(line: str) -> str:
  """Returns the id of a line that is not a job, or an empty text."""
  try:
    record = json.loads(line)
  except (ValueError, RecursionError):
    return ""
  job_id = record.get("id", "") if isinstance(record, dict) else ""
  return job_id if isinstance(job_id, str) else ""


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of a pool, which `make_executor` reads."""
  parser.add_argument(
    "--workers",
    type=int,
    default=os.cpu_count() or 1,
    help="pairs of processes; one per core (%(default)s) by default",
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
    help="address space that a program may take (%(default)s)",
  )
  parser.add_argument(
    "--unsafe",
    action="store_true",
    help="run without seccomp, the sandbox layer that is otherwise required",
  )
  parser.add_argument("--backend", choices=BACKENDS, default="local")
  parser.add_argument(
    "--nodes", type=int, default=0, help="ray: actors; 0 is one per node"
  )
  parser.add_argument("--address", default="", help="ray: of the cluster")


def make_executor(
  parser: argparse.ArgumentParser, flags: argparse.Namespace
) -> Executor:
  """Starts the pool; a bad flag ends the program with a line that names it."""
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
  """Reads the flags and the jobs."""
  parser = errors.Parser(__doc__, "azr_jax.executor")
  add_flags(parser)
  parser.add_argument(
    "--doctor",
    action="store_true",
    help="print which sandbox layers this machine gives",
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
