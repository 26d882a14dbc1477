"""Countdown as a user runs it: killed and resumed, scored, and a pool made."""

import json
import subprocess
import sys

import train_test

MODEL = "embedded:countdown-tiny"
CLOSED_LOOP = (
  "--config=configs/countdown.py:tiny_closed_loop",
  "--config.countdown.count=120",
  "--config.countdown.prompts=4",
  "--config.countdown.group_size=4",
  "--config.countdown.proposals=4",
  "--config.learner.kl_coef=0.001",
  "--config.countdown.adaptive.warm_up=1",
  "--config.countdown.replay.share=0.5",
  "--config.countdown.replay.warm_up=1",
  "--config.rollout.max_tokens=120",
  "--config.rollout.slots=16",
  "--config.learner.max_micro_batches=1",
  "--config.train.save_every=2",
)


def run(module, *arguments):
  command = [sys.executable, "-m", module, *arguments]
  done = subprocess.run(
    command, cwd=train_test.ROOT, capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return done.stdout


def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path):
  data = f"--config.countdown.data_dir={tmp_path / 'data'}"
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  train_test.finish(train_test.start(whole, 5, data, config=CLOSED_LOOP))
  process = train_test.start(cut, 5, data, config=CLOSED_LOOP)
  train_test.wait_for_line(cut, 3, process)
  process.kill()
  process.communicate()
  train_test.finish(train_test.start(cut, 5, data, config=CLOSED_LOOP))
  found = train_test.metrics_of(whole)
  assert train_test.metrics_of(cut) == found
  assert {
    "curriculum/probability/own",
    "groups/countdown/equal_share",
    "answer_blocks/countdown/solve/mean",
    "learner/kl",
    "learner/clip_share",
  } <= found[-1].keys()
  # With an empty bucket of its own the policy proposes at once.
  assert found[0]["count/countdown/propose"] == 4
  assert found[0]["count/countdown/solve"] == 12
  assert max(m["correct/countdown/solve/mean"] for m in found) > 0
  assert max(m["curriculum/replay_share"] for m in found) > 0


def test_scores_are_printed_by_both_names(tmp_path):
  printed = run(
    "azr_jax.evaluate",
    "--config=configs/evaluate.py:countdown_tiny",
    f"--model={MODEL}",
    "--benchmark=countdown",
    "--limit=6",
    "--config.evaluate.samples=4",
    "--config.rollout.max_tokens=120",
    f"--workdir={tmp_path}",
  )
  for name in ("pass@1/unbiased", "pass@4/first", "answer_blocks"):
    assert f"countdown/{name}" in printed
  records = (tmp_path / "countdown.jsonl").read_text().splitlines()
  assert len(records) == 6
  assert len(json.loads(records[0])["replies"]) == 4


def test_a_random_pool_is_made_by_a_command(tmp_path):
  path = tmp_path / "pool.jsonl"
  printed = run("azr_jax.propose", "--random", "--count=9", f"--out={path}")
  assert json.loads(printed)["puzzles"] == 9
  assert len(path.read_text().splitlines()) == 9
