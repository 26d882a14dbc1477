"""What the launchers share: parallel jobs, their failures, and run folders."""

import json
import pathlib
import sys
import threading
import time

import pytest

LAUNCH = pathlib.Path(__file__).parents[2] / "launch"


@pytest.fixture(name="runs")
def import_runs(monkeypatch):
  monkeypatch.syspath_prepend(str(LAUNCH))
  sys.modules.pop("runs", None)
  import runs

  return runs


def test_parallel_jobs_have_different_cores(runs, monkeypatch):
  monkeypatch.setattr(
    runs.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False
  )
  lock, running, counts = threading.Lock(), [], []

  def job(cores):
    with lock:
      assert all(not cores & other for other in running)
      running.append(cores)
      counts.append(len(running))
    time.sleep(0.05)
    with lock:
      running.remove(cores)

  runs.in_parallel([job] * 6, 2)
  assert len(counts) == 6 and max(counts) == 2


def test_a_failure_is_raised_and_no_further_job_is_started(runs):
  started = []

  def fail(cores):
    started.append(cores)
    raise ValueError("no")

  with pytest.raises(ValueError, match="no"):
    runs.in_parallel([fail] + [started.append] * 3, 1)
  assert len(started) == 1
  with pytest.raises(ValueError, match="no"):
    runs.in_parallel([fail], 2)


def test_a_folder_belongs_to_its_settings(runs, tmp_path):
  runs.check_settings(tmp_path / "a", {"extra": []})
  runs.check_settings(tmp_path / "a", {"extra": []})
  with pytest.raises(ValueError, match="another --workdir"):
    runs.check_settings(tmp_path / "a", {"extra": ["x"]})


def test_a_run_is_done_at_its_last_step(runs, tmp_path):
  assert not runs.is_done(tmp_path)
  (tmp_path / "config.json").write_text(json.dumps({"train": {"steps": 2}}))
  (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
  assert not runs.is_done(tmp_path)
  (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
  assert runs.is_done(tmp_path)
