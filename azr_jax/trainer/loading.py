"""Loads the model of commands that sample: a model spec, or a checkpoint."""

import dataclasses
import pathlib
from collections.abc import Callable

import jax.numpy as jnp
import ml_collections
from jax.sharding import Mesh

from azr_jax import types
from azr_jax.config import settings as settings_lib
from azr_jax.learner import value_model
from azr_jax.models import (
  adapters,
  load,
  presets,
  rope,
  sampling_params,
  tokenizers,
  transformer,
)
from azr_jax.models.adapters import Lora
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
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.weights import Weights
from azr_jax.run import checkpoint, checkpoint_reading, storage
from azr_jax.run import folder as folder_lib
from azr_jax.run.console import print_status
from azr_jax.trainer import decoders, frozen, messages, restore, sizes
from azr_jax.trainer.settings import SamplingSettings

# The folder of the tokenizer that supervised training creates.
TOKENIZER = "tokenizer"


def is_run(model_spec: str) -> bool:
  """Returns whether a model spec is the folder of a run with checkpoints."""
  return bool(checkpoint_reading.finished_steps(storage.resolve(model_spec)))


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
    base: the frozen parameters, stacked; {} if all may be trained.
    trained: the adapters, or all parameters, stacked, float32.
    lora: the settings of adapters, own or added.
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
  *,
  samples: bool = False,
  adds: Lora | None = None,
  is_critic: bool = False,
) -> Loaded:
  """Loads a model spec, or a run's checkpoint, sharded on a mesh.

  Args:
    settings: the settings with sharding rules and the download folder.
    spec: a model spec, or the folder of a run.
    mesh: the mesh of the parameters.
    step: the checkpoint of a run. None means the newest.
    merges: whether the caller merges adapters: the frozen parameters are then
      float32. Otherwise they have `model.dtype`, or the 8 bits of a run.
    samples: whether the caller only samples. A model spec is then all frozen,
      in the dtypes that sampling reads.
    adds: the adapters that the caller adds to a frozen model.
    is_critic: whether to load the run's critic instead of its policy.

  Raises:
    ValueError: the folder is neither a model nor a run with a checkpoint, the
      run's initial model no longer exists, or a model that gets adapters has
      some already.
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
    if samples and source.lora is None:
      return _load_frozen(settings, source, mesh, adds)
    _check_added(spec, source.lora, adds)
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
  _check_added(spec, lora.adapters, adds)
  lora = _with_dtype(lora, settings.model.dtype, merges)
  model = _decoder(source, settings.model.dtype, lora)
  dtype = lora.matrix_dtype(model.dtype)
  sizes.check_weights(model, dtype, mesh, rules)
  origin = frozen.read_origin(folder)
  base = restore.load_base(source, model, dtype, mesh, rules, origin)
  return Loaded(
    source,
    base,
    load_checkpoint(folder, model, mesh, rules, step, is_critic),
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
    lora = LoraSettings.describing(source.lora)
  lora = _with_dtype(lora, settings.model.dtype, merges)
  model = _decoder(source, settings.model.dtype, lora)
  dtype = lora.matrix_dtype(model.dtype)
  sizes.check_weights(model, dtype, mesh, rules)
  base = frozen.load_base(source, model, dtype, mesh, rules)
  load_trained = source.load_adapters or source.load_params
  return Loaded(source, base, load_trained(mesh, rules), lora)


def _load_frozen(
  settings: SamplingSettings,
  source: load.ModelSource,
  mesh: Mesh,
  adds: Lora | None,
) -> Loaded:
  """Loads a model for sampling, in the dtypes that sampling reads."""
  rules, dtype = settings.sharding.rules(), settings.model.dtype
  lora = LoraSettings() if adds is None else LoraSettings.describing(adds)
  kernel_dtype = settings.rollout.kernel_dtype
  model = _decoder(source, dtype, LoraSettings())
  model = model.clone(kernel_dtype=kernel_dtype)
  sizes.check_weights(model, dtype, mesh, rules, is_frozen=True)
  base = source.load_params(
    mesh, rules, dtype=jnp.dtype(dtype), kernel_dtype=kernel_dtype
  )
  return Loaded(source, base, {}, lora)


def _check_added(spec: str, own: Lora | None, adds: Lora | None) -> None:
  """Raises ValueError if a model that gets adapters has some already."""
  if own is not None and adds is not None:
    raise ValueError(
      f"model {spec!r} has adapters: expected a whole model, to which others "
      "are added"
    )


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
  folder: pathlib.Path,
  model: transformer.Transformer,
  mesh: Mesh,
  rules: types.Rules,
  step: int | None = None,
  is_critic: bool = False,
) -> types.Params:
  """Loads the trained parameters of a run's checkpoint, sharded on a mesh.

  Args:
    folder: the run's folder.
    model: a decoder with the run's config and adapters.
    mesh: the mesh of the parameters.
    rules: logical axis to mesh axis.
    step: the step of the checkpoint. None means the newest.
    is_critic: whether to load the critic's parameters instead.

  Raises:
    ValueError: the run has no such checkpoint, or no critic.
  """
  with checkpoint_reading.open_to_read(folder, step) as (checkpoints, step):
    boxed = transformer.abstract_trained(model)
    if is_critic:
      boxed = value_model.abstract_params(model)
    abstract = mesh_lib.sharded_shapes(boxed, mesh, rules)
    asked = (None, abstract) if is_critic else (abstract,)
    found = checkpoints.restore_params(step, *asked)
  if not found:
    raise ValueError(
      f"{folder} has no critic: expected a run with learner.estimator='gae'"
    )
  return found[0]


def load_policy(
  settings: SamplingSettings,
  spec: str,
  step: int | None = None,
  workload: Callable[[Tokenizer], sizes.Workload] | None = None,
  *,
  keeps_to_context: bool = False,
  stack: Lora | None = None,
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
    stack: the shape of adapters that the caller adds (`AdapterTable`).

  Raises:
    MemoryError: a device has no room for the weights, or for the cache of one
      sequence.
  """
  available = memory.available_bytes()
  mesh = mesh_lib.make_mesh(settings.mesh.sizes())
  layout.rollout_mesh(settings.rollout.mesh, mesh)  # Checked before a download.
  loaded = load_model(settings, spec, mesh, step, samples=True, adds=stack)
  source = loaded.source
  # Nothing trains on these samples.
  rollout = dataclasses.replace(settings.rollout, router_replay=False)
  if workload is not None:
    rollout = sizes.for_workload(rollout, workload(source.tokenizer))
  longest = 0 if keeps_to_context else rollout.longest + 1
  messages.announce_model(source, longest)
  rules = settings.sharding.rules()
  model = decoders.build_model(
    settings.model,
    rope.for_length(source.config, rollout.longest + 1),
    mesh,
    rules,
    rows=None,
    sampler_bytes=None,
    lora=loaded.lora,
  )
  if stack is not None:
    model = model.clone(lora=stack)
  sampling = _sampling_mesh(model, mesh, rules, rollout)
  if workload is not None:
    rollout = sizes.without_spare_pages(model, sampling, rules, rollout)
  if available is not None:
    given = rollout.cache_gib
    rollout = sizes.fit_cache(model, sampling, rules, rollout, available)
    if rollout.cache_gib != given:
      print_status(sizes.describe(rollout))
  base, dtype = loaded.base, settings.model.dtype
  shares_base = _shares_base(loaded, rollout, dtype, mesh, sampling)
  if shares_base:
    layout_of = rollout_build.sampling_model(model, mesh, rules, rollout)
    base = sampling_params.arrange(layout_of, base)
  has_adapters = model.lora is not None
  sampler = Sampler(
    *(model, source.tokenizer, sampling, rules, rollout),
    shares_base=shares_base and has_adapters,
  )
  params = base
  if has_adapters or not shares_base:
    params = sampler.compute_params(adapters.join(base, loaded.trained))
  return Policy(
    sampler,
    source.tokenizer,
    Weights(params),
    keys.of(settings.seed, Purpose.EVALUATION),
    base=base if loaded.trained or stack is not None else {},
  )


def _sampling_mesh(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: types.Rules,
  rollout: SamplerSettings,
) -> Mesh:
  """Returns `layout.rollout_mesh_with_copies`, and says if it is another."""
  sampling = layout.rollout_mesh_with_copies(model, mesh, rules, rollout)
  if sampling != mesh:
    print_status(
      f"sampling on {dict(sampling.shape)}; config.rollout.mesh sets another"
    )
  return sampling


def _shares_base(
  loaded: Loaded,
  rollout: SamplerSettings,
  dtype: str,
  mesh: Mesh,
  sampling: Mesh,
) -> bool:
  """Returns whether sampling reads the frozen parameters without a copy."""
  if not loaded.base:
    return False
  if not loaded.trained:  # They were loaded in the dtypes that sampling reads.
    return frozen.is_placed(mesh, sampling)
  return frozen.is_shared(loaded.lora, rollout, dtype, mesh, sampling)
