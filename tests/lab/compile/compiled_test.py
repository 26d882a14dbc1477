"""Tests ahead-of-time compilation, on virtual devices and for real TPUs."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import jax
import pytest
import training

from azr_jax.configs import azr
from azr_jax.lab.compile import compiled, cost, program_report
from azr_jax.models import load
from azr_jax.parallel import chips
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.run import compile_counter
from azr_jax.trainer import settings

CHIP = chips.TPUS["v5p"]
ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.slow
def test_every_program_compiles_on_a_mesh():
  config = azr.get_config("tiny")
  config.model.remat = "full"
  config.learner.kl_coef = 0.1
  config.learner.estimator = "gae"
  config.learner.epochs = 2
  config.learner.top_entropy_fraction = 0.2
  config.rollout.extend_chunk = 8
  config.rollout.mesh.data = 4
  config.rollout.mesh.fsdp = 1
  config.rollout.mesh.tensor = 2
  mesh = mesh_lib.make_mesh({"data": 1, "fsdp": 4, "tensor": 2})
  model_config = load.config_of(config.model.source, config.model.cache_dir)
  c = settings.read_train(config).shared
  found = {p.name: p for p in compiled.compile_all(c, model_config, mesh)}
  names = ["start_copy", "start_critic", "start_policy", "restore"]
  names += ["weights", "prefill", "prefill_64", "prefill_8"]
  names += ["decode", "decode_24", "decode_8", "decode_4", "score"]
  names += ["estimate", "critic", "prepare", "update"]
  assert list(found) == names
  state = 3 * 4 * 1_728_192 / 8  # Parameters and two moments, in shards.
  assert found["update"].program_bytes > state
  assert found["critic"].program_bytes > state
  # A restored state is two networks with two moments each, plus the reference.
  # No startup program holds a second state.
  restored = 2 * state + state / 3
  assert found["restore"].peak_bytes == pytest.approx(restored, rel=0.02)
  for name in ("start_copy", "start_critic", "start_policy"):
    assert 0 < found[name].peak_bytes < 1.05 * restored
  assert found["prefill"].resident_bytes > 2 * state
  # The critic's state stays in memory while the policy is updated.
  assert found["update"].resident_bytes > state
  assert found["update"].collectives["all-gather"].bytes > 0
  # The forecast of a step finds its costs by these names.
  loops = {name: p.cost.loop_names() for name, p in found.items()}
  assert loops["critic"] == [cost.OPTIMIZER_STEP, cost.MICRO_BATCH]
  for name in ("estimate", "prepare", "update"):
    assert loops[name] == [cost.MICRO_BATCH]
  assert cost.TOKEN in loops["decode"]
  assert not any(p.overflow for p in found.values())
  assert not any(p.error for p in found.values())
  for p in found.values():  # `compile_check --json` prints these.
    json.dumps(program_report.program_report(p, CHIP, {}, {}, {}))


def test_compiles_are_counted_once_and_by_name():
  def fresh_function(x):
    return x * 3 + 1

  with compile_counter.count_compiles() as counter:
    jitted = jax.jit(fresh_function)
    jitted(1.0)
    assert any("fresh_function" in name for name in counter.take())
    jitted(2.0)
    assert counter.take() == []


@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec("libtpu") is None,
  reason="needs the TPU compiler: pip install -e '.[tpu]'",
)
@pytest.mark.parametrize("topology", ["v5e:2x2", "v5p:2x2x1"])
def test_the_tpu_compiler_takes_every_program(topology):
  done = subprocess.run(
    [sys.executable, "-m", "azr_jax.compile_check", "--json"]
    + ["--config=configs/azr.py:tiny", f"--topology={topology}"],
    cwd=ROOT,
    env=training.environment(),
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-2000:]
  report = json.loads(done.stdout)
  assert report["devices"] == 4
  for program in report["programs"].values():
    assert program["fits"] and 0 < program["hbm_gib"] < 1
