"""Tests jobs: killed and resumed, in order, one per core, within a budget."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from azr_jax.lab.experiments import folders, plan_file
from azr_jax.lab.experiments import jobs as jobs_lib
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.jobs import ExperimentJob
from azr_jax.lab.experiments.runner import Runner

TABLES = {
  "question": "Is it?",
  "claim": "It is.",
  "source": "a paper",
  "refuted_if": "it is not",
  "analysis": "two_samples",
  "seeds": [0],
  "core_hours": 1.0,
  "arms": {"a": {"config": "configs/orz.py:tiny"}},
}
# Records its start with process id and core, works, and marks itself done.
WORK = """
import os, pathlib, sys, time
name, seconds = sys.argv[1:]
with open("starts", "a") as file:
  file.write(f"{name} {os.getpid()} {os.sched_getaffinity(0)}\\n")
time.sleep(float(seconds))
pathlib.Path(f"{name}.done").touch()
"""
FAIL = "raise SystemExit('no luck')"


def runner_of(folder, jobs, cores=1, hours=1.0, said=None):
  """Returns a runner of (name, seconds, needs); None for a job that fails."""
  made = []
  for name, seconds, needs in jobs:
    words = (
      ("-c", FAIL) if seconds is None else ("-c", WORK, name, str(seconds))
    )
    done = (folder / f"{name}.done").exists
    command = (sys.executable, *words)
    made.append(ExperimentJob(name, command, needs, folder / name, done))
  workdir = Workdir(folder, plan_file.parse("jobs", TABLES))
  available = sorted(os.sched_getaffinity(0))[:cores]
  say = print if said is None else said.append
  return Runner(workdir, made, available, say, hours)


def starts(folder):
  path = folder / "starts"
  return [line.split(" ", 2) for line in path.read_text().splitlines()]


def wait_until(holds, seconds=300):
  end = time.monotonic() + seconds
  while not holds():
    assert time.monotonic() < end
    time.sleep(0.05)


def is_alive(process):
  try:
    status = pathlib.Path(f"/proc/{process}/stat").read_text()
  except FileNotFoundError:
    return False
  return status.rpartition(")")[2].split()[0] != "Z"


def killable(seconds):
  """Returns two jobs, of which the second needs the first."""
  return [("a", seconds, ()), ("b", 0.1, ("a",))]


def test_a_killed_experiment_goes_on_and_leaves_no_process(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  here = pathlib.Path(__file__)
  program = (
    f"import pathlib, sys; sys.path[:0] = [{str(here.parent)!r}]; "
    f"import {here.stem} as tests; jobs = tests.killable(600); "
    "tests.runner_of(pathlib.Path('.').resolve(), jobs).run()"
  )
  first = subprocess.Popen([sys.executable, "-c", program])

  def has_started():
    assert first.poll() is None
    return (tmp_path / "starts").exists() and starts(tmp_path)

  wait_until(has_started)
  first.kill()
  first.wait()
  wait_until(lambda: not is_alive(starts(tmp_path)[0][1]))
  assert runner_of(tmp_path, killable(0.1)).run()
  assert [name for name, _, _ in starts(tmp_path)] == ["a", "a", "b"]


def test_jobs_have_a_core_each_and_wait_for_what_they_need(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  cores = min(2, len(os.sched_getaffinity(0)))
  jobs = [("a", 0.3, ()), ("c", 0.1, ("a", "b")), ("b", 0.3, ())]
  assert runner_of(tmp_path, jobs, cores).run()
  order = [name for name, _, _ in starts(tmp_path)]
  assert {*order[:2]} == {"a", "b"} and order[2] == "c"
  used = [core for _, _, core in starts(tmp_path)]
  assert len({*used[:2]}) == cores and all("," not in core for core in used)
  spent = json.loads((tmp_path / folders.SPENT).read_text())
  assert spent.keys() == {"a", "b", "c"} and 0.2 < sum(spent.values()) < 60


def test_it_stops_at_its_budget_and_at_that_of_the_plan(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  said = []
  jobs = [("a", 600, ()), ("b", 600, ())]
  assert not runner_of(tmp_path, jobs, 1, 3 / 3600, said).run()
  assert "budget" in said[-1] and "2 of 2 jobs" in said[-1]
  [(_, process, _)] = starts(tmp_path)
  assert not is_alive(process)
  (tmp_path / folders.SPENT).write_text(json.dumps({"a": 3600.0}))
  assert not runner_of(tmp_path, jobs, 1, 1.0, said).run()
  assert len(starts(tmp_path)) == 1


SCORED = {
  **TABLES,
  "scores": {
    "sums": {
      "config": "configs/evaluate.py:problems_tiny",
      "benchmark": "problems",
      "start": "embedded:orz-tiny",
    }
  },
}
# Writes the scores of an evaluation whose prompts did not all fit.
SCORE = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
folder.mkdir()
scores = {"problems/items": 9.0, "problems/too_long": 2.0}
(folder / "results.json").write_text(json.dumps({"scores": scores}))
"""


