"""Countdown as a user runs it: interrupted, resumed, scored, pool proposed."""

import json
import subprocess
import sys

import pytest
import training

from azr_jax import train
from azr_jax.configs import countdown

MODEL = "embedded:countdown-tiny"
CLOSED_LOOP = {
  "countdown.count": 120,
  "countdown.prompts": 4,
  "countdown.group_size": 4,
  "countdown.proposals": 4,
  "learner.kl_coef": 0.001,
  "countdown.adaptive.warmup_steps": 1,
  "countdown.replay.fraction": 0.5,
  "countdown.replay.warmup_steps": 1,
  "rollout.max_tokens": 120,
  "rollout.slots": 16,
  "rollout.page_size": 80,
  "learner.max_micro_batches": 1,
  "train.save_every": 2,
  "train.keep_checkpoints": 3,
  "train.steps": 4,
  "seed": 3,  # A seed that replays puzzles within four steps.
}


def run(module, *arguments):
  command = [sys.executable, "-m", module, *arguments]
  done = subprocess.run(
    command,
    cwd=training.ROOT,
    env=training.environment(),
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return done.stdout


@pytest.mark.slow
def test_a_run_cut_short_goes_on_as_if_it_had_not_been(tmp_path, on_one_device):
  config = countdown.get_config("tiny_closed_loop")
  config.update_from_flattened_dict(CLOSED_LOOP)
  config.countdown.data_dir = str(tmp_path / "data")
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  train.train(config, str(whole))
  training.copy_cut_after(2, whole, cut)
  train.train(config, str(cut))
  found = training.metrics_of(whole)
  assert [metrics["step"] for metrics in found] == [1, 2, 3, 4]
  assert training.metrics_of(cut) == found
  assert {
    "curriculum/probability/proposed",
    "groups/countdown/equal_fraction",
    "answer_blocks/countdown/solve/mean",
    "learner/kl",
    "learner/clip_fraction",
  } <= found[-1].keys()
  # The bucket of proposals is empty, so the policy proposes at once.
  assert found[0]["count/countdown/propose"] == 4
  assert found[0]["count/countdown/solve"] == 12
  assert max(m["correct/countdown/solve/mean"] for m in found) > 0
  assert max(m["curriculum/replay_fraction"] for m in found) > 0


@pytest.mark.slow
def test_scores_are_printed_by_both_names(tmp_path):
  printed = run(
    "azr_jax.evaluate",
    "--config=configs/evaluate.py:countdown_tiny",
    f"--model={MODEL}",
    "--benchmark=countdown",
    "--limit=6",
    "--config.evaluate.samples=4",
    "--config.rollout.max_tokens=120",
    "--config.rollout.slots=24",
    "--config.rollout.page_size=160",
    f"--workdir={tmp_path}",
  )
  for name in ("pass@1/unbiased", "pass@4/first", "answer_blocks"):
    assert f"countdown/{name}" in printed
  records = (tmp_path / "countdown.jsonl").read_text().splitlines()
  assert len(records) == 6
  assert len(json.loads(records[0])["responses"]) == 4


@pytest.mark.slow
def test_a_random_pool_is_made_by_a_command(tmp_path):
  path = tmp_path / "pool.jsonl"
  printed = run(
    "azr_jax.propose",
    "--random",
    "--count=9",
    f"--out={path}",
    "--config.seed=1",  # A config key that is also a flag of the command.
  )
  assert json.loads(printed)["puzzles"] == 9
  assert len(path.read_text().splitlines()) == 9
