"""The executor on a real Ray cluster of this machine."""

import os
import signal
import sys

import pytest

from azr_jax.executor import Executor, Job
from azr_jax.executor import cluster as cluster_lib
from azr_jax.executor.pending import Task
from tests.executor.process_table import is_alive, wait_until

pytest.importorskip("ray")
# Ray itself raises warnings.
pytestmark = pytest.mark.filterwarnings("default")

PROGRAMS = [
  "def f(x):\n  return [x, x * x]",
  "def f(x):\n  return 1 / (x % 3)",
  "import time\ndef f(x):\n  return x",
  "def f(x):\n  return hash(str(x))",
  "def f(x):\n  return {str(i) for i in range(x % 7)}",
  "def f(x):\n  return object()",
]
LOOP = "def f(x):\n  while True: pass"
# More than the two actors take at a time, so that some jobs wait in the caller.
JOBS = [
  Job(
    str(x),
    LOOP if x % 200 == 0 else PROGRAMS[x % len(PROGRAMS)],
    (str(x),),
    runs=1 + x // 2 % 2,
    forbidden=("time",),
  )
  for x in range(600)
]


@pytest.fixture(scope="module")
def cluster():
  settings = {"workers": 1, "timeout_s": 2.0, "memory_mb": 256}
  with Executor(**settings, backend="ray", nodes=2) as executor:
    wait_until(lambda: len(executor.processes()) == 2, 60)
    yield executor


def verdicts(results):
  """Returns what two executors must agree on, which excludes hashes."""
  hashes = PROGRAMS.index("def f(x):\n  return hash(str(x))")
  return [
    (result.id, result.status, result.error, result.outputs)
    for job, result in zip(JOBS, results, strict=True)
    if not (job.runs == 1 and job.code == PROGRAMS[hashes])
  ]


@pytest.fixture(scope="module")
def local():
  with Executor(workers=2, timeout_s=2.0, memory_mb=256) as executor:
    return executor.map(JOBS)


def test_two_actors_start_with_every_sandbox_layer(cluster):
  assert len(cluster.processes()) == 2
  assert cluster.layers()["seccomp"] is True
  assert all(
    is_active
    for name, is_active in cluster.layers().items()
    if name.startswith("denies_")
  )


def test_the_verdicts_are_those_of_one_machine(cluster, local):
  results = cluster.map(JOBS)
  assert verdicts(results) == verdicts(local)
  statuses = {result.status for result in results}
  assert statuses == {"ok", "error", "timeout", "blocked", "nondeterministic"}


def test_a_killed_actor_loses_no_job(cluster, local):
  futures = [cluster.submit(job) for job in JOBS]
  assert wait_until(lambda: sum(future.done() for future in futures) > 100)
  killed = cluster.processes()[0]
  os.kill(killed, signal.SIGKILL)
  results = [future.result(120) for future in futures]
  assert verdicts(results) == verdicts(local)
  assert wait_until(lambda: not is_alive(killed))
  assert wait_until(lambda: len(cluster.processes()) == 2, 60)


def test_a_bad_job_is_its_callers_error(cluster):
  with pytest.raises(ValueError, match="runs is 0"):
    cluster.submit(Job("1", "", (), runs=0))


def test_without_ray_it_says_what_to_install(monkeypatch):
  monkeypatch.setitem(sys.modules, "ray", None)
  with pytest.raises(RuntimeError, match=r"pip install 'azr_jax\[ray\]'"):
    Executor(1, 1.0, 256, backend="ray")


@pytest.mark.parametrize(
  "options, wanted",
  [
    ({"backend": "dask"}, "backend='dask': expected one of"),
    ({"nodes": -1}, "nodes=-1: expected an integer of at least 0"),
  ],
)
def test_a_bad_option_is_named(options, wanted):
  with pytest.raises(ValueError, match=wanted):
    Executor(1, 1.0, 256, **options)


def test_closing_leaves_no_actor_and_cancels(cluster):
  actors = cluster.processes()
  future = cluster.submit(Job("1", LOOP, ("1",)))
  cluster.close()
  assert future.cancelled()
  assert wait_until(lambda: not any(map(is_alive, actors)))
  with pytest.raises(RuntimeError, match="closed"):
    cluster.submit(JOBS[1])


def test_patience_is_as_long_as_the_jobs_may_take():
  task = Task(Job("1", LOOP, ("1", "2"), runs=2), timeout_s=3.0)
  node = cluster_lib._Node(actor=None)
  assert cluster_lib._patience_s(node) == cluster_lib.START_S
  node.layers = {}
  assert cluster_lib._patience_s(node) == float("inf")
  node.busy = {task}
  assert cluster_lib._patience_s(node) == cluster_lib.GRACE_S + 12.0
