"""Serves a base model for training and sampling until SIGTERM or Ctrl-C."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import ml_collections

from azr_jax.config import overrides
from azr_jax.learner.settings import SupervisedSettings
from azr_jax.models import adapters, transformer
from azr_jax.models.adapters import Lora
from azr_jax.models.settings import LoraSettings
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.policy import Policy
from azr_jax.run import storage
from azr_jax.run.console import print_status
from azr_jax.serving import command as serve_command
from azr_jax.serving.command import Address
from azr_jax.serving.decoding import DecodeWorker
from azr_jax.serving.http_server import HttpServer
from azr_jax.serving.settings import ServeSettings
from azr_jax.serving.tinker.checkpoints import Checkpoints
from azr_jax.serving.tinker.routes import Routes
from azr_jax.serving.tinker.service import Service
from azr_jax.serving.tinker.studio import Parts, Studio
from azr_jax.trainer import decoders, frozen, loading
from azr_jax.trainer import settings as train_settings
from azr_jax.verbs import rows


@memory.explained(memory.TRAINING_KEYS)
def serve(
  config: ml_collections.ConfigDict, spec: str, address: Address, folder: str
) -> None:
  """Serves a model for training until SIGTERM or Ctrl-C.

  Args:
    config: the config of `configs/serve.py`.
    spec: a model spec.
    address: where to listen.
    folder: the folder of saved states, created if missing.

  Raises:
    ValueError: a config value or the model is invalid.
    OSError: the server cannot listen on the address.
  """
  address.check()
  c = train_settings.read(ServeSettings, config)
  name = address.name or serve_command.model_name(spec)
  training = open_training(c, spec, folder, name)
  print_status("compiling the sampler")
  training.worker.warm_up()
  server = HttpServer(
    *(training.worker, training.served, address.api_key),
    *(c.serve.read_s, c.serve.timeout_s),
    training.routes,
  )
  port = server.start(address.host, address.port)
  url = f"http://{address.host}:{port}"
  print_status(f"training and sampling {name} at {url}")
  print_status(f"clients: TINKER_BASE_URL={url} TINKER_API_KEY=tml-local")
  serve_command.run_until_signal(training.worker, server, c.serve.drain_s)


@dataclasses.dataclass(frozen=True)
class Opened:
  """The parts of a server that trains.

  Attributes:
    worker: samples and trains.
    served: the base model as clients see it.
    routes: the paths of the API.
  """

  worker: DecodeWorker
  served: serve_command.ServedModel
  routes: Routes


def open_training(
  c: ServeSettings, spec: str, folder: str, name: str
) -> Opened:
  """Loads a base model and builds what trains on it. Compiles nothing.

  Args:
    c: all sections of the server.
    spec: a model spec.
    folder: the folder of saved states.
    name: the name of the base model.

  Raises:
    ValueError: a config value or the model is invalid.
  """
  limits = c.tinker
  stack = Lora(
    limits.max_rank, float(limits.max_rank), stacked=limits.max_adapters + 1
  )
  policy = loading.load_policy(c, spec, keeps_to_context=True, stack=stack)
  served = serve_command.served_model(c, policy, name, None)
  worker = serve_command.make_worker(policy, c, 0, snapshots=True)
  studio = Studio(_parts(c, spec, policy))
  checkpoints = Checkpoints(storage.resolve(folder))
  service = Service(
    *(worker, studio, checkpoints, served, _tokenizer_id(spec, name)),
    max_rank=limits.max_rank,
    max_models=limits.max_models,
    max_snapshots=limits.max_snapshots,
    idle_s=limits.idle_s,
  )
  return Opened(worker, served, Routes(service, served))


def _parts(c: ServeSettings, spec: str, policy: Policy) -> Parts:
  """Returns what a studio is built from."""
  engine, limits = policy.sampler.engine, c.tinker
  rules, mesh = c.sharding.rules(), mesh_lib.make_mesh(c.mesh.sizes())
  longest = limits.row_length or c.rollout.longest + 1
  learner = SupervisedSettings(
    row_length=longest,
    max_sequences_per_row=limits.max_sequences_per_row,
    micro_rows=limits.micro_rows,
    chunk_tokens=limits.chunk_tokens,
  )
  weights = policy.weights.params
  assert weights is not None
  is_shared = frozen.is_placed(mesh, engine.mesh)

  def decoder(lora: Lora | None) -> transformer.Transformer:
    settings = LoraSettings()
    if lora is not None:
      settings = LoraSettings.describing(lora)
    model = decoders.build_model(
      *(c.model, engine.model.config, mesh, rules),
      rows=learner,
      sampler_bytes=None,
      lora=settings,
    )
    if lora is None or not is_shared:
      return model
    sampled = engine.model
    return model.clone(
      fused=sampled.fused,
      unrolled=sampled.unrolled,
      kernel_dtype=sampled.kernel_dtype,
      inlined=model.inlined and not sampled.unrolled,
      joined=False,
    )

  return Parts(
    decoder=decoder,
    base=adapters.base_of(weights) if is_shared else policy.base,
    load_all=lambda: loading.load_model(c, spec, mesh).trained,
    engine=engine,
    mesh=mesh,
    rules=rules,
    shapes=rows.shapes(
      mesh_lib.padded_rows(limits.micro_rows, mesh),
      longest,
      mesh_lib.padded_rows(1, mesh),
      limits.max_sequences_per_row,
      engine.model.config.hidden_size,
    ),
    chunk_tokens=limits.chunk_tokens,
    config=lambda lora: _run_config(c, spec, lora),
  )


def _run_config(
  c: ServeSettings, spec: str, lora: Lora | None
) -> Mapping[str, Any]:
  """Returns the configuration of a run that trains such a model."""
  config = train_settings.train_config(train_settings.TrainSettings().system)
  for name in ("model", "mesh", "sharding", "rollout"):
    config[name].update(overrides.to_config(getattr(c, name)))
  path = pathlib.Path(spec).expanduser()
  config.model.source = str(path.absolute()) if path.exists() else spec
  if lora is not None:
    config.lora.update(overrides.to_config(LoraSettings.describing(lora)))
  config.seed = c.seed
  return config.to_dict()


def _tokenizer_id(spec: str, name: str) -> str:
  """Returns where clients find the tokenizer: a folder here, or on the hub."""
  path = pathlib.Path(spec).expanduser()
  if path.is_dir():
    return str(path.absolute())
  return spec.removeprefix("hf:") if spec.startswith("hf:") else name
