"""Training in a user's environment, and in published ones."""

import importlib.util
import pathlib

import numpy as np
import pytest
import training

from azr_jax import train
from azr_jax.configs import environment
from azr_jax.systems.environment import system

SUMS = """
from azr_jax.systems.environment import examples

class Sums(examples.Sums):
  def step(self, reply):
    if "-" in reply[:3]:
      raise LookupError("a negative number")
    return super().step(reply)
"""
SMALL = {
  "environment.prompts": 4,
  "environment.group_size": 4,
  "environment.evaluation_tasks": 4,
  "rollout.slots": 16,
  "learner.max_micro_batches": 8,
  "learner.micro_rows": 1,
  "evaluation.every": 2,
  "train.save_every": 1,
  "train.steps": 2,
}


@pytest.mark.slow
def test_it_trains_and_masks_turns_with_failures_counted(
  tmp_path, on_one_device, capsys, monkeypatch
):
  file = tmp_path / "sums.py"
  file.write_text(SUMS)
  config = environment.get_config("tiny")
  changes = {"environment.spec": f"{file}:Sums(count=40)"}
  config.update_from_flattened_dict(SMALL | changes)
  steps = []
  collect = system.EnvironmentSystem.collect

  async def collected(*arguments):
    batch = await collect(*arguments)
    steps.append(batch.trajectories)
    return batch

  monkeypatch.setattr(system.EnvironmentSystem, "collect", collected)
  train.train(config, str(tmp_path / "run"))
  shown = capsys.readouterr().err
  found = training.metrics_of(tmp_path / "run")
  gaps = [metrics["rollout/logprob_gap_max"] for metrics in found[:2]]
  assert max(gaps) < 1e-4
  assert found[0]["evaluation/environment/items"] == 4
  first = found[0]
  assert first["reward/environment/solve/mean"] == pytest.approx(
    np.mean([t.reward for t in steps[0]])
  )
  assert 1 <= first["turns/environment/solve/mean"] <= 3
  failing = [m["failed/environment/fraction"] for m in found[:2]]
  assert 0 < max(failing) < 1
  assert "reward environment failed (raised) for " in shown
  assert "LookupError: a negative number (sums.py:" in shown
  several = [t for step in steps for t in step if t.metrics["turns"] > 1]
  assert several
  for one in several:
    masked = one.completion.token_ids[~one.completion.loss_mask]
    text = one.completion.text
    assert len(masked) and text.count("State the final answer") == len(
      np.flatnonzero(np.diff(one.completion.loss_mask.astype(int)) == -1)
    )
    assert not np.any(one.completion.logprobs[~one.completion.loss_mask])


def flags(tmp_path, **more):
  file = tmp_path / "sums.py"
  file.write_text(SUMS)
  changes = {"environment.spec": f"{file}:Sums(count=40)", **more}
  return training.flags("configs/environment.py:tiny", SMALL | changes)


def metrics_of(workdir):
  """Metrics by step, without those that depend on when a turn arrived.

  The arrival time decides which tokens are prefilled together, and so the last
  bits of their log-probabilities.
  """
  return [
    {k: v for k, v in metrics.items() if "logprob_gap" not in k}
    for metrics in training.metrics_of(workdir)
  ]


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 1])
def test_kills_change_no_metric(tmp_path, staleness):
  config = flags(
    tmp_path,
    **{
      "rollout.max_staleness": staleness,
      "environment.dynamic_sampling.max_prompts": 3,
    },
  )
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  training.finish(training.start(whole, 4, config=config))
  training.train_with_kills(cut, 4, config, (1, 3))
  assert metrics_of(cut) == metrics_of(whole)


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path):
  config = flags(tmp_path)
  one, two = tmp_path / "one", tmp_path / "two"
  training.finish(training.start(one, 2, config=config))
  training.train_on_two_processes(two, config)
  for mine, theirs in zip(metrics_of(two), metrics_of(one), strict=True):
    assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-4)


PUBLISHED = {
  "verifiers:stardata.envs.constraint_gym": "stardata",
  "verifiers:sophistry-bench-sprint": "sophistry_bench_sprint",
  "gem:game:GuessTheNumber-v0-easy": "gem",
  "gym:chain_sum(max_terms=3)": "reasoning_gym",
}


@pytest.mark.slow
@pytest.mark.parametrize("spec", PUBLISHED)
def test_published_environments_train_unchanged(spec, tmp_path, on_one_device):
  if importlib.util.find_spec(PUBLISHED[spec]) is None:
    pytest.skip(f"needs the package of {PUBLISHED[spec]}")
  config = environment.get_config("smollm2-135m")
  config.environment.spec = spec
  config.environment.prompts = 2
  config.rollout.slots = 8
  config.train.steps = 5
  run = pathlib.Path(tmp_path / "run")
  train.train(config, str(run))
  found = training.metrics_of(run)
  assert [metrics["step"] for metrics in found] == [1, 2, 3, 4, 5]
  assert all(metrics["failed/environment/fraction"] < 1 for metrics in found)
