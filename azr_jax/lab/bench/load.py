"""Tests whether load changes the verdict on programs near the time limit.

A verdict must not depend on what else is running. Programs that need a known
fraction of the limit run in a pool that is pinned to one core: alone, beside
busy processes, and beside answers that never end. All must be graded correct.
"""

import contextlib
import dataclasses
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence

from azr_jax.executor.job import Job, Result
from azr_jax.executor.pool.executor import Executor

FRACTIONS = (0.05, 0.25, 0.75)  # Fractions of a call's CPU time limit.
ANSWERS = 8
MEMORY_MB = 256
# Condition -> (busy processes beside the pool, endless answers in it).
CONDITIONS = {"alone": (0, 0), "busy": (8, 0), "endless": (0, 6)}
_WORK = "def f(turns, answer):\n  for _ in range(turns): pass\n  return answer"
_ENDLESS = "def f(number):\n  while True: pass"
_CALIBRATIONS = 9


@dataclasses.dataclass
class LoadResult:
  """Results for correct answers.

  Attributes:
    correct: number that was graded correct.
    total: number of answers.
    over_wall_limit: number whose wall-clock time exceeded the CPU time limit.
    max_cpu: maximum CPU time of an answer, as a fraction of the limit.
    max_wall: maximum wall-clock time of an answer, as a multiple of the limit.
  """

  correct: int = 0
  total: int = 0
  over_wall_limit: int = 0
  max_cpu: float = 0.0
  max_wall: float = 0.0

  def add(self, result: Result, is_correct: bool, timeout_s: float) -> None:
    """Adds an answer to the counts."""
    self.correct += is_correct
    self.total += 1
    self.over_wall_limit += result.seconds > timeout_s
    self.max_cpu = max(self.max_cpu, result.cpu_s / timeout_s)
    self.max_wall = max(self.max_wall, result.seconds / timeout_s)


@contextlib.contextmanager
def on_one_core(core: int | None = None) -> Iterator[None]:
  """Pins this process and its future children to one core.

  Args:
    core: number of the core; None takes the first that this process may use.
  """
  before = os.sched_getaffinity(0)
  os.sched_setaffinity(0, {min(before) if core is None else core})
  try:
    yield
  finally:
    os.sched_setaffinity(0, before)


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
  """Runs processes that spin on the cores of this process."""
  loop = [sys.executable, "-S", "-c", "while True: pass"]
  processes = [subprocess.Popen(loop) for _ in range(count)]
  try:
    yield
  finally:
    for process in processes:
      process.kill()
      process.wait()


def measure(
  timeout_s: float,
  repeats: int,
  fractions: Sequence[float] = FRACTIONS,
  conditions: Sequence[str] = tuple(CONDITIONS),
  core: int | None = None,
) -> dict[str, LoadResult]:
  """Runs correct answers at each fraction in each condition.

  Args:
    timeout_s: CPU seconds of a call.
    repeats: groups of `ANSWERS` answers per fraction and condition.
    fractions: fractions of the limit that the programs need when alone.
    conditions: names in `CONDITIONS`.
    core: as in `on_one_core`.

  Returns:
    The answers by `CONDITION/FRACTION`.
  """
  found: dict[str, LoadResult] = {}
  with on_one_core(core), Executor(1, timeout_s, MEMORY_MB) as executor:
    turns_per_s = _turns_per_s(executor, timeout_s)
    for condition in conditions:
      busy, endless = CONDITIONS[condition]
      with busy_processes(busy):
        for fraction in fractions:
          turns = int(turns_per_s * fraction * timeout_s)
          answers = found[f"{condition}/{fraction:.0%}"] = LoadResult()
          for _ in range(repeats):
            _run_group(executor, turns, endless, timeout_s, answers)
  return found


def _turns_per_s(executor: Executor, timeout_s: float) -> float:
  """Returns iterations of `_WORK`'s loop per CPU second, when alone."""
  turns, rates = 1000, []
  while len(rates) < _CALIBRATIONS:
    job = Job("calibration", _WORK, (f"{turns}, 0",))
    result = executor.submit(job).result()
    if result.cpu_s < timeout_s / 4 and not rates:
      turns *= 2
    else:
      rates.append(turns / result.cpu_s)
  return statistics.median(rates)


def _run_group(
  executor: Executor,
  turns: int,
  endless: int,
  timeout_s: float,
  answers: LoadResult,
) -> None:
  """Runs a group of correct answers once, beside endless ones."""
  loops = [
    executor.submit(Job("endless", _ENDLESS, (str(number),)))
    for number in range(endless)
  ]
  texts = [str(number) for number in range(ANSWERS)]
  jobs = [Job(text, _WORK, (f"{turns}, {text}",)) for text in texts]
  for text, result in zip(texts, executor.map(jobs), strict=True):
    answers.add(result, result.outputs == (text,), timeout_s)
  for loop in loops:
    loop.result()
