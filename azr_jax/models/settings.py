"""Section `model` of a configuration."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.models import attention, presets, transformer

DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class ModelSettings(Settings):
  """The model's source and how it computes."""

  source: str = setting(
    "",
    "embedded:NAME, hf:OWNER/NAME, pypi:WHEEL, random:PRESET, a folder, or "
    "gs://BUCKET/FOLDER",
  )
  preset: str = setting(
    "",
    "for compile_check: shape of a model folder that does not exist yet",
    choices=("", *presets.PRESETS),
    expert=True,
  )
  cache_dir: str = setting(
    "~/.cache/azr_jax",
    "folder for downloaded weights",
    required=True,
    expert=True,
  )
  dtype: str = setting("float32", "compute dtype", choices=DTYPES)
  attention: str = setting(
    "auto",
    "attention kernel; auto picks splash on TPU, cudnn on GPU in bfloat16",
    choices=attention.NAMES,
    expert=True,
  )
  remat: str = setting(
    transformer.AUTO,
    "activations that the backward pass recomputes; auto: none on a CPU, else "
    "as few as memory has room for",
    choices=(transformer.AUTO, *transformer.REMAT_POLICIES),
  )
  layers: str = setting(
    transformer.AUTO,
    "in training, scan: one program for all layers; unrolled: a part of the "
    "program for each; auto: unrolled on GPUs without fsdp, up to "
    f"{transformer.MAX_UNROLLED} layers",
    choices=(transformer.AUTO, transformer.SCAN, transformer.UNROLLED),
  )
