"""The log of the last step, when a run ends well or by an error."""

import json
from concurrent.futures import Future

import pytest

from azr_jax.parallel.hosts import Hosts
from azr_jax.run import step_log
from azr_jax.run.settings import RunSettings
from azr_jax.types import RolloutBatch


def hosts_of(count, timeout_s=0.05):
  hosts = Hosts(timeout_s)
  hosts.count = count
  return hosts


def add(log, step, update_metrics):
  rollouts = RolloutBatch([], {"reward/x": 1.0})
  log.add(
    step, rollouts, update_metrics, 0, lambda done_at: {"time/x": done_at}
  )


def done(value=0.5):
  future = Future()
  future.set_result(({"learner/entropy": value}, 3.0))
  return future


def steps_of(folder):
  lines = (folder / "metrics.jsonl").read_text().splitlines()
  return [json.loads(line)["step"] for line in lines]


def test_a_step_is_written_with_the_next_and_the_last_at_the_end(tmp_path):
  with step_log.StepLog(tmp_path, hosts_of(1), 1, RunSettings()) as log:
    add(log, 1, done())
    assert steps_of(tmp_path) == []
    log.write_last()
    assert steps_of(tmp_path) == [1]
    add(log, 2, done())
  assert steps_of(tmp_path) == [1, 2]


def test_an_error_of_the_loop_leaves_the_last_step_in_the_metrics(tmp_path):
  with pytest.raises(KeyError, match="loop"):
    with step_log.StepLog(tmp_path, hosts_of(1), 1, RunSettings()) as log:
      add(log, 1, done())
      raise KeyError("loop")
  assert steps_of(tmp_path) == [1]


def test_an_error_of_the_loop_is_not_replaced(tmp_path, capsys):
  lost = Future()
  with pytest.raises(KeyError, match="loop"):
    with step_log.StepLog(tmp_path, hosts_of(2), 1, RunSettings()) as log:
      add(log, 1, lost)
      raise KeyError("loop")
  assert "the last step is not in the metrics: the update of step 1" in (
    capsys.readouterr().err
  )


def test_an_update_that_does_not_end_is_named(tmp_path):
  with pytest.raises(TimeoutError) as caught:
    with step_log.StepLog(tmp_path, hosts_of(2), 1, RunSettings()) as log:
      add(log, 7, Future())
  assert str(caught.value).startswith(
    "the update of step 7 was not done in 0.05 s (hosts.timeout_s): a host is"
  )


def test_an_error_of_an_update_is_raised_as_it_is(tmp_path):
  failed = Future()
  failed.set_exception(TimeoutError("of the device"))
  with pytest.raises(TimeoutError, match="of the device"):
    with step_log.StepLog(tmp_path, hosts_of(1), 1, RunSettings()) as log:
      add(log, 1, failed)


def test_a_host_that_is_not_the_primary_waits_and_writes_nothing(tmp_path):
  hosts = hosts_of(2)
  hosts.index = 1
  with step_log.StepLog(tmp_path, hosts, 1, RunSettings()) as log:
    add(log, 1, done())
  assert not list(tmp_path.iterdir())
