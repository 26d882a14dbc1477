"""Models to start from: a model spec, or the newest checkpoint of a run."""

import dataclasses
import json
import pathlib
from typing import Any

import ml_collections
from jax.sharding import Mesh

from azr_jax import types
from azr_jax.learner import advantages
from azr_jax.learner import learner as learner_lib
from azr_jax.learner.critic import ActorCritic
from azr_jax.learner.optimizer import make_optimizer
from azr_jax.models import load, transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.sampler import Sampler
from azr_jax.run import storage
from azr_jax.run.checkpoint import Checkpointer
from azr_jax.trainer import build
from azr_jax.trainer import settings as settings_lib
from azr_jax.trainer.build import Experiment
from azr_jax.trainer.settings import SamplingSettings


def initial_params(experiment: Experiment) -> tuple[types.Params, ...]:
  """Returns the parameters to start from: the policy's, perhaps the critic's.

  Raises:
    ValueError: `train.init_from_run` is a run without a checkpoint.
  """
  spec = experiment.settings.trunk.train.init_from_run
  if not spec:
    return (experiment.load_params(),)
  folder = storage.resolve(spec)
  checkpoints = Checkpointer(folder, keep=None)
  step = checkpoints.latest_step()
  if step is None:
    raise ValueError(
      f"config.train.init_from_run={str(folder)!r}: expected a run's folder "
      "with a finished checkpoint"
    )
  state, _ = checkpoints.restore(step, experiment.learner.abstract)
  checkpoints.close()
  if isinstance(state, ActorCritic):
    return state.params, state.critic.params
  return (state.params,)


def checkpoint_step(model_spec: str) -> int | None:
  """Returns the step of a run's newest checkpoint; None: it is no run."""
  folder = storage.resolve(model_spec)
  if not (folder / "checkpoints").is_dir():
    return None
  checkpoints = Checkpointer(folder, keep=None)
  step = checkpoints.latest_step()
  checkpoints.close()
  return step


def read_run_config(folder: pathlib.Path) -> ml_collections.ConfigDict:
  """Returns the configuration that a run's folder holds.

  Raises:
    ValueError: the folder is none of a run, or its config.json is damaged.
  """
  path = folder / "config.json"
  if not path.exists():
    raise ValueError(f"{folder}: expected the folder of a run")
  try:
    return ml_collections.ConfigDict(json.loads(path.read_text("utf-8")))
  except ValueError as error:
    raise ValueError(f"{path}: expected JSON ({error})") from None


def load_model(
  c: SamplingSettings, spec: str, mesh: Mesh
) -> tuple[load.ModelSource, types.Params]:
  """Loads a model spec, or a run's newest checkpoint, into its shards.

  Raises:
    ValueError: the folder is no model and no run with a checkpoint.
  """
  rules = c.sharding.rules()
  folder = storage.resolve(spec)
  if not (folder / "checkpoints").is_dir():
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
      raise ValueError(
        f"{folder}: expected a run's folder with checkpoints, or a model's "
        "with config.json and safetensors"
      )
    source = load.resolve(spec, c.model.cache_dir)
    return source, source.load_params(mesh, rules)
  config = read_run_config(folder)
  source = load.resolve(config.model.source, c.model.cache_dir)
  model = transformer.Transformer(source.config)
  checkpoints = Checkpointer(folder, keep=None)
  step = checkpoints.latest_step()
  if step is None:
    raise ValueError(f"{folder} holds no finished checkpoint")
  abstract = _abstract_state(config, model, mesh, rules)
  state, _ = checkpoints.restore(step, abstract)
  checkpoints.close()
  return source, state.params


def _abstract_state(
  config: ml_collections.ConfigDict,
  model: transformer.Transformer,
  mesh: Mesh,
  rules: dict[str, str | None],
) -> Any:
  """Returns shapes and shardings of the state of a run, or of `azr_jax.sft`."""
  if "system" not in config:
    c = settings_lib.read_supervised(config).trunk
    return learner_lib.abstract_state(
      model, make_optimizer(c.optimizer), mesh, rules
    )
  trunk = settings_lib.read_train(config).trunk
  critic = None
  if trunk.learner.estimator == advantages.GAE:
    critic = make_optimizer(trunk.critic.optimizer)
  return learner_lib.abstract_state(
    model, make_optimizer(trunk.optimizer), mesh, rules, critic
  )


@dataclasses.dataclass(frozen=True)
class LoadedModel:
  """A model that can be sampled."""

  source: load.ModelSource
  model: transformer.Transformer
  mesh: Mesh
  params: types.Params

  def make_sampler(self, c: SamplingSettings) -> Sampler:
    """Returns a sampler by sections `rollout` and `sharding`."""
    return Sampler(
      self.model,
      self.source.tokenizer,
      build.rollout_mesh(c.rollout.mesh, self.mesh),
      c.sharding.rules(),
      c.rollout,
    )


def load_for_sampling(c: SamplingSettings, spec: str) -> LoadedModel:
  """Loads a model spec or run folder as the commands that sample do."""
  mesh = mesh_lib.make_mesh(c.mesh.sizes())
  source, params = load_model(c, spec, mesh)
  model = build.build_model(c.model, source.config, mesh)
  return LoadedModel(source, model, mesh, params)
