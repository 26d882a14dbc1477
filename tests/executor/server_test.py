"""Tests of a pool's server process: how it ends, and what survives it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from azr_jax.executor import Executor, Job
from azr_jax.executor.pool import executor as executor_lib
from azr_jax.executor.pool import local_server
from tests.executor.process_table import (
  children_of,
  is_alive,
  servers_of,
  wait_until,
)

DOUBLE = "def f(x):\n  return x * 2"
LOOP = "def f(x):\n  while True: pass"


@pytest.fixture
def pool(request):
  timeout_s = getattr(request, "param", 0.8)
  with Executor(workers=1, timeout_s=timeout_s, memory_mb=256) as executor:
    yield executor


def kill_server(pool):
  [server] = servers_of(pool)
  os.kill(server, signal.SIGKILL)
  return server


def test_the_pool_runs_in_a_process_of_its_own(pool):
  [server] = servers_of(pool)
  assert set(pool.processes()) <= set(children_of([server]))
  assert server in children_of([os.getpid()])
  # Its memory is that of a plain Python process, without JAX.
  with open(f"/proc/{server}/maps") as maps:
    assert "jaxlib" not in maps.read()


def test_a_killed_server_loses_no_job_and_is_named(pool, caplog):
  before = pool.processes()
  futures = [pool.submit(Job(str(i), DOUBLE, (str(i),))) for i in range(100)]
  futures.append(pool.submit(Job("loop", LOOP, ("1",))))
  wait_until(lambda: futures[0].done())
  killed = kill_server(pool)
  results = [future.result(30) for future in futures]
  assert [r.outputs for r in results[:-1]] == [
    (str(2 * i),) for i in range(100)
  ]
  assert results[-1].status == "timeout"
  named = f"the executor's server process {killed} was killed by SIGKILL"
  assert named in caplog.text
  assert wait_until(lambda: not any(map(is_alive, before)))
  assert not set(pool.processes()) & set(before)


def test_a_server_that_is_killed_again_and_again_fails_its_jobs(pool):
  future = pool.submit(Job("1", LOOP, ("1",)))

  def kill():
    for server in servers_of(pool):
      os.kill(server, signal.SIGKILL)
    return future.done()

  assert wait_until(kill, 60)
  with pytest.raises(RuntimeError, match="was killed by SIGKILL"):
    future.result()
  with pytest.raises(RuntimeError, match="closed"):
    pool.submit(Job("1", DOUBLE, ("1",)))


def test_a_job_that_takes_its_server_down_each_time_is_an_error(pool):
  poison = pool.submit(Job("poison", LOOP, ("1",)))
  for number in range(3):
    # Another job's verdict shows that the server itself still works.
    other = Job("1", DOUBLE, (str(number),))
    assert pool.submit(other).result(30).status == "ok"
    assert not poison.done()
    kill_server(pool)
  result = poison.result(30)
  assert (result.status, result.error) == ("error", "WorkerDied")


def test_a_stopped_server_is_replaced(monkeypatch, pool):
  monkeypatch.setattr(local_server, "HEARTBEAT_TIMEOUT_S", 4.0)
  [server] = servers_of(pool)
  os.kill(server, signal.SIGSTOP)
  future = pool.submit(Job("1", DOUBLE, ("1",)))
  assert future.result(60).outputs == ("2",)
  assert servers_of(pool) != [server]


@pytest.mark.parametrize("pool", [0.4], indirect=True)
def test_cancelled_jobs_never_start(pool):
  loops = [pool.submit(Job("loop", LOOP, (str(i),), runs=3)) for i in range(2)]
  # The other jobs, ten minutes of CPU time, follow them into the server.
  waiting = [pool.submit(Job("loop", LOOP, (str(9 + i),))) for i in range(400)]
  time.sleep(0.2)
  assert all(future.cancel() for future in waiting)
  assert pool.submit(Job("1", DOUBLE, ("1",))).result(60).outputs == ("2",)
  assert {loop.result(60).status for loop in loops} == {"timeout"}


def test_many_workers_have_several_servers(monkeypatch):
  monkeypatch.setattr(executor_lib, "WORKERS_PER_SERVER", 2)
  with Executor(workers=3, timeout_s=0.8, memory_mb=256) as pool:
    first, second = servers_of(pool)
    counts = [len(children_of([server])) for server in (first, second)]
    # A pool has two zygotes per worker, but at least one per hash seed.
    assert sorted(counts) == [3, 4] and len(pool.processes()) == 7
    futures = [pool.submit(Job(str(i), DOUBLE, (str(i),))) for i in range(90)]
    os.kill(first, signal.SIGKILL)
    outputs = [future.result(30).outputs for future in futures]
    assert outputs == [(str(2 * i),) for i in range(90)]
    assert wait_until(lambda: len(servers_of(pool)) == 2)


# Job schedulers send a signal to all processes of a run. After it, this trainer
# needs the verdict of a running program, and another one, before it can save.
TRAINER = """
import os, signal, sys
from azr_jax.executor import Executor, Job
if __name__ == "__main__":
  with Executor(workers=1, timeout_s=60, memory_mb=256) as pool:
    slow = "def f():\\n  for _ in range(60_000_000): pass\\n  return 1"
    running = pool.submit(Job("slow", slow, ("",)))
    def save(number, frame):
      job = Job("1", "def f(x):\\n  return x + 1", ("1",))
      futures = running, pool.submit(job)
      print(*[f.result(30).outputs[0] for f in futures], flush=True)
      sys.exit(3)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
      signal.signal(number, save)
    print(*pool.processes(), flush=True)
    signal.pause()
"""


@pytest.mark.parametrize(
  "name",
  [
    "SIGTERM",
    *(pytest.param(s, marks=pytest.mark.slow) for s in ("SIGINT", "SIGHUP")),
  ],
)
def test_a_signal_to_everybody_leaves_the_trainer_its_pool(name):
  trainer = subprocess.Popen(
    [sys.executable, "-c", TRAINER],
    stdout=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  with trainer:
    try:
      assert trainer.stdout
      zygotes = [int(pid) for pid in trainer.stdout.readline().split()]
      [server] = children_of([trainer.pid])
      assert wait_until(lambda: children_of(zygotes))
      everyone = [server, *zygotes, *children_of(zygotes)]
      for pid in [trainer.pid, *everyone]:
        os.kill(pid, signal.Signals[name])
      assert trainer.stdout.readline() == "1 2\n"
      assert trainer.wait(30) == 3
    finally:
      trainer.kill()  # After a failure it would wait for a signal forever.
  assert wait_until(lambda: not any(map(is_alive, everyone)))
