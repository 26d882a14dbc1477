"""Long runs that reveal leaks and the effect of random kills.

`pytest -s` prints their measurements.
"""

import os
import random
import signal
import threading
import time

import pytest

from azr_jax.executor import Executor, Job
from tests.executor.process_table import (
  children_of,
  descriptors,
  resident_mb,
  wait_until,
  zombies_of,
)

PROGRAM = """
from collections import Counter
def f(x):
  words = {str(i): [i, i * 2] for i in range(x % 50)}
  return x * x, sorted(words)[:3], Counter(str(x)).most_common(1)
"""
BATCH = 200


def expected(x):
  namespace = {}
  exec(PROGRAM, namespace)
  return (repr(namespace["f"](x)),)


def footprint(pool):
  """Measures the pool's memory, descriptors and unreaped children."""
  time.sleep(0.1)  # A report's file is closed shortly after the reply is sent.
  everyone = [os.getpid(), *pool.processes()]
  return {
    "resident_mb": [round(resident_mb(pid), 1) for pid in everyone],
    "descriptors": descriptors(everyone),
    "zombies": len(zombies_of(everyone)),
  }


@pytest.mark.parametrize(
  "programs", [4 * BATCH, pytest.param(100_000, marks=pytest.mark.slow)]
)
def test_nothing_grows(programs):
  with Executor(workers=2, timeout_s=5.0, memory_mb=256) as pool:
    footprints = []
    for start in range(0, programs, BATCH):
      numbers = range(start, start + BATCH)
      results = pool.map([Job(str(x), PROGRAM, (str(x),)) for x in numbers])
      assert all(result.status == "ok" for result in results)
      footprints.append(footprint(pool))
    first, last = footprints[0], footprints[-1]
    for when in (0, len(footprints) // 2, -1):
      print(footprints[when])
  assert last["descriptors"] == first["descriptors"]
  assert last["zombies"] == 0
  zygotes = zip(last["resident_mb"][1:], first["resident_mb"][1:], strict=True)
  assert all(after < before + 2.0 for after, before in zygotes)
  assert last["resident_mb"][0] < first["resident_mb"][0] + 10.0


@pytest.mark.parametrize(
  "programs, kills",
  [(400, 2), pytest.param(10_000, 30, marks=pytest.mark.slow)],
)
def test_random_kills_cost_no_verdict(programs, kills):
  rng = random.Random(0)
  done = threading.Event()
  killed = {"zygote": 0, "child": 0}

  def victims(kind):
    zygotes = pool.processes()
    return zygotes if kind == "zygote" else children_of(zygotes)

  def kill(kind):
    """Kills a random process of a kind, if there is one."""
    processes = victims(kind)
    try:
      os.kill(rng.choice(processes), signal.SIGKILL)
    except (IndexError, ProcessLookupError):
      return
    killed[kind] += 1

  def kill_all():
    # Faster kills might hit the same job twice, which is an error.
    while not done.wait(rng.uniform(0.2, programs / 700 / kills)):
      if sum(killed.values()) < kills:
        kill(rng.choice(["zygote", "child"]))

  with Executor(workers=2, timeout_s=10.0, memory_mb=256) as pool:
    killer = threading.Thread(target=kill_all)
    killer.start()
    jobs = [
      Job(str(x), PROGRAM, (str(x),), runs=1 + x % 2) for x in range(programs)
    ]
    try:
      futures = [pool.submit(job) for job in jobs]
      results = [future.result(120) for future in futures]
      assert wait_until(lambda: sum(killed.values()) >= kills)
    finally:
      done.set()
      killer.join()
    counters = pool.counters()
  print(killed, counters)
  assert [result.id for result in results] == [job.id for job in jobs]
  wrong = [r for x, r in enumerate(results) if r.outputs != expected(x)]
  assert not wrong
  assert counters["programs"] == counters["ok"] == programs
