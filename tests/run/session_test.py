"""A run: what it prints when it is stopped, and who owns its folder."""

import json
import os
import signal
import threading

import numpy as np
import pytest

from azr_jax.cli import errors
from azr_jax.configs import azr, orz
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import folder as folder_lib
from azr_jax.run import save_schedule, session
from azr_jax.run.save_schedule import SaveSchedule, StepEnd

STATE = {"weights": np.arange(4.0)}


def opened(folder, config=None, **changes):
  return session.open_run(
    str(folder), {"seed": 0} if config is None else config, 1.0, **changes
  )


@pytest.fixture(autouse=True)
def ends_as_other_commands(monkeypatch):
  """Makes the end of an interrupted command observable in this process."""
  monkeypatch.setattr(errors, "_end_at_once", errors._leave)


def interrupt(folder, capsys, saved=(), **changes):
  """Saves steps, presses Ctrl-C, and returns what the command prints."""
  with pytest.raises(SystemExit) as ended:
    with errors.reported(["azr-train"]), opened(folder, **changes) as run:
      with run.open_checkpoints(2) as checkpoints:
        for step in saved:
          checkpoints.save(step, STATE, {})
        raise KeyboardInterrupt
  assert ended.value.code == 130
  return capsys.readouterr().err


def test_ctrl_c_says_what_is_saved(tmp_path, capsys):
  said = interrupt(tmp_path, capsys)
  assert said == (
    f"interrupted: no step is saved yet in {tmp_path}; the same command "
    "starts over\n"
  )
  # The last step is still being written when Ctrl-C arrives.
  said = interrupt(tmp_path, capsys, saved=(8, 9, 10))
  assert said == (
    f"interrupted: step 10 is saved in {tmp_path}; the same command resumes "
    "after it\n"
  )


def test_ctrl_c_of_a_command_without_steps(tmp_path, capsys):
  said = interrupt(tmp_path, capsys, stops_after_step=False)
  assert said.startswith("interrupted: every finished record is saved in ")


def test_only_the_primary_host_says_so(tmp_path, monkeypatch):
  monkeypatch.setattr(Hosts, "is_primary", False)
  (tmp_path / folder_lib.CONFIG).write_text("{}")
  with pytest.raises(KeyboardInterrupt) as caught, opened(tmp_path):
    raise KeyboardInterrupt
  assert not hasattr(caught.value, "__notes__")


def test_sigterm_asks_a_run_to_stop_after_its_step(tmp_path):
  before = signal.getsignal(signal.SIGTERM)
  with opened(tmp_path) as run:
    saves = SaveSchedule(run, 100, 10, 30.0)
    assert saves.at_end_of(1) == StepEnd(save=False, stop=False)
    os.kill(os.getpid(), signal.SIGTERM)
    assert run.preempted.wait(5)
    assert saves.at_end_of(1) == StepEnd(save=True, stop=True)
  assert signal.getsignal(signal.SIGTERM) is before
  with opened(tmp_path) as run:
    assert not SaveSchedule(run, 100, 10, 30.0).at_end_of(3).stop


def test_a_run_saves_by_steps_by_minutes_and_at_its_end(tmp_path, monkeypatch):
  clock = [0.0]
  monkeypatch.setattr(save_schedule.time, "monotonic", lambda: clock[0])
  saved = []
  with opened(tmp_path) as run:
    saves = SaveSchedule(run, 9, 4, 10.0)
    for step in range(1, 10):
      clock[0] += 250.0 if step > 4 else 1.0
      end = saves.at_end_of(step)
      assert end.stop == (step == 9)
      if end.save:
        saved.append(step)
  # Three steps after step 4 take more than ten minutes.
  assert saved == [4, 7, 8, 9]


def test_hosts_are_asked_after_the_last_step_too(tmp_path, monkeypatch):
  # The exchange waits for the last update. The log would time out earlier.
  asked = []
  with opened(tmp_path) as run:
    exchange = Hosts.any_of_each
    monkeypatch.setattr(
      Hosts,
      "any_of_each",
      lambda self, what, mine: asked.append(what) or exchange(self, what, mine),
    )
    saves = SaveSchedule(run, 2, 2, 30.0)
    assert [saves.at_end_of(step).stop for step in (1, 2)] == [False, True]
  assert asked == ["end of step 1", "end of step 2"]


def test_sigterm_ends_other_commands_at_once(tmp_path):
  received = threading.Event()
  before = signal.signal(signal.SIGTERM, lambda *_: received.set())
  try:
    with opened(tmp_path, stops_after_step=False) as run:
      os.kill(os.getpid(), signal.SIGTERM)
      assert received.wait(5)
      assert not run.preempted.is_set()
  finally:
    signal.signal(signal.SIGTERM, before)


def test_a_run_of_a_thread_leaves_signals_alone(tmp_path):
  stops = []

  def work():
    with opened(tmp_path) as run:
      stops.append(SaveSchedule(run, 100, 10, 30.0).at_end_of(1).stop)

  thread = threading.Thread(target=work)
  thread.start()
  thread.join(30)
  assert stops == [False]


def begin(folder, config):
  with opened(folder, config.to_dict()):
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')


def test_another_system_is_named_before_its_keys(tmp_path):
  begin(tmp_path, azr.get_config("tiny"))
  with pytest.raises(ValueError, match="config.system='orz': expected 'azr'"):
    begin(tmp_path, orz.get_config("tiny"))
  text = (tmp_path / folder_lib.CONFIG).read_text()
  assert json.loads(text)["system"] == "azr"


def test_another_value_is_named_and_a_layout_is_not(tmp_path):
  begin(tmp_path, azr.get_config("tiny"))
  config = azr.get_config("tiny")
  config.train.steps, config.mesh.data, config.executor.workers = 90, 2, 7
  begin(tmp_path, config)
  config.azr.references = 5
  config.learner.clip_high = 0.5
  with pytest.raises(ValueError, match="^config.azr.references=5: expected 2,"):
    begin(tmp_path, config)


def test_hosts_see_the_step_to_resume_from(tmp_path):
  with opened(tmp_path) as run:
    with run.open_checkpoints(2) as checkpoints:
      assert run.latest_step(checkpoints) == 0
      for step in (1, 2, 3):
        checkpoints.save(step, STATE, {})
    with run.open_checkpoints(2) as checkpoints:
      assert run.latest_step(checkpoints) == 3
      assert checkpoints.steps() == [2, 3]
