"""Runs that train adapters: killed, on two processes, exported, resumed."""

import subprocess
import sys

import numpy as np
import pytest
import training

from azr_jax.config import user_files
from azr_jax.models import load, transformer
from azr_jax.models.adapters import Lora
from azr_jax.parallel.settings import ShardingSettings
from azr_jax.run import session
from azr_jax.trainer import frozen

RULES = ShardingSettings().rules()
CHANGES = {
  "lora.rank": 4,
  "optimizer.learning_rate": 1e-3,
  "critic.optimizer.learning_rate": 1e-3,
  "learner.kl_coef": 0.01,
  "orz.prompts": 4,
  "orz.group_size": 4,
  "rollout.slots": 16,
  "learner.micro_rows": 4,
  "learner.max_micro_batches": 4,
  "train.save_every": 1,
  "evaluation.every": 0,
}
ORZ = training.flags("configs/orz.py:tiny", CHANGES)


@pytest.fixture(scope="module", name="run")
def make_run(tmp_path_factory):
  """A run of ORZ, whose critic has adapters too."""
  return training.make_once(
    tmp_path_factory,
    "lora_run",
    lambda folder: training.finish(training.start(folder, 3, config=ORZ)),
  )


@pytest.mark.slow
def test_a_checkpoint_holds_adapters_alone(run):
  size = sum(path.stat().st_size for path in (run / "checkpoints/3").rglob("*"))
  # The model has 1.6M parameters of 4 bytes.
  assert size < 4 * 1.6e6 / 2
  identity = user_files.read_object(run / "base.json")
  assert identity["source"] == "embedded:orz-tiny"


@pytest.mark.slow
def test_kills_change_nothing(run, tmp_path):
  training.train_with_kills(tmp_path, 3, ORZ, [1, 2])
  assert training.metrics_of(tmp_path) == training.metrics_of(run)


@pytest.mark.slow
def test_a_cut_run_resumes_with_the_same_metrics(run, tmp_path):
  copy = tmp_path / "copy"
  training.copy_cut_after(2, run, copy)
  training.finish(training.start(copy, 3, config=ORZ))
  assert training.metrics_of(copy) == training.metrics_of(run)


@pytest.mark.slow
def test_two_processes_train_as_one_does(run, tmp_path):
  training.train_on_two_processes(tmp_path, (*ORZ, "--config.train.steps=2"))
  for mine, theirs in zip(
    training.metrics_of(tmp_path), training.metrics_of(run), strict=False
  ):
    assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
  "changes",
  [{"rollout.max_staleness": 1}, {"rollout.step_tokens": 24}],
  ids=["one step ahead", "partial"],
)
@pytest.mark.slow
def test_overlapping_steps_resume(tmp_path, changes):
  config = training.flags("configs/orz.py:tiny", CHANGES | changes)
  run, killed = tmp_path / "run", tmp_path / "killed"
  training.finish(training.start(run, 3, config=config))
  training.train_with_kills(killed, 3, config, [2])
  assert training.metrics_of(killed) == training.metrics_of(run)


def test_another_base_is_refused(tmp_path):
  base = {"kernel": np.ones((3, 4), np.float32)}
  for name in ("one", "other"):
    with session.open_run(str(tmp_path), {}, 1.0) as opened:
      frozen.pin(base, frozen.Origin(f"embedded:{name}"), opened)
  with session.open_run(str(tmp_path), {}, 1.0) as opened:
    with pytest.raises(ValueError, match="expected .* whose adapters"):
      base["kernel"][0, 0] += 1e-6
      frozen.pin(base, frozen.Origin("embedded:one"), opened)


def test_another_teacher_is_refused(tmp_path):
  teacher = {"kernel": np.ones((3, 4), np.float32)}
  for _ in range(2):
    with session.open_run(str(tmp_path), {}, 1.0) as opened:
      frozen.pin_teacher(None, "", opened)
      frozen.pin_teacher(teacher, "hf:ONE/ONE", opened)
  with session.open_run(str(tmp_path), {}, 1.0) as opened:
    with pytest.raises(ValueError, match="expected .* which taught"):
      teacher["kernel"][0, 0] += 1e-6
      frozen.pin_teacher(teacher, "hf:ONE/ONE", opened)


def test_a_layout_does_not_change_a_base_s_identity(one_device_mesh):
  source = load.resolve("embedded:orz-tiny", "unused")
  model = transformer.Transformer(source.config, lora=Lora(2, 4.0))
  plain, arranged = (
    frozen.load_base(source, one, np.float32, one_device_mesh, RULES)
    for one in (model, model.clone(fused=True, unrolled=True))
  )
  assert frozen.identity(plain) == frozen.identity(arranged)
  scale = plain["final_norm"]["scale"]
  changed = plain | {"final_norm": {"scale": scale.at[0].add(1e-6)}}
  assert frozen.identity(changed) != frozen.identity(plain)


@pytest.mark.slow
def test_supervised_adapters_start_a_run(tmp_path):
  sft = [
    sys.executable,
    "-m",
    "azr_jax.sft",
    "--config=configs/sft.py:orz_tiny",
  ]
  changes = {
    "model.source": "embedded:orz-tiny",
    "lora.rank": 4,
    "arithmetic.count": 400,
    "optimizer.learning_rate": 1e-3,
    "optimizer.muon_learning_rate": 0.0,
    "optimizer.warmup_steps": 0,
    "optimizer.decay_steps": 0,
    "train.steps": 3,
  }
  flags = [f"--config.{key}={value}" for key, value in changes.items()]
  subprocess.run(
    [*sft, "--config=configs/sft.py:orz_tiny", *flags]
    + [f"--workdir={tmp_path / 'sft'}"],
    cwd=training.ROOT,
    env=training.environment(),
    check=True,
  )
  adapter = tmp_path / "sft/model"
  assert (adapter / "adapter_model.safetensors").exists()
  more = {"model.source": str(adapter), "train.steps": 1}
  config = training.flags("configs/orz.py:tiny", CHANGES | more)
  run = tmp_path / "run"
  training.finish(training.start(run, 1, config=config))
  identity = user_files.read_object(run / "base.json")
  assert identity["source"] == str(adapter)
