"""Loads the model of commands that sample: a model spec, or a checkpoint."""

import dataclasses
import pathlib
from collections.abc import Callable

import jax.numpy as jnp
import ml_collections
from jax.sharding import Mesh

from azr_jax import types
from azr_jax.config import settings as settings_lib
from azr_jax.models import (
  adapters,
  load,
  presets,
  rope,
  sampling_params,
  tokenizers,
  transformer,
)
from azr_jax.models.settings import LoraSettings
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout import build as rollout_build
from azr_jax.rollout import layout
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.weights import Weights
from azr_jax.run import checkpoint, checkpoint_reading, storage
from azr_jax.run import folder as folder_lib
from azr_jax.run.console import print_status
from azr_jax.trainer import build, frozen, messages, restore, sizes
from azr_jax.trainer.settings import SamplingSettings

# The folder of the tokenizer that supervised training creates.
TOKENIZER = "tokenizer"


def checkpoint_step(model_spec: str) -> int | None:
  """Returns the step of a run's newest checkpoint, or None if not a run."""
  return checkpoint_reading.newest_step(storage.resolve(model_spec))


def read_run_config(folder: pathlib.Path) -> ml_collections.ConfigDict:
  """Returns the configuration in a run's folder.

  Raises:
    ValueError: the folder is not a run's, or its config.json is damaged.
  """
  return ml_collections.ConfigDict(folder_lib.read_config(folder))


def untrained(name: str, folder: pathlib.Path, seed: int) -> load.ModelSource:
  """Returns a preset with random weights and a run's tokenizer.

  Args:
    name: the name of the preset.
    folder: the run's folder, which holds the tokenizer.
    seed: the seed of the weights.
  """
  shape = presets.PRESETS[name]
  return load.ModelSource(
    shape,
    tokenizers.SentencePieceTokenizer(folder / TOKENIZER / "tokenizer.model"),
    load.random_params(shape, seed),
  )


@dataclasses.dataclass(frozen=True)
class Loaded:
  """A model, or a run's checkpoint, in memory.

  Attributes:
    source: the model, or the run's initial model.
    base: the frozen parameters of a model with adapters, stacked; else {}.
    trained: the adapters, or all parameters, stacked, float32.
    lora: the adapters' settings.
    base_run: the run whose parameters the base has, if not the source's.
  """

  source: load.ModelSource
  base: types.Params
  trained: types.Params
  lora: LoraSettings
  base_run: str = ""

  @property
  def params(self) -> types.Params:
    """All parameters."""
    return adapters.join(self.base, self.trained)


def load_model(
  settings: SamplingSettings,
  spec: str,
  mesh: Mesh,
  step: int | None = None,
  merges: bool = False,
) -> Loaded:
  """Loads a model spec, or a run's checkpoint, sharded on a mesh.

  Args:
    settings: the settings with sharding rules and the download folder.
    spec: a model spec, or the folder of a run.
    mesh: the mesh of the parameters.
    step: the checkpoint of a run. None means the newest.
    merges: whether the caller merges adapters: the frozen parameters are then
      float32. Otherwise they have `model.dtype`, or the 8 bits of a run.

  Raises:
    ValueError: the folder is neither a model nor a run with a checkpoint, or
      the run's initial model no longer exists.
    MemoryError: a device has no room for the weights.
  """
  rules = settings.sharding.rules()
  folder = storage.resolve(spec)
  if not (folder / checkpoint.FOLDER).is_dir():
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
      raise ValueError(
        f"{folder}: expected a run's folder with checkpoints, or a model's "
        "with config.json and safetensors"
      )
    source = load.resolve(spec, settings.model.cache_dir)
    return _load_source(settings, source, mesh, merges)
  config = read_run_config(folder)
  kind, _, name = config.model.source.partition(":")
  if kind == "preset":
    source = untrained(name, folder, config.seed)
  else:
    _require_path(folder, config.model.source)
    source = load.resolve(config.model.source, settings.model.cache_dir)
  section = config.to_dict().get("lora", {})
  lora = settings_lib.build(LoraSettings, section)
  lora = _with_dtype(lora, settings.model.dtype, merges)
  model = _decoder(source, settings.model.dtype, lora)
  dtype = lora.matrix_dtype(model.dtype)
  sizes.check_weights(model, dtype, mesh, rules)
  origin = frozen.read_origin(folder)
  base = restore.load_base(source, model, dtype, mesh, rules, origin)
  return Loaded(
    source,
    base,
    load_checkpoint(settings, folder, model, mesh, step),
    lora,
    origin.run if origin is not None else "",
  )


def _load_source(
  settings: SamplingSettings,
  source: load.ModelSource,
  mesh: Mesh,
  merges: bool,
) -> Loaded:
  """Loads a model that no run of this library trained."""
  rules = settings.sharding.rules()
  lora = LoraSettings()
  if source.lora is not None:
    lora = LoraSettings(**vars(source.lora))
  lora = _with_dtype(lora, settings.model.dtype, merges)
  model = _decoder(source, settings.model.dtype, lora)
  dtype = lora.matrix_dtype(model.dtype)
  sizes.check_weights(model, dtype, mesh, rules)
  base = frozen.load_base(source, model, dtype, mesh, rules)
  load_trained = source.load_adapters or source.load_params
  return Loaded(source, base, load_trained(mesh, rules), lora)


