"""Countdown as a user runs it: stopped and resumed, scored, and a pool made."""

import json
import subprocess
import sys

import train_test

MODEL = "embedded:azr-tiny"  # Knows nothing of puzzles; answers all the same.


def run(module, *arguments):
  command = [sys.executable, "-m", module, *arguments]
  done = subprocess.run(
    command, cwd=train_test.ROOT, capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return done.stdout


def train(workdir, data, steps):
  run(
    "azr_jax.train",
    "--config=configs/countdown.py:tiny_closed_loop",
    f"--config.model.source={MODEL}",
    f"--config.countdown.data_dir={data}",
    "--config.countdown.count=120",
    "--config.countdown.prompts=4",
    "--config.countdown.group_size=2",
    "--config.countdown.proposals=2",
    "--config.countdown.adaptive.warm_up=1",
    "--config.rollout.prompt_buckets=(64,)",
    "--config.rollout.max_tokens=24",
    "--config.rollout.slots=8",
    "--config.learner.max_micro_batches=1",
    f"--config.train.steps={steps}",
    f"--workdir={workdir}",
  )
  return train_test.metrics_of(workdir)


def test_a_stopped_run_goes_on_as_if_it_had_not_been(tmp_path):
  whole = train(tmp_path / "whole", tmp_path / "data", 4)
  train(tmp_path / "cut", tmp_path / "data", 2)
  cut = train(tmp_path / "cut", tmp_path / "data", 4)
  assert cut == whole
  assert {
    "curriculum/probability/own",
    "groups/countdown/equal_share",
    "answer_blocks/countdown/solve/mean",
    "learner/kl",
    "learner/clip_share",
  } <= whole[-1].keys()
  # With an empty bucket of its own the policy proposes at once.
  assert whole[0]["count/countdown/propose"] == 2
  assert whole[0]["count/countdown/solve"] == 6


def test_scores_are_printed_by_both_names(tmp_path):
  printed = run(
    "azr_jax.evaluate",
    "--config=configs/evaluate.py:countdown_tiny",
    f"--model={MODEL}",
    "--benchmark=countdown",
    "--limit=6",
    "--config.evaluate.samples=4",
    "--config.rollout.prompt_buckets=(64,)",
    "--config.rollout.max_tokens=24",
    f"--workdir={tmp_path}",
  )
  for name in ("pass@1/unbiased", "pass@4/first", "answer_blocks"):
    assert f"countdown/{name}" in printed
  records = (tmp_path / "records.jsonl").read_text().splitlines()
  assert len(records) == 6
  assert len(json.loads(records[0])["responses"]) == 4


def test_a_random_pool_is_made_by_a_command(tmp_path):
  path = tmp_path / "pool.jsonl"
  printed = run("azr_jax.propose", "--random", "--count=9", f"--out={path}")
  assert json.loads(printed)["puzzles"] == 9
  assert len(path.read_text().splitlines()) == 9
