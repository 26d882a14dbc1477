"""PPO with a critic: ORZ interrupted and resumed, and AZR with a critic."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest
import training
from typed import instance_of

from azr_jax import export, train
from azr_jax.config.settings import Invalid
from azr_jax.configs import evaluate as evaluate_config
from azr_jax.configs import orz
from azr_jax.learner.actor_critic import ActorCritic
from azr_jax.run import checkpoint_reading
from azr_jax.trainer import build, restore, settings

ORZ = {
  "orz.prompts": 4,
  "orz.group_size": 4,
  "orz.counts": (50, 10),
  "rollout.slots": 16,
  "rollout.max_tokens": 48,
  "learner.max_micro_batches": 8,
  "learner.micro_rows": 1,
  "evaluation.every": 2,
  "evaluation.limit": 6,
  "train.save_every": 2,
  "train.steps": 3,
}


def assert_a_critic_can_be_passed_on(config, run, out):
  """A new run starts from the exported critic of another, to the last bit."""
  sampling = evaluate_config.get_config("problems_tiny")
  export.export(sampling, str(run), str(out), "float32", is_critic=True)
  assert "token-classification" in (out / "README.md").read_text()
  config = config.copy_and_resolve_references()
  config.critic.source = str(out)
  experiment = build.build(settings.read_train(config))
  policy, critic = restore.initial_params(experiment, 0, with_critic=True)
  abstract = instance_of(ActorCritic, experiment.learner.abstract)
  with checkpoint_reading.open_to_read(run) as (saved, step):
    trained, want = saved.restore_params(
      step, abstract.policy.params, abstract.critic.params
    )
  jax.tree.map(np.testing.assert_array_equal, critic, want)
  assert not np.array_equal(policy["embedding"], trained["embedding"])
  state = experiment.learner.init(policy, critic)
  assert isinstance(state, ActorCritic)


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"learner.estimator": "grpo"}, "because learner.estimator has no critic"),
    ({"train.keep_moments": True}, "because train.keep_moments continues"),
    ({"lora.rank": 4}, "because lora.rank trains adapters"),
  ],
)
def test_a_critic_to_start_from_that_nothing_uses(changes, message):
  config = orz.get_config("tiny")
  config.update_from_flattened_dict({"critic.source": "folder", **changes})
  with pytest.raises(Invalid, match=message):
    settings.read_train(config)


@pytest.mark.slow
def test_orz_resumes_and_its_problems_can_be_selected(tmp_path, on_one_device):
  config = orz.get_config("tiny")
  config.update_from_flattened_dict(ORZ)
  held_out = tmp_path / "held_out.jsonl"
  sums = [{"question": f"{n} + 25", "answer": str(n + 25)} for n in range(20)]
  held_out.write_text("\n".join(map(json.dumps, sums)))
  config.evaluation.data = str(held_out)
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  train.train(config, str(whole))
  training.copy_cut_after(2, whole, cut)
  train.train(config, str(cut))
  found = training.metrics_of(whole)
  assert [metrics["step"] for metrics in found] == [1, 2, 3, 4]
  assert training.metrics_of(cut) == found
  # The last line has the scores of the final policy, once.
  assert all(name.startswith("evaluation/") for name in {*found[3]} - {"step"})
  assert {
    "correct/orz/solve/mean",
    "critic/explained_variance",
    "critic/value_loss",
    "health/orz/repeat_score",
    "health/orz/truncated_fraction",
    "evaluation/problems/pass@1/unbiased",
  } <= found[0].keys()
  assert found[0]["critic/updates"] > 1
  assert_a_critic_can_be_passed_on(config, whole, tmp_path / "critic")
  evaluated = ["evaluation/problems/items" in metrics for metrics in found]
  assert evaluated == [True, False, True, True]
  out = tmp_path / "solved.jsonl"
  subprocess.run(
    [sys.executable, "-m", "azr_jax.select_problems", f"--run={whole}"]
    + ["--lowest=0.2", f"--out={out}"],
    cwd=training.ROOT,
    env=training.environment(),
    check=True,
  )
  kept = [json.loads(line) for line in out.read_text().splitlines()]
  assert 0 < len(kept) <= 12
  assert all(0.2 <= one["pass_rate"] <= 1 for one in kept)


@pytest.mark.slow
def test_azr_learns_with_a_critic_and_resumes_after_a_kill(tmp_path):
  gae = (*training.AZR_FLAGS, "--config.learner.estimator=gae")
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  training.finish(training.start(whole, 4, config=gae))
  process = training.start(cut, 4, config=gae)
  training.wait_for_line(cut, 3, process)
  process.kill()
  process.communicate()
  training.finish(training.start(cut, 4, config=gae))
  found = training.metrics_of(whole)
  assert training.metrics_of(cut) == found
  assert "critic/value_loss" in found[0]
  assert "reward/azr/deduction/propose/mean" in found[0]
