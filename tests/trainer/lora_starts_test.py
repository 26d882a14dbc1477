"""Runs with adapters that start from other runs, with or without adapters."""

import jax
import numpy as np
import pytest

from azr_jax.config.settings import Invalid
from azr_jax.configs import custom, evaluate
from azr_jax.configs import serve as serve_config
from azr_jax.models import adapters
from azr_jax.run import session
from azr_jax.run.checkpoint import Checkpointer
from azr_jax.serving import command
from azr_jax.serving.settings import ServeSettings
from azr_jax.trainer import build, frozen, loading, restore, settings
from azr_jax.trainer.settings import EvaluateSettings

pytestmark = pytest.mark.usefixtures("two_devices")
LORA = {"lora.rank": 2, "lora.targets": ("q", "down")}


def config_of(**changes):
  config = custom.get_config("tiny")
  config.mesh.data, config.mesh.fsdp = 2, 1
  config.update_from_flattened_dict(changes)
  return config


def opened(config, folder):
  """Opens a run as training does; saves a state, or the one it starts with."""
  experiment = build.build(settings.read_train(config))
  with session.open_run(str(folder), config.to_dict(), 1.0) as run:
    with run.open_checkpoints(1) as checkpoints:
      begun, fixed, _ = restore.training_state(experiment, run, checkpoints, 0)
      shift = np.float32(len(str(folder)) / 1e4)
      moved = begun.replace(
        params=jax.tree.map(lambda x: x + shift, begun.params)
      )
      with Checkpointer(folder, keep=None) as saved:
        saved.save(4, moved, {})
  return jax.device_get((begun.params, fixed.base, moved.params))


@pytest.fixture(scope="module", name="runs")
def make_runs(tmp_path_factory):
  """Three runs: of everything, of adapters on it, and of the same adapters."""
  folder = tmp_path_factory.mktemp("runs")
  whole, first, second = (folder / name for name in ("whole", "one", "second"))
  made = {whole: opened(config_of(), whole)}
  start = {"train.init_from_run": str(whole)}
  made[first] = opened(config_of(**LORA, **start), first)
  start = {"train.init_from_run": str(first)}
  made[second] = opened(config_of(**LORA, **start), second)
  return (whole, first, second), made


def test_a_whole_run_is_the_base_of_all_that_follow(runs):
  (whole, first, second), made = runs
  source = build.build(settings.read_train(config_of())).source
  _, _, trained = made[whole]
  for folder in (first, second):
    origin = frozen.read_origin(folder)
    assert origin == frozen.Origin(source.spec, str(whole), 4)
    _, base, _ = made[folder]
    assert frozen.identity(base) == frozen.identity(trained)
  started, _, _ = made[second]
  jax.tree.map(np.testing.assert_array_equal, started, made[first][2])


def test_what_samples_loads_base_and_adapters(runs):
  (_, _, second), made = runs
  c = settings.read(EvaluateSettings, evaluate.get_config("problems_tiny"))
  mesh = build.build(settings.read_train(config_of())).mesh
  loaded = loading.load_model(c, str(second), mesh)
  _, base, moved = made[second]
  assert frozen.identity(loaded.base) == frozen.identity(base)
  jax.tree.map(np.testing.assert_array_equal, loaded.trained, moved)


def test_a_server_swaps_adapters_alone(runs):
  (_, _, second), _ = runs
  config = serve_config.get_config()
  config.rollout.update({"slots": 8, "prompt_buckets": (16,), "max_tokens": 8})
  c = settings.read(ServeSettings, config)
  policy = loading.load_policy(c, str(second))
  swapped = command.checkpoint_loader(c, str(second), policy)(4)
  again = policy.sampler.compute_params(swapped)
  jax.tree.map(np.testing.assert_array_equal, again, policy.params)
  for one, other in zip(
    jax.tree.leaves(adapters.base_of(swapped)),
    jax.tree.leaves(policy.base),
    strict=True,
  ):
    assert one is other


@pytest.mark.parametrize(
  "changes",
  [
    LORA | {"lora.alpha": 8.0},
    LORA | {"lora.targets": ("q",)},
    LORA | {"lora.rank": 4},
    {},
  ],
  ids=["alpha", "targets", "rank", "none"],
)
def test_other_adapters_than_the_start_s_are_refused(runs, tmp_path, changes):
  (_, first, _), _ = runs
  start = {"train.init_from_run": str(first)}
  with pytest.raises(Invalid, match="config.lora=.*adapters of config.tr"):
    opened(config_of(**changes, **start), tmp_path / "run")


def test_another_model_than_the_start_s_is_refused(runs, tmp_path):
  (_, first, _), _ = runs
  start = {
    "train.init_from_run": str(first),
    "model.source": "embedded:countdown-tiny",
  }
  with pytest.raises(Invalid, match="config.model.source='embedded:countdown"):
    opened(config_of(**LORA, **start), tmp_path / "run")


def test_moments_need_a_start_with_adapters(runs, tmp_path):
  (whole, first, _), _ = runs
  start = {"train.keep_moments": True, "train.init_from_run": str(whole)}
  with pytest.raises(ValueError, match="keep_moments=True: expected a run"):
    opened(config_of(**LORA, **start), tmp_path / "run")
  start["train.init_from_run"] = str(first)
  started, _, _ = opened(config_of(**LORA, **start), tmp_path / "other")
  assert jax.tree.leaves(started)
