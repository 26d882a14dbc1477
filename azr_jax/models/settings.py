"""Sections `model` and `lora` of a configuration."""

import dataclasses

import jax.numpy as jnp
from jax.typing import DTypeLike

from azr_jax.config.settings import Settings, setting
from azr_jax.models import adapters, attention, presets, transformer
from azr_jax.models.config import ModelConfig
from azr_jax.models.quantization import DTYPES as QUANTIZED

DTYPES = ("float32", "bfloat16")
AUTO = "auto"


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
  param_dtype: str = setting(
    "float32",
    "in training, dtype of matrices and biases; bfloat16 is rounded "
    "stochastically, and norm scales stay float32",
    choices=DTYPES,
  )
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


@dataclasses.dataclass(frozen=True)
class LoraSettings(Settings):
  """Adapters to train instead of the whole model (`adapters.py`)."""

  rank: int = setting(
    0, "rank of the adapters; 0 trains all parameters", minimum=0
  )
  alpha: float = setting(
    32.0, "an adapter's output is multiplied by alpha / rank", above=0
  )
  rank_stabilized: bool = setting(
    False, "multiply by alpha / sqrt(rank) instead", expert=True
  )
  targets: tuple[str, ...] = setting(
    adapters.TARGETS,
    "the projections of a layer that have adapters",
    subset_of=adapters.TARGETS,
    required=True,
  )
  expert_rank: int = setting(
    0,
    "rank of the adapters of an expert; 0: rank / experts per token, at least "
    "1",
    minimum=0,
    expert=True,
  )
  base_dtype: str = setting(
    AUTO,
    "dtype of the frozen model; auto: model.dtype; int8 and fp8 store the "
    "layers' kernels in 8 bits, for sampling and learning",
    choices=(AUTO, *DTYPES, *QUANTIZED),
  )

  @classmethod
  def describing(cls, lora: adapters.Lora) -> "LoraSettings":
    """Returns the settings of a model with these adapters."""
    return cls(
      lora.rank,
      lora.alpha,
      lora.rank_stabilized,
      lora.targets,
      lora.expert_rank,
    )

  @property
  def adapters(self) -> adapters.Lora | None:
    """The adapters, or None if all parameters are trained."""
    if not self.rank:
      return None
    return adapters.Lora(
      self.rank,
      self.alpha,
      self.rank_stabilized,
      self.targets,
      expert_rank=self.expert_rank,
    )

  @property
  def kernel_dtype(self) -> jnp.dtype | None:
    """The 8-bit dtype of the frozen layers' kernels, or None."""
    return QUANTIZED.get(self.base_dtype) if self.rank else None

  def base_bytes(self, config: ModelConfig, dtype: DTypeLike) -> int:
    """Returns the size of the frozen parameters; 0 if all are trained.

    Args:
      config: the model's shape.
      dtype: the compute dtype.
    """
    if not self.rank:
      return 0
    tables = config.vocab_size * config.hidden_size
    tables *= 1 if config.tie_embeddings else 2
    layers = presets.parameter_count(config) - tables
    own = self.matrix_dtype(dtype)
    return tables * own.itemsize + layers * (self.kernel_dtype or own).itemsize

  def matrix_dtype(self, dtype: DTypeLike) -> jnp.dtype:
    """Returns the dtype of frozen matrices that do not have 8 bits.

    Args:
      dtype: the compute dtype.
    """
    is_own = self.base_dtype in DTYPES
    return jnp.dtype(self.base_dtype if is_own else dtype)