def _with_dtype(lora: LoraSettings, dtype: str, merges: bool) -> LoraSettings:
  """Returns the settings with the dtype of frozen parameters in memory.

  Args:
    lora: section `lora` of a run.
    dtype: the compute dtype.
    merges: as for `load_model`.
  """
  if merges:
    dtype = "float32"
  elif lora.kernel_dtype is not None:
    dtype = lora.base_dtype
  return dataclasses.replace(lora, base_dtype=dtype)


def _decoder(
  source: load.ModelSource, dtype: str, lora: LoraSettings
) -> transformer.Transformer:
  """Returns a decoder with a model's parameters, stacked."""
  return transformer.Transformer(
    source.config,
    jnp.dtype(dtype),
    lora=lora.adapters,
    kernel_dtype=lora.kernel_dtype,
  )


def _require_path(folder: pathlib.Path, source: str) -> None:
  """Raises ValueError if a run's initial model is a path that is missing."""
  if ":" in source or pathlib.Path(source).expanduser().exists():
    return
  raise ValueError(
    f"{folder} has config.model.source={source!r}, which does not exist in "
    f"{pathlib.Path.cwd()}: expected the folder that the run was started in"
  )


def load_checkpoint(
  settings: SamplingSettings,
  folder: pathlib.Path,
  model: transformer.Transformer,
  mesh: Mesh,
  step: int | None = None,
) -> types.Params:
  """Loads the trained parameters of a run's checkpoint, sharded on a mesh.

  Args:
    settings: the settings with sharding rules.
    folder: the run's folder.
    model: a decoder with the run's config and adapters.
    mesh: the mesh of the parameters.
    step: the step of the checkpoint. None means the newest.

  Raises:
    ValueError: the run has no such checkpoint.
  """
  with checkpoint_reading.open_to_read(folder, step) as (checkpoints, step):
    abstract = mesh_lib.sharded_shapes(
      transformer.abstract_trained(model), mesh, settings.sharding.rules()
    )
    (params,) = checkpoints.restore_params(step, abstract)
  return params


def load_policy(
  settings: SamplingSettings,
  spec: str,
  step: int | None = None,
  workload: Callable[[Tokenizer], sizes.Workload] | None = None,
  *,
  keeps_to_context: bool = False,
) -> Policy:
  """Loads a model spec or run folder for sampling.

  Only the weights that sampling reads stay in memory. Slots and cache are as
  large as the workload needs and memory allows.

  Args:
    settings: the sections of the command. The seed creates the policy's key.
    spec: a model spec, or the folder of a run.
    step: the checkpoint of a run. None means the newest.
    workload: the workload by tokenizer. None if unknown.
    keeps_to_context: whether the command itself limits responses to the model's
      maximum length.

  Raises:
    MemoryError: a device has no room for the weights, or for the cache of one
      sequence.
  """
  available = memory.available_bytes()
  mesh = mesh_lib.make_mesh(settings.mesh.sizes())
  layout.rollout_mesh(settings.rollout.mesh, mesh)  # Checked before a download.
  loaded = load_model(settings, spec, mesh, step)
  source = loaded.source
  rollout = settings.rollout
  if workload is not None:
    rollout = sizes.for_workload(rollout, workload(source.tokenizer))
  longest = 0 if keeps_to_context else rollout.longest + 1
  messages.announce_model(source, longest)
  rules = settings.sharding.rules()
  model = build.build_model(
    settings.model,
    rope.for_length(source.config, rollout.longest + 1),
    mesh,
    rules,
    rows=None,
    sampler_bytes=None,
    lora=loaded.lora,
  )
  sampling = layout.rollout_mesh_with_copies(model, mesh, rules, rollout)
  if sampling != mesh:
    print_status(
      f"sampling on {dict(sampling.shape)}; config.rollout.mesh sets another"
    )
  if workload is not None:
    rollout = sizes.without_spare_pages(model, sampling, rules, rollout)
  if available is not None:
    given = rollout.cache_gib
    rollout = sizes.fit_cache(model, sampling, rules, rollout, available)
    if rollout.cache_gib != given:
      print_status(sizes.describe(rollout))
  base, shares_base = loaded.base, False
  if base:
    shares_base = frozen.is_shared(
      loaded.lora, rollout, settings.model.dtype, mesh, sampling
    )
  if shares_base:
    layout_of = rollout_build.sampling_model(model, mesh, rules, rollout)
    base = sampling_params.arrange(layout_of, base)
  sampler = Sampler(
    model, source.tokenizer, sampling, rules, rollout, shares_base
  )
  params = sampler.compute_params(adapters.join(base, loaded.trained))
  return Policy(
    sampler,
    source.tokenizer,
    Weights(params),
    keys.of(settings.seed, Purpose.EVALUATION),
    base=base,
  )
