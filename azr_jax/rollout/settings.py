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

# How decoding attends to the pages of the KV cache.
ATTENTIONS = AUTO, KERNEL, LOOP = "auto", "kernel", "loop"
# How decoding computes queries, keys and values.
XLA = "xla"
PROJECTIONS = XLA, KERNEL
# How sampling runs the layers.
LAYERS = AUTO, SCAN, UNROLLED = "auto", "scan", "unrolled"
# Dtypes of the layers' weights and of the KV cache during sampling.
NONE = "none"
QUANTIZATIONS = (NONE, *DTYPES)
CACHE_DTYPES = (AUTO, *DTYPES)
# Size of a layer, in bytes, from which `auto` unrolls. Copying a smaller layer
# is cheap, and a program with a single layer body compiles faster.
UNROLLED_BYTES = 4 << 20
_SIZE = (lambda v: v >= -1, "-1, 0 or at least 1")
_ASCENDING = (
  lambda v: len(v) > 0 and min(v) > 0 and list(v) == sorted(set(v)),
  "a non-empty ascending tuple of positive integers",
)
_STRINGS = (lambda v: all(v), "a tuple of non-empty strings")


def _compiles(pattern: str) -> bool:
  """Returns whether `pattern` is a valid regular expression."""
  try:
    re.compile(pattern)
  except re.error:
    return False
  return True


@dataclasses.dataclass(frozen=True)
class RolloutMeshSettings(Settings):
  """The mesh for sampling: the learner's devices in another shape."""

  data: int = setting(
    0,
    "copies of the sampler's weights; 0 for data, fsdp and tensor: the "
    "learner's mesh",
    accepts=_SIZE,
  )
  fsdp: int = setting(0, "shards along the model width", accepts=_SIZE)
  expert: int = setting(
    0, "shards of the experts, with rows of their own; 0: 1", accepts=_SIZE
  )
  tensor: int = setting(0, "shards along heads and widths", accepts=_SIZE)

  def sizes(self) -> dict[str, int]:
    """Returns {axis: size}. All sizes are 0 if the learner's mesh is used."""
    sizes = {"data": self.data, "fsdp": self.fsdp, "tensor": self.tensor}
    return sizes | {"expert": self.expert or int(any(sizes.values()))}

  def check(self) -> None:
    """Rejects a mesh of which only some sizes are set."""
    sizes = list(self.sizes().values())
    if any(sizes) and (0 in sizes or sizes.count(-1) > 1):
      raise self.invalid(
        "tensor",
        f"with data={self.data}, fsdp={self.fsdp}: expected all 0 (the mesh of "
        "`mesh`), or no 0 and at most one -1",
      )


@dataclasses.dataclass(frozen=True)
class SpeculationSettings(Settings):
  """Speculative decoding: how many tokens are drafted, and when it pays."""

  drafts: int = setting(
    0,
    "tokens drafted for each slot per iteration of the decode loop; 0 turns "
    "speculation off",
    minimum=0,
    maximum=16,
  )
  context: int = setting(
    1024,
    "tokens searched for a match: the end of the sequence, then its siblings",
    minimum=8,
    expert=True,
  )
  min_match: int = setting(
    2,
    "number of trailing tokens that must match an earlier place to draft from "
    "it",
    minimum=1,
    maximum=8,
    expert=True,
  )
  max_slots: int = setting(
    32,
    "draft only while at most this many slots decode with each copy of the "
    "weights; beyond that, matrix products take longer than reading them",
    minimum=1,
    expert=True,
  )
  min_gain: float = setting(
    1.5,
    "tokens per slot and iteration that drafts must yield; a decode call with "
    "fewer pauses them",
    minimum=1,
    expert=True,
  )
  pause_calls: int = setting(
    16,
    "decode calls before paused drafts are tried again",
    minimum=1,
    expert=True,
  )


