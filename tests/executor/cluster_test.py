"""Tests of the executor on real Ray clusters, started on this machine."""

import os
import signal
import sys
import time
from typing import Any

import pytest
import training

from azr_jax.executor import Executor, Job
from tests.executor.process_table import is_alive, wait_until

training.needs("ray", extra="ray")
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
DOUBLE = "def f(x):\n  return x * 2"
LOOP = "def f(x):\n  while True: pass"
# More jobs than the actors hold, so some of them wait in the caller.
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
# Each of the three machines has two cores, enough for one actor.
OPTIONS: dict[str, Any] = {
  "workers": 2,
  "timeout_s": 2.0,
  "memory_mb": 256,
  "backend": "ray",
}
NODE = {"num_cpus": 2, "object_store_memory": 80_000_000}


@pytest.fixture(scope="module")
def machines():
  """A Ray cluster: a head node without cores, and three machines."""
  import ray
  from ray import cluster_utils

  head = NODE | {"num_cpus": 0, "include_dashboard": False}
  cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
  for _ in range(3):
    cluster.add_node(**NODE)
  ray.init(address=cluster.address, log_to_driver=False)
  yield cluster
  ray.shutdown()
  cluster.shutdown()


@pytest.fixture(scope="module")
def cluster(machines):
  with Executor(**OPTIONS) as executor:
    assert wait_until(lambda: len(executor.processes()) == 3, 60)
    yield executor


def verdicts(results):
  """Returns the results that two executors must agree on: all but hashes."""
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


@pytest.mark.slow
def test_every_node_has_an_actor_with_every_sandbox_layer(cluster):
  assert cluster.layers()["seccomp"] is True
  assert all(
    is_active
    for name, is_active in cluster.layers().items()
    if name.startswith("denies_")
  )


@pytest.mark.slow
def test_the_verdicts_are_those_of_one_machine(cluster, local):
  results = cluster.map(JOBS)
  assert verdicts(results) == verdicts(local)
  statuses = {result.status for result in results}
  assert statuses == {"ok", "error", "timeout", "blocked", "nondeterministic"}


@pytest.mark.slow
def test_a_quick_job_does_not_wait_for_an_endless_one(cluster):
  jobs = [Job(str(x), DOUBLE, (str(x),)) for x in range(15)]
  loops = [cluster.submit(Job("loop", LOOP, (str(x),))) for x in range(3)]
  results = [future.result(60) for future in map(cluster.submit, jobs)]
  assert [r.outputs for r in results] == [(str(2 * x),) for x in range(15)]
  assert not any(loop.done() for loop in loops)
  assert {loop.result(60).status for loop in loops} == {"timeout"}


@pytest.mark.slow
def test_another_host_uses_the_same_actors(cluster):
  with Executor(**OPTIONS, service=cluster.service) as other:
    assert wait_until(lambda: len(other.processes()) == 3, 30)
    assert set(other.processes()) == set(cluster.processes())
    jobs = [Job(str(x), DOUBLE, (str(x),)) for x in range(300)]
    pairs = [(cluster.submit(job), other.submit(job)) for job in jobs]
    for x, pair in enumerate(pairs):
      assert [f.result(60).outputs for f in pair] == [(str(2 * x),)] * 2
  # The actors end with the executor that started them.
  assert all(map(is_alive, cluster.processes()))
  assert cluster.submit(jobs[0]).result(60).outputs == ("0",)


@pytest.mark.slow
def test_a_host_on_another_cluster_is_told(machines, cluster):
  with pytest.raises(RuntimeError, match="the same cluster on all hosts"):
    Executor(**OPTIONS, service=f"{machines.address} executor-other-0")


@pytest.mark.slow
def test_a_second_run_is_told_that_the_cores_are_taken(monkeypatch, cluster):
  monkeypatch.setattr("azr_jax.executor.pool.cluster.START_TIMEOUT_S", 4.0)
  with pytest.raises(RuntimeError, match="2 free cores on a node"):
    Executor(**OPTIONS)


@pytest.mark.slow
def test_a_killed_actor_loses_no_job(cluster, local):
  futures = [cluster.submit(job) for job in JOBS]
  assert wait_until(lambda: sum(future.done() for future in futures) > 100)
  killed = cluster.processes()[0]
  os.kill(killed, signal.SIGKILL)
  results = [future.result(120) for future in futures]
  assert verdicts(results) == verdicts(local)
  assert wait_until(lambda: not is_alive(killed))
  assert wait_until(lambda: len(cluster.processes()) == 3, 60)


@pytest.mark.slow
def test_a_stopped_actor_is_replaced(monkeypatch, cluster):
  monkeypatch.setattr("azr_jax.executor.pool.cluster.POLL_S", 1.0)
  monkeypatch.setattr("azr_jax.executor.pool.cluster.HEARTBEAT_TIMEOUT_S", 8.0)
  stopped = cluster.processes()[0]
  os.kill(stopped, signal.SIGSTOP)
  jobs = [Job(str(x), DOUBLE, (str(x),)) for x in range(60)]
  results = [f.result(60) for f in [cluster.submit(job) for job in jobs]]
  assert [r.outputs for r in results] == [(str(2 * x),) for x in range(60)]
  assert wait_until(lambda: len(cluster.processes()) == 3, 60)
  assert wait_until(lambda: not is_alive(stopped))


@pytest.mark.slow
def test_a_lost_node_loses_no_job_and_a_new_one_is_used(
  machines, cluster, local
):
  futures = [cluster.submit(job) for job in JOBS]
  assert wait_until(lambda: sum(future.done() for future in futures) > 100)
  lost = machines.list_all_nodes()[-1]
  machines.remove_node(lost, allow_graceful=False)
  results = [future.result(120) for future in futures]
  assert verdicts(results) == verdicts(local)
  assert wait_until(lambda: len(cluster.processes()) == 2, 60)
  machines.add_node(**NODE)
  assert wait_until(lambda: len(cluster.processes()) == 3, 120)


@pytest.mark.slow
def test_a_library_that_a_node_lacks_fails_its_jobs_alone(cluster):
  job = Job("1", DOUBLE, ("1",), libraries=("azr_jax.nothing",))
  with pytest.raises(RuntimeError, match="executor-.*azr_jax.nothing"):
    cluster.submit(job).result(60)
  assert cluster.submit(Job("1", DOUBLE, ("1",))).result(60).status == "ok"


@pytest.mark.slow
def test_cancelled_jobs_never_start(cluster):
  # Together they would take ten minutes of CPU time.
  loops = [cluster.submit(Job("loop", LOOP, (str(x),))) for x in range(300)]
  time.sleep(0.5)
  for loop in loops:
    loop.cancel()
  assert cluster.submit(Job("1", DOUBLE, ("1",))).result(90).status == "ok"


@pytest.mark.slow
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


@pytest.mark.slow
def test_no_node_has_so_many_cores(machines):
  with pytest.raises(RuntimeError, match="no node of the Ray cluster has 99"):
    Executor(**OPTIONS | {"workers": 99})


@pytest.mark.slow
def test_closing_leaves_no_actor_and_cancels(cluster):
  actors = cluster.processes()
  future = cluster.submit(Job("1", LOOP, ("1",)))
  cluster.close()
  assert future.cancelled()
  assert wait_until(lambda: not any(map(is_alive, actors)))
  with pytest.raises(RuntimeError, match="closed"):
    cluster.submit(JOBS[1])
