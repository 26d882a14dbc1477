"""Counts right answers of programs near the limit, on an idle and a busy core.

A program's verdict must not depend on what else runs. So programs that need a
known fraction of the limit are run in a pool that is pinned to one core: alone,
beside busy processes, and beside answers that never end. All must be right.
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

FRACTIONS = (0.05, 0.25, 0.75)  # Fractions of the CPU time of a call.
ANSWERS = 8
MEMORY_MB = 256
# Condition -> busy processes beside the pool, endless answers in it.
CONDITIONS = {"alone": (0, 0), "busy": (8, 0), "endless": (0, 6)}
_WORK = "def f(turns, answer):\n  for _ in range(turns): pass\n  return answer"
_ENDLESS = "def f(number):\n  while True: pass"
_CALIBRATIONS = 9


@dataclasses.dataclass
class AnswerCounts:
  """What became of right answers.

  Attributes:
    correct: how many were found right.
    total: how many there were.
    over_wall_limit: how many took more wall clock than the limit of CPU time.
    max_cpu: the most CPU time of one, as a fraction of the limit.
    max_wall: the most wall clock of one, as a multiple of the limit.
  """

  correct: int = 0
  total: int = 0
  over_wall_limit: int = 0
  max_cpu: float = 0.0
  max_wall: float = 0.0

  def add(self, result: Result, is_correct: bool, timeout_s: float) -> None:
    """Counts an answer."""
    self.correct += is_correct
    self.total += 1
    self.over_wall_limit += result.seconds > timeout_s
    self.max_cpu = max(self.max_cpu, result.cpu_s / timeout_s)
    self.max_wall = max(self.max_wall, result.seconds / timeout_s)


@contextlib.contextmanager
def on_one_core(core: int | None = None) -> Iterator[None]:
  """Pins this process, and those that it starts, to one core.

  Args:
    core: its number; None: the first that this process may use.
  """
  before = os.sched_getaffinity(0)
  os.sched_setaffinity(0, {min(before) if core is None else core})
  try:
    yield
  finally:
    os.sched_setaffinity(0, before)


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
  """Runs processes that never wait, on the cores of this process."""
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
) -> dict[str, AnswerCounts]:
  """Runs right answers of each fraction in each condition.

  Args:
    timeout_s: CPU seconds of a call.
    repeats: how often each fraction has `ANSWERS` answers in each condition.
    fractions: of the limit, that programs need alone.
    conditions: names of `CONDITIONS`.
    core: as in `on_one_core`.

  Returns:
    The answers by `CONDITION/FRACTION`.
  """
  found: dict[str, AnswerCounts] = {}
  with on_one_core(core), Executor(1, timeout_s, MEMORY_MB) as executor:
    turns_per_s = _turns_per_s(executor, timeout_s)
    for condition in conditions:
      busy, endless = CONDITIONS[condition]
      with busy_processes(busy):
        for fraction in fractions:
          turns = int(turns_per_s * fraction * timeout_s)
          answers = found[f"{condition}/{fraction:.0%}"] = AnswerCounts()
          for _ in range(repeats):
            _run_group(executor, turns, endless, timeout_s, answers)
  return found


def _turns_per_s(executor: Executor, timeout_s: float) -> float:
  """Returns how often the loop of `_WORK` turns in a CPU second, alone."""
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
  answers: AnswerCounts,
) -> None:
  """Runs a group of right answers once, beside endless ones."""
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