@dataclasses.dataclass(frozen=True)
class SamplerSettings(Settings):
  """Shapes and rules of sampling."""

  mesh: RolloutMeshSettings = RolloutMeshSettings()
  router_replay: bool = setting(
    True,
    "models with experts: train each token on the experts that sampled it",
  )
  speculation: SpeculationSettings = SpeculationSettings()
  slots: int = setting(
    64,
    "sequences decoded at a time on all devices; each takes cache memory",
    minimum=1,
  )
  prompt_buckets: tuple[int, ...] = setting(
    (128, 256), "compiled prompt lengths, in tokens", accepts=_ASCENDING
  )
  max_tokens: int = setting(128, "longest completion, in tokens", minimum=1)
  prefill_tokens: int = setting(
    1024,
    "prompt tokens per prefill call; longer prompts take several calls, and "
    "each device gets at least one row",
    minimum=1,
    expert=True,
  )
  decode_chunk: int = setting(
    32, "tokens sampled per slot and device call", minimum=1
  )
  page_size: int = setting(
    128,
    "tokens per page of the KV cache; attention reads one page at a time",
    minimum=1,
    expert=True,
  )
  attention: str = setting(
    AUTO,
    "attention when decoding. kernel reads live pages only; loop reads, for "
    "every slot, as many pages as the longest sequence has; auto picks kernel "
    "on TPUs and on GPUs whose kernel supports the cache",
    choices=ATTENTIONS,
    expert=True,
  )
  projection: str = setting(
    XLA,
    "norm, queries, keys and values when decoding. kernel computes them as one "
    "operation on GPUs that hold whole 16-bit weights, for at most 64 tokens "
    "of a device; xla as three. Which is faster has not been measured",
    choices=PROJECTIONS,
    expert=True,
  )
  layers: str = setting(
    AUTO,
    "scan compiles one program for all layers; unrolled compiles each layer "
    "separately. auto scans for small layers only: in a loop, a CPU or GPU "
    "copies each layer's weights for every token, and a TPU cannot load the "
    "next layer's weights early",
    choices=LAYERS,
    expert=True,
  )
  quantization: str = setting(
    NONE,
    "8-bit dtype of the layers' weights in sampling, with a scale per output "
    "channel; none uses model.dtype",
    choices=QUANTIZATIONS,
  )
  kv_cache_dtype: str = setting(
    AUTO,
    "dtype of cached keys and values; 8-bit dtypes have a scale per token and "
    "key head; auto uses model.dtype",
    choices=CACHE_DTYPES,
    expert=True,
  )
  cache_gib: float = setting(
    0.0,
    "size of the KV cache per device, in GiB; 0 takes what all slots can use, "
    "or what fits into memory",
    minimum=0,
  )
  prefix_cache: bool = setting(
    True,
    "share full cache pages between prompts with the same first tokens",
    expert=True,
  )
  extend_chunk: int = setting(
    0,
    "tokens of tool output prefilled per device call; 0 uses the prompts' "
    "sizes",
    minimum=0,
    expert=True,
  )
  temperature: float = setting(
    1.0, "divides the logits; 0 is greedy (evaluation only)", minimum=0
  )
  top_k: int = setting(
    0,
    "sample from this many most probable tokens; 0: all (required in training)",
    minimum=0,
  )
  top_p: float = setting(
    1.0,
    "sample from the most probable tokens with this total probability; 1: all "
    "(required in training)",
    above=0,
    maximum=1,
  )
  stop_strings: tuple[str, ...] = setting(
    ("</answer>",),
    "a response ends after any of these strings; (): only at the end-of-text "
    "token",
    paper="AZR: ()",
    accepts=_STRINGS,
  )
  stop_after: str = setting(
    "",
    "regular expression that the response must match before a stop string "
    "counts; '': always counts",
    accepts=(_compiles, "a regular expression"),
    expert=True,
  )
  max_staleness: int = setting(
    0,
    "how many steps the policy that sampled may lag behind the update",
    minimum=0,
  )
  step_tokens: int = setting(
    0,
    "tokens a sequence may get per step before it is paused until the next "
    "step (partial rollouts); 0: no limit",
    minimum=0,
  )
  verdict_delay_calls: int = setting(
    2,
    "decode calls between starting a program and reading its verdict; a fixed "
    "delay makes runs with the same seed equal",
    minimum=1,
    expert=True,
  )

  def check(self) -> None:
    """Rejects combinations of settings that cannot work.

    A step's unfinished sequences may stay in their slots (`max_staleness`) or
    be paused (`step_tokens`), not both. With a limited cache, a decode call may
    need at most one new page per sequence: otherwise two sequences could
    preempt each other forever.
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
        f"0 with max_staleness={self.max_staleness}: steps in flight keep "
        "their unfinished sequences in slots, and paused sequences leave them",
      )

  @property
  def prefill_chunks(self) -> tuple[int, ...]:
    """The row lengths in tokens that a prefill call may have, ascending."""
    chunks = {min(b, self.prefill_tokens) for b in self.prompt_buckets}
    if self.extend_chunk:
      chunks.add(self.extend_chunk)
    return tuple(sorted(chunks))

  @property
  def longest(self) -> int:
    """The maximum number of cached tokens per sequence: all but the last."""
    return self.prompt_buckets[-1] + self.max_tokens - 1

  def lists_pages(
    self, platform: str, head_size: int, dtype: DTypeLike
  ) -> bool:
    """Returns whether decoding uses the kernel that reads live pages only.

    Args:
      platform: the devices' platform: cpu, gpu or tpu.
      head_size: the decoder's head size.
      dtype: the compute dtype.

    Raises:
      Invalid: `attention` asks for the kernel, which cannot read this cache.
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

  def unrolls(self, layer_bytes: int) -> bool:
    """Returns whether each layer is compiled separately.

    Args:
      layer_bytes: the size of a layer's parameters in their sampling dtype.
    """
    if self.layers == AUTO:
      return layer_bytes >= UNROLLED_BYTES
    return self.layers == UNROLLED

  @property
  def may_be_stale(self) -> bool:
    """Whether training may use samples of older parameters."""
    return self.max_staleness > 0 or self.step_tokens > 0

  @property
  def is_quantized(self) -> bool:
    """Whether sampling uses a lower precision than learning."""
    return self.quantization != NONE or self.kv_cache_dtype != AUTO

  @property
  def kernel_dtype(self) -> jnp.dtype | None:
    """The dtype of the layers' quantized weights, or None if not quantized."""
    return DTYPES.get(self.quantization)

  def cache_dtype(self, dtype: DTypeLike) -> jnp.dtype:
    """Returns the dtype of cached keys and values.

    Args:
      dtype: the compute dtype.
    """
    return DTYPES.get(self.kv_cache_dtype, jnp.dtype(dtype))

  def dtypes(
    self, dtype: DTypeLike, kernel_dtype: DTypeLike | None = None
  ) -> SamplingDtypes:
    """Returns the dtypes that decoding reads.

    Args:
      dtype: the compute dtype.
      kernel_dtype: the 8-bit dtype of a frozen base's kernels, or None.
    """
    kernels = self.kernel_dtype or kernel_dtype or jnp.dtype(dtype)
    return SamplingDtypes(dtype, kernels, self.cache_dtype(dtype))

  @property
  def truncation(self) -> Truncation:
    """Which tokens may be sampled."""
    return Truncation(self.top_k, self.top_p)
