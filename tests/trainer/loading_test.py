"""The models and checkpoints that commands load for sampling."""

import json

import jax
import pytest
from restored_state import MESH, same

from azr_jax.configs import evaluate, sft
from azr_jax.learner import learner as learner_lib
from azr_jax.learner import train_state
from azr_jax.learner.optimizer import make_optimizer
from azr_jax.models import load, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.run.checkpoint import Checkpointer
from azr_jax.trainer import loading, settings
from azr_jax.trainer.settings import EvaluateSettings


def supervised_run(folder, steps):
  """Writes a run folder whose checkpoint N has the weights of seed N."""
  config = sft.get_config("smoke")
  (folder / "tokenizer").mkdir(parents=True)
  embedded = load.EMBEDDED["azr-tiny"] / "tokenizer.model"
  (folder / "tokenizer" / embedded.name).write_bytes(embedded.read_bytes())
  (folder / "config.json").write_text(json.dumps(config.to_dict()))
  mesh = mesh_lib.make_mesh(MESH)
  rules = settings.read_supervised(config).shared.sharding.rules()
  optimizer = make_optimizer(
    **vars(settings.read_supervised(config).shared.optimizer)
  )
  with Checkpointer(folder, keep=None) as checkpoints:
    for step in steps:
      source = loading.untrained("azr-tiny", folder, seed=step)
      model = transformer.Transformer(source.config)
      abstract = learner_lib.abstract_state(model, optimizer, mesh, rules)
      shardings = jax.tree.map(lambda x: x.sharding, abstract)
      init = train_state.make_init_state(optimizer, shardings)
      checkpoints.save(step, init(source.load_params(mesh, rules)), {})


@pytest.mark.slow
def test_a_supervised_run_from_scratch_is_loaded_at_any_step(tmp_path):
  supervised_run(tmp_path, (1, 2))
  config = evaluate.get_config()
  config.mesh.update(MESH)
  c = settings.read(EvaluateSettings, config)
  assert loading.checkpoint_step(str(tmp_path)) == 2
  mesh = mesh_lib.make_mesh(c.mesh.sizes())
  newest = loading.load_model(c, str(tmp_path), mesh)
  first = loading.load_model(c, str(tmp_path), mesh, step=1)
  for params, seed in ((newest.params, 2), (first.params, 1)):
    drawn = loading.untrained("azr-tiny", tmp_path, seed)
    assert same(params, drawn.load_params(mesh, c.sharding.rules()))
  text = "def f(x):"
  tokenizer = newest.source.tokenizer
  assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_folder_that_is_no_model_is_refused(tmp_path):
  mesh = mesh_lib.make_mesh(MESH)
  c = settings.read(EvaluateSettings, evaluate.get_config())
  with pytest.raises(ValueError, match="expected a run's folder with checkpoi"):
    loading.load_model(c, str(tmp_path), mesh)
  assert loading.checkpoint_step(str(tmp_path)) is None
  (tmp_path / "checkpoints").mkdir()
  with pytest.raises(ValueError, match="expected the folder of a run"):
    loading.load_model(c, str(tmp_path), mesh)


def test_a_run_whose_first_model_is_not_here_names_it(tmp_path):
  (tmp_path / "checkpoints").mkdir()
  config = {"model": {"source": "warm/model"}}
  (tmp_path / "config.json").write_text(json.dumps(config))
  c = settings.read(EvaluateSettings, evaluate.get_config())
  with pytest.raises(
    ValueError, match="which does not exist in .*the run was started"
  ):
    loading.load_model(c, str(tmp_path), mesh_lib.make_mesh(MESH))
