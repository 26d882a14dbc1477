"""Measures how long honest jobs wait beside programs made to stall the pool.

Such a program writes its report itself, so that ten long values per run cost
it nothing. Its values are numbers with one hash and are equal in both runs, so
all of them have to be read.
"""

import time

from azr_jax.executor.executor import Executor
from azr_jax.executor.job import Job

INPUTS = 10
SECONDS = 5.0
_HOSTILE = """
def f(x):
  import sys
  os = sys.modules["os"]
  numbers = [i * (2**61 - 1) for i in range(2600)]
  report = (str(numbers) + "\\n").encode() * 10 + b"done\\n"
  for pipe in range(3, 16):
    try:
      while report:
        report = report[os.write(pipe, report):]
      os._exit(0)
    except OSError:
      pass
"""


def hostile_job(number: int) -> Job:
  """Returns a job whose comparison takes about a second."""
  inputs = tuple(f"{index}, {number}" for index in range(INPUTS))
  code = _HOSTILE.replace("f(x)", "f(x, y)")
  # Only a shared process writes a report with so many long values.
  return Job(f"hostile {number}", code, inputs, runs=2, per_call=True)


def measure(executor: Executor, hostile: int) -> dict[str, float]:
  """Submits hostile programs, then one honest program after the other.

  Args:
    executor: runs them.
    hostile: number of hostile programs.

  Returns:
    The median and the longest time from an honest job's submission to its
    verdict, in seconds, and `hostile_ok`, how many hostile programs were
    compared to their end.

  Raises:
    RuntimeError: an honest program has another verdict than `ok`.
  """
  waiting = [executor.submit(hostile_job(number)) for number in range(hostile)]
  latencies: list[float] = []
  end = time.monotonic() + SECONDS
  while time.monotonic() < end:
    code = f"def f(x):\n  return x + {len(latencies)}"
    start = time.monotonic()
    result = executor.submit(Job("honest", code, ("1",))).result()
    latencies.append(time.monotonic() - start)
    if result.status != "ok":
      raise RuntimeError(f"an honest program ended as {result}")
  statuses = [future.result().status for future in waiting]
  latencies.sort()
  return {
    "median_s": latencies[len(latencies) // 2],
    "worst_s": latencies[-1],
    "hostile_ok": statuses.count("ok"),
  }
