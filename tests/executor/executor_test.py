"""Tests of an executor: concurrency, lost processes, and clean shutdown."""

import concurrent.futures
import contextlib
import dataclasses
import inspect
import os
import signal
import subprocess
import sys
import time

import pytest

from azr_jax.executor import Executor, Job
from azr_jax.executor.settings import ExecutorSettings
from tests.executor.process_table import (
  children_of,
  descriptors,
  is_alive,
  wait_until,
)

DOUBLE = "def f(x):\n  return x * 2"
LOOP = "def f(x):\n  while True: pass"


@pytest.fixture
def pool():
  with Executor(workers=1, timeout_s=0.3, memory_mb=256) as executor:
    yield executor


def test_map_keeps_order(executor):
  jobs = [Job(str(i), DOUBLE, (str(i),)) for i in range(50)]
  results = executor.map(jobs)
  assert [result.id for result in results] == [job.id for job in jobs]
  assert [r.outputs for r in results] == [(str(2 * i),) for i in range(50)]


def test_loops_do_not_hold_up_quick_jobs():
  with Executor(workers=1, timeout_s=0.8, memory_mb=256) as pool:
    loops = [pool.submit(Job("loop", LOOP, (str(i),))) for i in range(2)]
    start = time.monotonic()
    pool.map([Job(str(i), DOUBLE, (str(i),)) for i in range(10)])
    assert time.monotonic() - start < 1.0
    assert {loop.result().status for loop in loops} == {"timeout"}


def test_whoever_waits_hears_of_what_was_cancelled():
  pool = Executor(workers=1, timeout_s=30, memory_mb=256)
  running = [pool.submit(Job(str(i), LOOP, (str(i),))) for i in range(4)]
  dropped = pool.submit(Job("5", DOUBLE, ("1",)))
  assert dropped.cancel()
  pool.close()
  done, left = concurrent.futures.wait(running, timeout=10)
  assert len(done) == 4 and not left


def test_identical_jobs_of_a_batch_run_once(pool):
  code = "import time\ndef f(x):\n  return time.perf_counter_ns()"
  jobs = [Job(str(i), code, (str(i % 2),)) for i in range(40)]
  results = pool.map(jobs)
  assert [result.id for result in results] == [job.id for job in jobs]
  assert {result.status for result in results} == {"ok"}
  for same in (results[::2], results[1::2]):
    assert len({result.outputs for result in same}) == 1
  assert results[0].outputs != results[1].outputs
  assert pool.counters()["ok"] == 40
  assert pool.map(jobs[:1])[0].outputs != results[0].outputs


def test_one_of_two_identical_jobs_may_be_cancelled(pool):
  loops = [pool.submit(Job(str(i), LOOP, ("1",))) for i in range(2)]
  assert loops[0].cancel()
  assert loops[1].result(30).status == "timeout"


def test_many_threads_may_submit(executor):
  def ask(i):
    return executor.submit(Job(str(i), DOUBLE, (str(i),))).result().outputs

  with concurrent.futures.ThreadPoolExecutor(8) as threads:
    outputs = list(threads.map(ask, range(64)))
  assert outputs == [(str(2 * i),) for i in range(64)]


def test_a_callback_may_submit(executor):
  chained = concurrent.futures.Future()
  first = executor.submit(Job("1", DOUBLE, ("1",)))
  first.add_done_callback(
    lambda _: chained.set_result(executor.submit(Job("2", DOUBLE, ("2",))))
  )
  assert chained.result(10).result(10).outputs == ("4",)


def test_killed_zygotes_lose_no_job(pool):
  futures = [pool.submit(Job(str(i), DOUBLE, (str(i),))) for i in range(100)]
  for pid in pool.processes():
    os.kill(pid, signal.SIGKILL)
  outputs = [future.result(30).outputs for future in futures]
  assert outputs == [(str(2 * i),) for i in range(100)]


def test_a_killed_child_is_run_again():
  slow = "def f(x):\n  for _ in range(20_000_000): pass\n  return x"
  with Executor(workers=1, timeout_s=30, memory_mb=256) as pool:
    future = pool.submit(Job("1", slow, ("1",)))
    assert wait_until(lambda: children_of(pool.processes()))
    for pid in children_of(pool.processes()):
      os.kill(pid, signal.SIGKILL)
    assert future.result(30).outputs == ("1",)


def test_a_child_killed_each_time_is_an_error(pool):
  future = pool.submit(Job("1", LOOP, ("1",)))
  while not future.done():
    for pid in children_of(pool.processes()):
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.01)
  assert (future.result().status, future.result().error) == ("error", "Signal9")


def test_a_zygote_killed_while_it_starts_is_replaced(pool):
  for _ in range(2):
    for pid in pool.processes():
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.01)
  assert pool.submit(Job("1", DOUBLE, ("1",))).result(30).outputs == ("2",)


