"""A forty-line system in a file outside the repository."""

import json
import subprocess
import sys

import pytest
import training
from typed import present

from azr_jax import train
from azr_jax.cli import config_files
from azr_jax.config.settings import Invalid
from azr_jax.configs import azr
from azr_jax.report import command
from azr_jax.run import session
from azr_jax.trainer import settings

SYSTEM = '''"""Rewards the longest run of one letter."""

import dataclasses
import itertools

from azr_jax.config.settings import Settings, setting
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.systems import collect
from azr_jax.systems.system import System
from azr_jax.types import RolloutBatch, Trajectory


@dataclasses.dataclass(frozen=True)
class RunsSettings(Settings):
  prompts: int = setting(3, "prompts per step", minimum=1)
  group_size: int = setting(2, "responses to each prompt", minimum=2)


class Runs(System):
  name = "runs"
  Settings = RunsSettings
  best = 0

  async def collect(self, policy, step):
    c = self.settings
    rng = streams.generator(self.context.seed, Purpose.SYSTEM, step)
    letters = rng.choice(list("abcdefgh"), c.prompts)
    prompts = [policy.prompt(f"Repeat {x}: ") for x in letters]
    trajectories = []
    samples = [one async for one in policy.sample(prompts, c.group_size)]
    for index, _, done in sorted(samples, key=lambda one: one[:2]):
      runs = [len([*run]) for _, run in itertools.groupby(done.text)]
      self.best = max([self.best, *runs])
      reward = max(runs, default=0) / 10
      trajectories.append(Trajectory(prompts[index], done, reward, index))
    metrics = collect.solve_metrics(trajectories, "runs/solve", c.group_size)
    return RolloutBatch(trajectories, metrics | {"best/runs": self.best})

  def state_dict(self):
    return {"best": self.best}

  def load_state_dict(self, state):
    self.best = state["best"]
'''


def config_of(path, steps):
  config = settings.switch_system(azr.get_config("tiny"), f"{path}:Runs")
  config.learner.estimator = "grpo"
  config.evaluation.every = 0
  config.rollout.slots = 8
  config.rollout.prompt_buckets = (32,)
  config.rollout.max_tokens = 16
  config.learner.row_length = 48
  config.learner.micro_rows = 8
  config.learner.max_micro_batches = 3
  config.train.steps = steps
  config.train.save_every = 1
  return config


def metrics_of(folder):
  return [row | {"compile/count": 0} for row in training.metrics_of(folder)]


@pytest.mark.slow
def test_it_trains_is_logged_saved_resumed_and_reported(tmp_path, monkeypatch):
  compared = []
  monkeypatch.setattr(
    session.Run,
    "assert_same",
    lambda run, what, *arrays: compared.append(sum(x.nbytes for x in arrays)),
  )
  path = tmp_path / "runs_of_letters.py"
  path.write_text(SYSTEM)
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  train.train(config_of(path, 3), str(whole))
  # Hosts compare ten arrays of the one micro-batch that six responses need.
  assert compared == [10 * 8 * 48 * 4] * 3
  training.copy_cut_after(2, whole, cut)
  train.train(config_of(path, 3), str(cut))
  assert [row["step"] for row in metrics_of(cut)] == [1, 2, 3]
  assert metrics_of(cut) == metrics_of(whole)
  assert "reward/runs/solve/mean" in metrics_of(whole)[0]
  assert (whole / "checkpoints" / "3").is_dir()
  assert json.loads((whole / "config.json").read_text())["runs"] == {
    "prompts": 3,
    "group_size": 2,
  }
  out = str(tmp_path / "report.html")
  command.write(command.PageRequest((str(whole),), out))
  assert "runs" in (tmp_path / "report.html").read_text()


def test_it_need_not_know_of_paused_groups(tmp_path):
  path = tmp_path / "unpaused_runs.py"
  path.write_text(SYSTEM)
  config = config_of(path, 1)
  config.rollout.step_tokens = 8
  with pytest.raises(Invalid, match="step_tokens=8: expected 0, because sys"):
    settings.read_train(config)


def test_its_keys_are_flags_of_the_command(tmp_path):
  path = tmp_path / "more_runs.py"
  path.write_text(SYSTEM)
  words = [
    "azr-train",
    "--config=configs/orz.py:tiny",
    f"--config.system={path}:Runs",
    "--config.runs.prompts=5",
  ]
  resolved = config_files.resolve_argument(words)
  config_files.check_overrides(resolved)
  config = present(config_files.named(resolved))
  assert config.runs.prompts == 3 and "orz" not in config
  done = subprocess.run(
    [sys.executable, "-m", "azr_jax.train", *words[1:], "--help"],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=100,
    check=True,
  )
  assert "runs.group_size = 2" in done.stdout
  assert "responses to each prompt" in done.stdout
