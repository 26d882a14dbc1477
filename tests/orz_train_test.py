"""PPO with a critic as a user runs it: ORZ, and AZR with the same critic."""

import json
import subprocess
import sys

import pytest
import train_test

ORZ = (
  "--config=configs/orz.py:tiny",
  "--config.orz.prompts=4",
  "--config.orz.group_size=4",
  "--config.orz.counts=(50, 10)",
  "--config.rollout.slots=16",
  "--config.rollout.max_tokens=48",
  "--config.learner.max_micro_batches=8",
  "--config.learner.micro_rows=1",
  "--config.evaluation.every=2",
  "--config.evaluation.limit=6",
  "--config.train.save_every=2",
)


def test_orz_stops_resumes_and_its_problems_can_be_selected(tmp_path):
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  train_test.finish(train_test.start(whole, 4, config=ORZ))
  train_test.finish(train_test.start(cut, 2, config=ORZ))
  train_test.finish(train_test.start(cut, 4, config=ORZ))
  found = train_test.metrics_of(whole)
  assert train_test.metrics_of(cut) == found
  assert {
    "correct/orz/solve/mean",
    "critic/explained_variance",
    "critic/value_loss",
    "health/orz/repeat_score",
    "health/orz/truncated_share",
    "evaluation/problems/pass@1/unbiased",
  } <= found[0].keys()
  assert found[0]["critic/updates"] > 1
  evaluated = ["evaluation/problems/items" in metrics for metrics in found]
  assert evaluated == [True, False, True, False]
  out = tmp_path / "solved.jsonl"
  subprocess.run(
    [sys.executable, "-m", "azr_jax.select_problems", f"--run={whole}"]
    + ["--lowest=0.2", f"--out={out}"],
    cwd=train_test.ROOT,
    check=True,
  )
  kept = [json.loads(line) for line in out.read_text().splitlines()]
  assert 0 < len(kept) <= 16
  assert all(0.2 <= one["pass_rate"] <= 1 for one in kept)


@pytest.mark.slow
def test_azr_learns_with_a_critic_and_resumes_after_a_kill(tmp_path):
  gae = (*train_test.SMALL, "--config.learner.estimator=gae")
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  train_test.finish(train_test.start(whole, 4, config=gae))
  process = train_test.start(cut, 4, config=gae)
  train_test.wait_for_line(cut, 3, process)
  process.kill()
  process.communicate()
  train_test.finish(train_test.start(cut, 4, config=gae))
  found = train_test.metrics_of(whole)
  assert train_test.metrics_of(cut) == found
  assert "critic/value_loss" in found[0]
  assert "reward/azr/deduction/propose/mean" in found[0]