def test_close_leaves_no_process_and_cancels():
  pool = Executor(workers=1, timeout_s=30, memory_mb=256)
  future = pool.submit(Job("loop", LOOP, ("1",)))
  zygotes = pool.processes()
  assert wait_until(lambda: children_of(zygotes))
  everyone = zygotes + children_of(zygotes)
  pool.close()
  assert future.cancelled()
  assert wait_until(lambda: not any(map(is_alive, everyone)))
  with pytest.raises(RuntimeError, match="closed"):
    pool.submit(Job("1", DOUBLE, ("1",)))
  pool.close()


TRAINER = """
import os, signal, sys
from azr_jax.executor import Executor, Job
from azr_jax.executor.settings import ExecutorSettings
if __name__ == "__main__":
  with Executor(workers=1, timeout_s=60, memory_mb=256) as pool:
    future = pool.submit(Job("loop", "def f():\\n  while True: pass", ("",)))
    print(*pool.processes(), flush=True)
    if sys.stdin.readline() == "raise\\n":
      raise ValueError
    future.result()
"""


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "SIGINT", "raise"])
def test_however_the_trainer_ends_no_process_is_left(end):
  trainer = subprocess.Popen(
    [sys.executable, "-c", TRAINER],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
  )
  with trainer:
    assert trainer.stdin and trainer.stdout
    zygotes = [int(pid) for pid in trainer.stdout.readline().split()]
    [server] = children_of([trainer.pid])
    assert wait_until(lambda: children_of(zygotes))
    everyone = [server, *zygotes, *children_of(zygotes)]
    trainer.stdin.write(f"{end}\n")
    trainer.stdin.flush()
    if end != "raise":
      trainer.send_signal(signal.Signals[end])
    assert trainer.wait(10) != 0
  assert wait_until(lambda: not any(map(is_alive, everyone)))


def test_descriptors_do_not_grow(executor):
  jobs = [Job(str(i), DOUBLE, (str(i),)) for i in range(300)]
  pids = [os.getpid(), *executor.processes()]
  executor.map(jobs[:10])
  time.sleep(0.1)
  before = descriptors(pids)
  assert all(result.status == "ok" for result in executor.map(jobs))
  # A zygote closes a report's file shortly after it has sent the reply.
  assert wait_until(lambda: descriptors(pids) == before)
  assert before[0] is not None


def test_a_cancelled_job_is_not_counted(pool):
  loops = [pool.submit(Job("loop", LOOP, (str(i),))) for i in range(4)]
  waiting = pool.submit(Job("1", DOUBLE, ("1",)))
  assert waiting.cancel()
  concurrent.futures.wait(loops)
  assert pool.submit(Job("1", DOUBLE, ("2",))).result().outputs == ("4",)
  assert pool.counters()["ok"] == 1


@pytest.mark.parametrize(
  "fields, wanted",
  [
    ({"runs": 0}, "runs is 0"),
    ({"runs": 1.0}, "runs is 1.0"),
    ({"code": b""}, "code is b''"),
    ({"inputs": (1,)}, "inputs is"),
    ({"inputs": "1"}, "inputs is '1'"),
    ({"forbidden": "os"}, "forbidden is 'os'"),
    ({"entry": "f(1) or f"}, "expected a name"),
  ],
)
def test_a_bad_job_is_its_callers_error(executor, fields, wanted):
  job = Job(**{"id": "1", "code": DOUBLE, "inputs": ("1",)} | fields)
  with pytest.raises((TypeError, ValueError), match=wanted):
    executor.submit(job)
  assert executor.submit(Job("1", DOUBLE, ("1",))).result(10).status == "ok"


def test_the_self_test_ran_and_everything_was_denied(executor):
  layers = executor.layers()
  assert layers["seccomp"] is True
  denied = {name for name in layers if name.startswith("denies_")}
  assert len(denied) >= 8 and all(layers[name] for name in denied)


def test_unsafe_starts_without_seccomp():
  with Executor(1, timeout_s=1, memory_mb=256, unsafe=True) as pool:
    assert pool.layers()["seccomp"] is False
    assert pool.submit(Job("1", DOUBLE, ("1",))).result().outputs == ("2",)


def test_the_memory_of_a_program_is_its_own():
  """complexipy reserves a GiB of address space in every zygote."""
  library = "azr_jax.tasks.programs.measures"
  take = "def f(n):\n  return len(bytearray(n << 20))"
  with Executor(1, 5.0, 256) as pool:
    jobs = [Job("", take, (str(n),), libraries=(library,)) for n in (200, 300)]
    enough, too_much = pool.map(jobs)
  assert enough.outputs == (str(200 << 20),)
  assert (too_much.status, too_much.error) == ("error", "MemoryError")


def test_every_setting_is_an_argument():
  arguments = dict(inspect.signature(Executor).parameters)
  del arguments["service"]
  fields = {field.name: field for field in dataclasses.fields(ExecutorSettings)}
  assert arguments.keys() == fields.keys()
  for name, argument in arguments.items():
    assert argument.default in (argument.empty, fields[name].default)
