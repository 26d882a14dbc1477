"""Measures how fast the executor runs programs, next to an unsandboxed pool.

All figures of a call come from one run on one machine. The ratios carry over to
other machines; the absolute numbers do not.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import signal
import statistics
import time
from collections.abc import Sequence
from typing import Any

from azr_jax.executor import Executor, Job, Result

ENDLESS = "def f(*_):\n  while True:\n    pass"
ENDLESS_PER_256 = 5
CANDIDATES = 8  # Inputs per program in the case `judging`.
WARM_UP = 64  # Programs to run before measuring.


@dataclasses.dataclass(frozen=True)
class Snippet:
  """A program with one input that it runs on without error."""

  code: str
  argument: str


def cases(programs: Sequence[Snippet]) -> dict[str, list[Job]]:
  """Returns the jobs of each case: validation, determinism and judging."""

  def jobs(runs: int, inputs: int) -> list[Job]:
    return [
      Job(str(index), program.code, (program.argument,) * inputs, runs=runs)
      for index, program in enumerate(programs)
    ]

  return {
    "validation": jobs(runs=1, inputs=1),
    "determinism": jobs(runs=2, inputs=1),
    "judging": jobs(runs=1, inputs=CANDIDATES),
  }


def with_endless(jobs: Sequence[Job]) -> list[Job]:
  """Replaces `ENDLESS_PER_256` of every 256 jobs by endless loops, evenly."""
  every = -(-256 // ENDLESS_PER_256)
  return [
    # Each loop differs, because the executor runs identical jobs only once.
    dataclasses.replace(job, code=f"{ENDLESS}  # {index}")
    if index % every == 0
    else job
    for index, job in enumerate(jobs)
  ]


def measure(executor: Executor, jobs: Sequence[Job]) -> dict[str, float]:
  """Runs the jobs once; returns rates per second and times in milliseconds.

  `trainer_us` is the CPU time of this process per job, in microseconds.
  """
  start, start_cpu = time.monotonic(), time.process_time()
  results = executor.map(jobs)
  seconds = time.monotonic() - start
  trainer_s = time.process_time() - start_cpu
  times_ms = [1000 * result.seconds for result in results]
  percentiles = statistics.quantiles(times_ms, n=100)
  return _rates(jobs, seconds) | {
    "p50_ms": percentiles[49],
    "p99_ms": percentiles[98],
    "trainer_us": 1e6 * trainer_s / len(jobs),
    "ok_fraction": _ok_fraction(results),
  }


def _ok_fraction(results: Sequence[Result]) -> float:
  return sum(result.status == "ok" for result in results) / len(results)


def measure_plain(
  workers: int, jobs: Sequence[Job], timeout_s: float
) -> dict[str, float]:
  """Runs the jobs in reused, unsandboxed processes; returns the rates."""
  context = multiprocessing.get_context("forkserver")
  run = functools.partial(_run_plain, timeout_s=timeout_s)
  with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
    list(pool.map(run, jobs[1:WARM_UP], chunksize=16))
    start = time.monotonic()
    list(pool.map(run, jobs, chunksize=16))
    seconds = time.monotonic() - start
  return _rates(jobs, seconds)


def _rates(jobs: Sequence[Job], seconds: float) -> dict[str, float]:
  return {
    "programs_per_second": len(jobs) / seconds,
    "evaluations_per_second": sum(len(j.inputs) for j in jobs) / seconds,
  }


def _run_plain(job: Job, timeout_s: float) -> list[str]:
  signal.signal(signal.SIGALRM, _alarm)
  signal.setitimer(signal.ITIMER_REAL, timeout_s)
  outputs: list[str] = []
  try:
    for _ in range(job.runs):
      namespace: dict[str, Any] = {}
      exec(job.code, namespace)
      outputs = [repr(eval(f"f({text})", namespace)) for text in job.inputs]
  except TimeoutError:
    pass
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
  return outputs


def _alarm(number: int, frame: object) -> None:
  raise TimeoutError


def report(
  programs: Sequence[Snippet], workers: Sequence[int], timeout_s: float
) -> dict[str, Any]:
  """Measures every case at every worker count, with and without endless loops.

  Args:
    programs: programs that end without error.
    workers: the worker counts.
    timeout_s: CPU seconds per call of a program.

  Returns:
    Figures by case, as JSON data.
  """
  figures: dict[str, Any] = {
    "programs": len(programs),
    "timeout_s": timeout_s,
  }
  for count in workers:
    with Executor(count, timeout_s=timeout_s, memory_mb=512) as executor:
      executor.map(cases(programs)["validation"][:WARM_UP])
      for name, jobs in cases(programs).items():
        for kind, load in (("", jobs), ("/endless", with_endless(jobs[:256]))):
          plain = measure_plain(count, load, timeout_s)
          sandboxed = measure(executor, load)
          sandboxed["relative_rate"] = (
            sandboxed["programs_per_second"] / plain["programs_per_second"]
          )
          figures[f"{name}{kind}/workers_{count}"] = sandboxed
          figures[f"{name}{kind}/workers_{count}/plain"] = plain
  return figures
