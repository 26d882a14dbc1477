"""Section `rollout` of a configuration: the shapes and rules of sampling."""

import dataclasses
import re

import jax.numpy as jnp
from jax.typing import DTypeLike

from azr_jax.config.settings import Settings, setting
from azr_jax.models import gpu_page_kernel
from azr_jax.models.operations import SamplingDtypes
from azr_jax.models.quantization import DTYPES
from azr_jax.rollout.token_sampling import Truncation

# How decoding reads the pages of its cache.
ATTENTIONS = AUTO, KERNEL, LOOP = "auto", "kernel", "loop"
# How sampling goes through the layers.
LAYERS = AUTO, SCAN, UNROLLED = "auto", "scan", "unrolled"
# Types of the layers' weights and of the cache in sampling.
NONE = "none"
QUANTIZATIONS = (NONE, *DTYPES)
CACHE_DTYPES = (AUTO, *DTYPES)
# Bytes of a layer from which `auto` unrolls: to copy a smaller one costs
# little, and a program of one layer compiles faster.
UNROLLED_BYTES = 4 << 20
_SIZE = (lambda v: v >= -1, "-1, 0 or at least 1")
_ASCENDING = (
  lambda v: len(v) > 0 and min(v) > 0 and list(v) == sorted(set(v)),
  "a non-empty ascending tuple of positive integers",
)
_STRINGS = (lambda v: all(v), "a tuple of non-empty strings")


def _compiles(pattern: str) -> bool:
  """Returns whether a text is a regular expression."""
  try:
    re.compile(pattern)
  except re.error:
    return False
  return True


@dataclasses.dataclass(frozen=True)
class RolloutMeshSettings(Settings):
  """The mesh that is sampled on: the learner's devices in another shape."""

  data: int = setting(0, "copies of the weights", accepts=_SIZE)
  fsdp: int = setting(0, "shards along the model width", accepts=_SIZE)
  tensor: int = setting(0, "shards along heads and widths", accepts=_SIZE)

  def sizes(self) -> dict[str, int]:
    """Returns {axis: size}; all are 0 where the learner's mesh is used."""
    return {"data": self.data, "fsdp": self.fsdp, "tensor": self.tensor}

  def check(self) -> None:
    """Refuses sizes of which only some are set."""
    sizes = list(self.sizes().values())
    if any(sizes) and (0 in sizes or sizes.count(-1) > 1):
      raise self.invalid(
        "tensor",
        f"with data={self.data}, fsdp={self.fsdp}: expected all 0 (the mesh of "
        "`mesh`), or no 0 and at most one -1",
      )


@dataclasses.dataclass(frozen=True)
class SpeculationSettings(Settings):
  """How many tokens are drafted, from what, and when that pays."""

  drafts: int = setting(
    0,
    "tokens that are proposed to each slot in an iteration of the decode loop; "
    "0: none",
    minimum=0,
    maximum=16,
  )
  context: int = setting(
    1024,
    "tokens that are searched: the end of the sequence, then its siblings",
    minimum=8,
    expert=True,
  )
  min_match: int = setting(
    2,
    "last tokens that an earlier place must have to be continued",
    minimum=1,
    maximum=8,
    expert=True,
  )
  max_slots: int = setting(
    32,
    "sequences in slots at most, for drafts to be made; where more decode, "
    "products take longer than reading the weights",
    minimum=1,
    expert=True,
  )
  min_gain: float = setting(
    1.5,
    "tokens of a slot and iteration; a call that has fewer stops drafts",
    minimum=1,
    expert=True,
  )
  pause_calls: int = setting(
    16,
    "calls of the decode loop until drafts are tried again",
    minimum=1,
    expert=True,
  )