def test_a_score_that_could_not_ask_all_items_stops_the_experiment(tmp_path):
  """It does so before the runs, and again if the command is repeated."""
  workdir = Workdir(tmp_path, plan_file.parse("scored", SCORED))
  made = jobs_lib.make(workdir)
  assert [job.name for job in made] == ["start_sums", "a_0", "a_0_sums"]
  score = (sys.executable, "-c", SCORE, str(made[0].folder))
  made[0] = dataclasses.replace(made[0], command=score)
  fail = (sys.executable, "-c", FAIL)
  made[1:] = [dataclasses.replace(job, command=fail) for job in made[1:]]
  core = min(os.sched_getaffinity(0))
  for _ in range(2):
    with pytest.raises(ValueError, match="start_scores/sums: 2 of 9 items"):
      Runner(workdir, made, [core], print, 1.0).run()
  logs = tmp_path / "logs"
  assert [path.name for path in logs.iterdir()] == ["start_sums.log"]


EVALUATED = {
  **TABLES,
  "outcomes": {
    "held_out": {
      "title": "held-out score",
      "metric": "evaluation/problems/pass@1/unbiased",
      "last_step": 3,
    }
  },
  "panels": {"length": "tokens/mean"},
}
# Writes a run whose evaluation had two of nine prompts too long.
EVALUATE = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
folder.mkdir()
config = {"train": {"steps": 2}, "evaluation": {"every": 2}}
(folder / "config.json").write_text(json.dumps(config))
asked = {f"evaluation/{name}/items": 9.0 for name in ("problems", "others")}
too_long = {f"evaluation/{sys.argv[2]}/too_long": 2.0}
rows = [{"step": step, **asked, **too_long} for step in (1, 3)]
lines = [json.dumps(row) + "\\n" for row in [rows[0], {"step": 2}, rows[1]]]
(folder / "metrics.jsonl").write_text("".join(lines))
"""


@pytest.mark.parametrize("benchmark", ["problems", "others"])
def test_an_evaluation_that_could_not_ask_all_items_is_not_used(
  tmp_path, benchmark
):
  """It stops the experiment if an outcome or a panel reads it."""
  workdir = Workdir(tmp_path, plan_file.parse("evaluated", EVALUATED))
  [run] = jobs_lib.make(workdir)
  command = (sys.executable, "-c", EVALUATE, str(run.folder), benchmark)
  run = dataclasses.replace(run, command=command)
  core = min(os.sched_getaffinity(0))
  runner = Runner(workdir, [run], [core], print, 1.0)
  if benchmark == "others":
    assert runner.run()
    return
  for _ in range(2):
    with pytest.raises(ValueError, match=r"a_0: 2 of 9 items .* of the arm"):
      runner.run()


def test_a_job_that_fails_is_named_after_the_others_are_done(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  jobs = [("bad", None, ()), ("after", 0.1, ("bad",)), ("good", 0.1, ())]
  with pytest.raises(RuntimeError, match=r"1 jobs failed: .*logs/bad\.log"):
    runner_of(tmp_path, jobs).run()
  assert [name for name, _, _ in starts(tmp_path)] == ["good"]
  assert "no luck" in (tmp_path / "logs" / "bad.log").read_text()


def test_sigterm_ends_the_jobs(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  runner = runner_of(tmp_path, [("a", 600, ())])
  signaller = subprocess.Popen(
    [
      sys.executable,
      "-c",
      "import os, pathlib, signal, sys, time\n"
      "while not pathlib.Path('starts').exists(): time.sleep(0.05)\n"
      "os.kill(int(sys.argv[1]), signal.SIGTERM)",
      str(os.getpid()),
    ]
  )
  assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
  assert not runner.run()
  signaller.wait()
  assert not is_alive(starts(tmp_path)[0][1])
