"""The command that makes Countdown's table, mostly on finished runs."""

import json

import launching
import pytest

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import dataset

START = "embedded:countdown-tiny"


def launch(workdir, *flags):
  fixed = (f"--start={START}", "--puzzles=4")
  return launching.launch("countdown_variants", workdir, *fixed, *flags)


def write_scores(folder, value):
  folder.mkdir(parents=True)
  scores = {}
  for k in (1, 4, 16):
    scores[f"countdown/pass@{k}/unbiased"] = value
    scores[f"countdown/pass@{k}/unbiased_stderr"] = 0.25
  (folder / "results.json").write_text(json.dumps({"scores": scores}))


@pytest.fixture(name="finished")
def make_finished(tmp_path):
  for name in ("proposed", "random"):
    dataset.write(tmp_path / f"{name}.jsonl", [Puzzle((1, 2, 3), 6)])
  write_scores(tmp_path / "start_scores", 0.1)
  for seed, value in ((0, 0.2), (1, 0.4)):
    run = tmp_path / f"tiny_{seed}"
    run.mkdir()
    lines = [json.dumps({"time/step": 30.0 * (1 + seed)})] * 2
    (run / "metrics.jsonl").write_text("\n".join(lines))
    write_scores(tmp_path / f"tiny_{seed}_scores", value)
  return tmp_path


def test_finished_runs_become_a_table_and_are_not_run_again(finished):
  done = launch(finished, "--variants=tiny", "--seeds=0,1")
  assert done.returncode == 0, done.stderr[-2000:]
  lines = done.stdout.splitlines()
  assert lines[0].startswith("| variant | pass@1 | pass@4 | pass@16 |")
  start, tiny = lines[2:]
  assert start.startswith("| start (error over puzzles) | 0.100 +- 0.250 |")
  # The mean of 0.2 and 0.4; their deviation is 0.1414, divided by sqrt(2).
  cell = " 0.300 +- 0.100 |"
  assert tiny == "| `tiny` |" + 3 * cell + " 1.5 |"


def test_a_folder_of_other_settings_is_refused(finished):
  launch(finished, "--variants=tiny", "--seeds=0,1")
  flag = "--extra=--config.train.steps=7"
  done = launch(finished, "--variants=tiny", "--seeds=0,1", flag)
  assert done.returncode != 0
  assert "another --workdir" in done.stderr + done.stdout


def test_a_dry_run_names_every_command_and_runs_none(tmp_path):
  done = launch(tmp_path / "new", "--dry_run", "--seeds=0,1")
  commands = done.stdout.splitlines()
  assert sum("azr_jax.train" in c for c in commands) == 18
  assert sum("azr_jax.evaluate" in c for c in commands) == 19
  assert sum("azr_jax.propose" in c for c in commands) == 2
  mixed = [c for c in commands if "random_mix" in c and "azr_jax.train" in c]
  assert all("new/random.jsonl" in command for command in mixed)
  assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_variant_is_trained_and_scored(tmp_path):
  dataset.write(tmp_path / "proposed.jsonl", [Puzzle((1, 2, 3), 6)] * 5)
  done = launch(
    tmp_path,
    "--variants=tiny_random_mix",
    "--seeds=3",
    "--extra=--config.train.steps=1,--config.countdown.prompts=4,"
    "--config.countdown.count=300",
  )
  assert done.returncode == 0, done.stderr[-2000:]
  assert len((tmp_path / "random.jsonl").read_text().splitlines()) == 5
  assert "| `tiny_random_mix` |" in done.stdout