@dataclasses.dataclass(frozen=True)
class SamplerSettings(Settings):
  """The declared shapes and rules of sampling."""

  mesh: RolloutMeshSettings = RolloutMeshSettings()
  speculation: SpeculationSettings = SpeculationSettings()
  slots: int = setting(
    64,
    "sequences that are decoded together; at most the responses of a request",
    minimum=1,
  )
  prompt_buckets: tuple[int, ...] = setting(
    (128, 256), "prompt lengths that are compiled, tokens", accepts=_ASCENDING
  )
  max_tokens: int = setting(128, "longest completion, tokens", minimum=1)
  prefill_tokens: int = setting(
    1024,
    "prompt tokens per device call, or one prompt's part on each device",
    minimum=1,
    expert=True,
  )
  decode_chunk: int = setting(
    32, "sampled tokens of a slot per device call", minimum=1
  )
  page_size: int = setting(
    128,
    "tokens of a page of the cache, which attention reads at once",
    minimum=1,
    expert=True,
  )
  attention: str = setting(
    AUTO,
    "of decoding: kernel, which reads live pages only; loop, over as many "
    "pages of each slot as the longest has; auto: kernel on a TPU, and on a "
    "GPU whose kernel takes the cache",
    choices=ATTENTIONS,
    expert=True,
  )
  layers: str = setting(
    AUTO,
    "scan: one program for all layers; unrolled: a part of the program for "
    "each; auto: scan on a TPU and where a layer is small, because other "
    "compilers copy a layer's kernels out of the stack for each token",
    choices=LAYERS,
    expert=True,
  )
  quantization: str = setting(
    NONE,
    "type of 8 bits of the layers' weights in sampling, with a scale for each "
    "output channel; none: model.dtype",
    choices=QUANTIZATIONS,
  )
  kv_cache_dtype: str = setting(
    AUTO,
    "type of cached keys and values; of 8 bits, it has a scale for each token "
    "and key head; auto: model.dtype",
    choices=CACHE_DTYPES,
    expert=True,
  )
  cache_gib: float = setting(
    0.0,
    "size of the cache of keys and values on each device, GiB; 0: what all "
    "slots can use, or what fits into memory",
    minimum=0,
  )
  prefix_cache: bool = setting(
    True,
    "prompts of equal first tokens share the full pages that hold them",
    expert=True,
  )
  extend_chunk: int = setting(
    0,
    "tokens of tool output per device call; 0: as of prompts",
    minimum=0,
    expert=True,
  )
  temperature: float = setting(
    1.0, "divides the logits; 0 is greedy, for evaluation alone", minimum=0
  )
  top_k: int = setting(
    0,
    "number of most probable tokens to sample from; 0: all, as training needs",
    minimum=0,
  )
  top_p: float = setting(
    1.0,
    "probability mass to draw from; 1: all, as training needs",
    above=0,
    maximum=1,
  )
  stop_strings: tuple[str, ...] = setting(
    ("</answer>",),
    "a response ends where one is complete; (): at the end-of-text token",
    paper="AZR: ()",
    accepts=_STRINGS,
  )
  stop_after: str = setting(
    "",
    "a stop string counts only after a match of this regular expression in the "
    "response; '': anywhere",
    accepts=(_compiles, "a regular expression"),
    expert=True,
  )
  max_staleness: int = setting(
    0, "steps that a sample's policy may be behind the update's", minimum=0
  )
  step_tokens: int = setting(
    0,
    "tokens that a sequence may get in a step, after which it is paused until "
    "the next one; 0: any number",
    minimum=0,
  )
  verdict_delay_calls: int = setting(
    2,
    "calls of the decode loop from a program's start until its outcome is "
    "taken, so that two runs of a seed are equal",
    minimum=1,
    expert=True,
  )

  def check(self) -> None:
    """Refuses two ways to go on with a step's tail, and pages that are small.

    Where pages run out, a sequence that needs more than one of them for its
    next call could lose it to another, and take it back, for ever.
    """
    if self.cache_gib and self.decode_chunk > self.page_size:
      raise self.invalid(
        "decode_chunk",
        f"at most page_size={self.page_size}, because cache_gib="
        f"{self.cache_gib} limits the pages",
      )
    if self.step_tokens and self.max_staleness:
      raise self.invalid(
        "step_tokens",
        f"0 with max_staleness={self.max_staleness}: a step under way waits "
        "for its tail in the slots, and a paused tail has left them",
      )

  @property
  def prefill_chunks(self) -> tuple[int, ...]:
    """How many tokens of a row a device call may prefill, ascending."""
    chunks = {min(b, self.prefill_tokens) for b in self.prompt_buckets}
    if self.extend_chunk:
      chunks.add(self.extend_chunk)
    return tuple(sorted(chunks))

  @property
  def longest(self) -> int:
    """The most tokens of a sequence that are cached: all but the last one."""
    return self.prompt_buckets[-1] + self.max_tokens - 1

  def lists_pages(
    self, platform: str, head_size: int, dtype: DTypeLike
  ) -> bool:
    """Returns whether decoding reads live pages only, by a kernel.

    Args:
      platform: of the devices, cpu, gpu or tpu.
      head_size: of the decoder.
      dtype: that of computing.

    Raises:
      Invalid: the kernel was asked for and cannot read such a cache.
    """
    fits = platform != "gpu" or gpu_page_kernel.supports(
      self.page_size, head_size, self.cache_dtype(dtype)
    )
    if self.attention == AUTO:
      return platform != "cpu" and fits
    if self.attention == KERNEL and not fits:
      raise self.invalid(
        "attention",
        f"loop or auto on GPUs, whose kernel {gpu_page_kernel.SUPPORTED}",
      )
    return self.attention == KERNEL

  def unrolls(self, platform: str, layer_bytes: int) -> bool:
    """Returns whether each layer has a part of the program.

    Args:
      platform: of the devices, cpu, gpu or tpu.
      layer_bytes: size of a layer's parameters, as sampling reads them.
    """
    if self.layers == AUTO:
      return platform != "tpu" and layer_bytes >= UNROLLED_BYTES
    return self.layers == UNROLLED

  @property
  def may_be_stale(self) -> bool:
    """Whether older parameters may have sampled what is trained on."""
    return self.max_staleness > 0 or self.step_tokens > 0

  @property
  def is_quantized(self) -> bool:
    """Whether sampling rounds more than learning does."""
    return self.quantization != NONE or self.kv_cache_dtype != AUTO

  @property
  def kernel_dtype(self) -> jnp.dtype | None:
    """The type of the layers' quantized weights, if they are."""
    return DTYPES.get(self.quantization)

  def cache_dtype(self, dtype: DTypeLike) -> jnp.dtype:
    """Returns the type of cached keys and values.

    Args:
      dtype: that of computing.
    """
    return DTYPES.get(self.kv_cache_dtype, jnp.dtype(dtype))

  def dtypes(self, dtype: DTypeLike) -> SamplingDtypes:
    """Returns the types of what decoding reads.

    Args:
      dtype: that of computing.
    """
    kernels = self.kernel_dtype or jnp.dtype(dtype)
    return SamplingDtypes(dtype, kernels, self.cache_dtype(dtype))

  def pages_for(self, tokens: int) -> int:
    """Returns how many pages of the cache so many tokens need."""
    return -(-tokens // self.page_size)

  @property
  def truncation(self) -> Truncation:
    """Which tokens may be drawn."""
    return Truncation(self.top_k, self.top_p)
