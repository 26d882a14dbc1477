"""The log of the last step, when a run ends well or with an error."""

import json
from concurrent.futures import Future

import numpy as np
import pytest

from azr_jax.parallel.hosts import Hosts
from azr_jax.run import step_log
from azr_jax.run.trackers import TrackerSettings
from azr_jax.types import Completion, Prompt, RolloutBatch, Trajectory


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


def open_log(folder, hosts):
  return step_log.StepLog(
    folder,
    hosts,
    1,
    steps=9,
    samples_per_step=1,
    show_every=0,
    trackers=TrackerSettings(),
  )


def steps_of(folder):
  lines = (folder / "metrics.jsonl").read_text().splitlines()
  return [json.loads(line)["step"] for line in lines]


def test_a_step_is_written_with_the_next_and_the_last_at_the_end(tmp_path):
  with open_log(tmp_path, hosts_of(1)) as log:
    add(log, 1, done())
    assert steps_of(tmp_path) == []
    log.write_last()
    assert steps_of(tmp_path) == [1]
    add(log, 2, done())
  assert steps_of(tmp_path) == [1, 2]


def test_an_error_of_the_loop_leaves_the_last_step_in_the_metrics(tmp_path):
  with pytest.raises(KeyError, match="loop"):
    with open_log(tmp_path, hosts_of(1)) as log:
      add(log, 1, done())
      raise KeyError("loop")
  assert steps_of(tmp_path) == [1]


def test_an_error_of_the_loop_is_not_replaced(tmp_path, capsys):
  lost = Future()
  with pytest.raises(KeyError, match="loop"):
    with open_log(tmp_path, hosts_of(2)) as log:
      add(log, 1, lost)
      raise KeyError("loop")
  assert "the last step is not in the metrics: the update of step 1" in (
    capsys.readouterr().err
  )


def test_an_update_that_does_not_end_is_named(tmp_path):
  with pytest.raises(TimeoutError) as caught:
    with open_log(tmp_path, hosts_of(2)) as log:
      add(log, 7, Future())
  assert str(caught.value).startswith(
    "the update of step 7 was not done in 0.05 s (hosts.timeout_s): a host is"
  )


def test_an_error_of_an_update_is_raised_as_it_is(tmp_path):
  failed = Future()
  failed.set_exception(TimeoutError("of the device"))
  with pytest.raises(TimeoutError, match="of the device"):
    with open_log(tmp_path, hosts_of(1)) as log:
      add(log, 1, failed)


def test_a_host_that_is_not_the_primary_waits_and_writes_nothing(tmp_path):
  hosts = hosts_of(2)
  hosts.index = 1
  with open_log(tmp_path, hosts) as log:
    add(log, 1, done())
  assert not list(tmp_path.iterdir())


def trajectory(reward):
  ids = np.zeros(1, np.int32)
  completion = Completion(
    ids, np.zeros(len(ids), np.float32), ids == 0, "stop", ""
  )
  return Trajectory(Prompt("", (1,)), completion, reward, group_id=0)


@pytest.mark.parametrize(
  "values, warned_at", [(40.0, [2]), (2.5, [2]), (1.9, []), (None, [])]
)
def test_first_values_beyond_all_rewards_are_warned_of_once(
  tmp_path, capsys, values, warned_at
):
  """Step 1 has no reward, so its values cannot be judged."""
  measured = {} if values is None else {"critic/abs_value": values}
  warned = []
  with open_log(tmp_path, hosts_of(1)) as log:
    for step, rewards in enumerate([(0, 0), (0, -1.0), (0, 1.0)], start=1):
      future = Future()
      future.set_result(({"learner/entropy": 0.5} | measured, 3.0))
      rollouts = RolloutBatch([trajectory(r) for r in rewards], {})
      log.add(step, rollouts, future, 0, lambda _: {})
      log.write_last()
      said = capsys.readouterr().err
      if "critic.head_init=code" in said:
        warned.append(step)
        line, _, progress = said.partition("\n")
        assert f"{values:g}" in line and progress.startswith(f"step {step}/")
  assert warned == warned_at
