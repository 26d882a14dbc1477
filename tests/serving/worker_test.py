"""The worker's thread: tasks, and jobs that wait for weights."""

import contextlib
import dataclasses
import threading

import pytest
from training import use_devices

from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.weights import Weights
from azr_jax.serving import command
from azr_jax.serving.jobs import SamplingJob
from azr_jax.trainer import loading


@pytest.fixture(name="worker")
def make_worker(policy, settings):
  mine = dataclasses.replace(policy, weights=Weights(policy.params))
  return command.make_worker(mine, settings, 0)


@contextlib.contextmanager
def running(worker):
  """Runs a worker in a thread; yields the updates that it delivers."""
  updates = []
  thread = threading.Thread(target=worker.run, args=(updates.extend,))
  thread.start()
  try:
    yield updates
  finally:
    worker.end(60.0)
    thread.join()


def test_a_task_whose_caller_is_gone_ends_nothing(worker):
  ran = []
  gone = worker.call(lambda: ran.append("gone"))
  assert gone.cancel()
  failing = worker.call(lambda: 1 // 0)
  last = worker.call(lambda: "last")
  with running(worker):
    assert last.result(timeout=60) == "last"
    assert isinstance(failing.exception(timeout=60), ZeroDivisionError)
  assert not ran


def test_a_pinned_job_keeps_its_weights_if_a_swap_arrives_with_it(
  worker, policy, settings, model_folder
):
  prompt = policy.prompt("def f(x):\n")
  job = SamplingJob((prompt,), 1, 0, 0.0, 6, step=0)
  with pytest.MonkeyPatch.context() as patch:
    use_devices(patch)
    mesh = mesh_lib.make_mesh(settings.mesh.sizes())
    newer = loading.load_model(settings, str(model_folder), mesh).params
  worker.submit(job)
  swapped = worker.swap(newer, 1)
  with running(worker) as updates:
    assert swapped.wait(60)
  steps = [step for _, tokens in updates for step in tokens.steps]
  assert steps and set(steps) == {0}
