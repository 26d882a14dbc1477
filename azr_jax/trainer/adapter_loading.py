"""Loads adapters for a base model that is in memory already."""

import dataclasses

from jax.sharding import Mesh

from azr_jax.config import settings as settings_lib
from azr_jax.models import peft_io, transformer
from azr_jax.models.adapters import Lora
from azr_jax.models.config import ModelConfig
from azr_jax.models.settings import LoraSettings
from azr_jax.run import checkpoint, storage
from azr_jax.trainer import loading
from azr_jax.types import Params, Rules


@dataclasses.dataclass(frozen=True)
class AdapterSource:
  """An adapter that can be loaded.

  Attributes:
    spec: the folder that holds it.
    lora: its shape.
    base: the model that it was trained on, as its folder names it.
  """

  spec: str
  lora: Lora
  base: str


def find(spec: str) -> AdapterSource:
  """Returns the adapter of a folder.

  Args:
    spec: a folder in PEFT's format, or a run that trained adapters.

  Raises:
    ValueError: the folder holds no adapter, or one that is not supported.
  """
  folder = storage.resolve(spec)
  if (folder / peft_io.CONFIG).is_file():
    return AdapterSource(spec, *peft_io.read_config(folder))
  if (folder / checkpoint.FOLDER).is_dir():
    config = loading.read_run_config(folder).to_dict()
    lora = settings_lib.build(LoraSettings, config.get("lora", {})).adapters
    if lora is not None:
      return AdapterSource(spec, lora, str(config["model"]["source"]))
  raise ValueError(
    f"{folder}: expected an adapter, which is a folder with {peft_io.CONFIG} "
    "or a run with lora.rank"
  )


def load(
  adapter: AdapterSource, config: ModelConfig, mesh: Mesh, rules: Rules
) -> Params:
  """Returns an adapter's parameters, float32, stacked.

  Args:
    adapter: from `find`.
    config: the base model's config.
    mesh: the mesh of the parameters.
    rules: logical axis to mesh axis.

  Raises:
    ValueError: the adapter was trained on a model of another shape.
  """
  folder = storage.resolve(adapter.spec)
  if (folder / peft_io.CONFIG).is_file():
    return peft_io.load(folder, config, adapter.lora, mesh, rules)
  model = transformer.Transformer(config, lora=adapter.lora)
  return loading.load_checkpoint(folder, model, mesh, rules)
