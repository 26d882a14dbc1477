"""Section `rollout` of a configuration: shapes and rules of sampling."""

import dataclasses
import re

import jax.numpy as jnp
from jax.typing import DTypeLike

from azr_jax.config.settings import Settings, setting
from azr_jax.models import gpu_page_kernel
from azr_jax.models.operations import SamplingDtypes
from azr_jax.models.quantization import DTYPES
from azr_jax.rollout.token_sampling import Truncation

# How decode attention reads the KV cache.
ATTENTIONS = AUTO, KERNEL, LOOP = "auto", "kernel", "loop"
# How sampling runs the layers: one scanned program, or unrolled.
LAYERS = AUTO, SCAN, UNROLLED = "auto", "scan", "unrolled"
# Dtypes of the layers' weights and of the KV cache in sampling.
NONE = "none"
QUANTIZATIONS = (NONE, *DTYPES)
CACHE_DTYPES = (AUTO, *DTYPES)
# `auto` unrolls layers of at least this many bytes. Smaller layers are cheap to
# copy, and one scanned layer compiles faster.
UNROLLED_BYTES = 4 << 20
_SIZE = (lambda v: v >= -1, "-1, 0 or at least 1")
_ASCENDING = (
  lambda v: len(v) > 0 and min(v) > 0 and list(v) == sorted(set(v)),
  "a non-empty ascending tuple of positive integers",
)
_STRINGS = (lambda v: all(v), "a tuple of non-empty strings")


def _compiles(pattern: str) -> bool:
  """Returns whether a string is a valid regular expression."""
  try:
    re.compile(pattern)
  except re.error:
    return False
  return True


@dataclasses.dataclass(frozen=True)
class RolloutMeshSettings(Settings):
  """The mesh to sample on: the learner's devices in another shape."""

  data: int = setting(0, "copies of the weights", accepts=_SIZE)
  fsdp: int = setting(0, "shards along the model width", accepts=_SIZE)
  tensor: int = setting(0, "shards along heads and widths", accepts=_SIZE)

  def sizes(self) -> dict[str, int]:
    """Returns {axis: size}; all sizes are 0 to use the learner's mesh."""
    return {"data": self.data, "fsdp": self.fsdp, "tensor": self.tensor}

  def check(self) -> None:
    """Rejects a partly set mesh and more than one inferred size."""
    sizes = list(self.sizes().values())
    if any(sizes) and (0 in sizes or sizes.count(-1) > 1):
      raise self.invalid(
        "tensor",
        "data, fsdp and tensor all 0 (the mesh of `mesh`), or none 0 and at "
        f"most one -1; data={self.data}, fsdp={self.fsdp}",
      )


@dataclasses.dataclass(frozen=True)
class SpeculationSettings(Settings):
  """How many tokens to draft, from which context, and when drafting pays."""

  drafts: int = setting(
    0,
    "tokens drafted per slot and iteration of the decode loop; 0 turns "
    "drafting off",
    minimum=0,
    maximum=16,
  )
  context: int = setting(
    1024,
    "tokens searched for drafts: the sequence's last ones, then its siblings'",
    minimum=8,
    expert=True,
  )
  min_match: int = setting(
    2,
    "length of the suffix that earlier text must match to be drafted from",
    minimum=1,
    maximum=8,
    expert=True,
  )
  max_slots: int = setting(
    32,
    "most occupied slots for which drafts are made; with more, matrix products "
    "take longer than reading the weights",
    minimum=1,
    expert=True,
  )
  min_gain: float = setting(
    1.5,
    "tokens per slot and iteration below which a call pauses drafting",
    minimum=1,
    expert=True,
  )
  pause_calls: int = setting(
    16,
    "decode calls until drafting is tried again",
    minimum=1,
    expert=True,
  )


@dataclasses.dataclass(frozen=True)
class SamplerSettings(Settings):
  """The shapes and rules of sampling."""

  mesh: RolloutMeshSettings = RolloutMeshSettings()
  speculation: SpeculationSettings = SpeculationSettings()
  slots: int = setting(
    64,
    "sequences decoded together; more than a request's responses are wasted",
    minimum=1,
  )
  prompt_buckets: tuple[int, ...] = setting(
    (128, 256), "prompt lengths to compile for, tokens", accepts=_ASCENDING
  )
  max_tokens: int = setting(128, "longest completion, tokens", minimum=1)
  prefill_tokens: int = setting(
    1024,
    "prompt tokens per prefill call; at least one row on each device",
    minimum=1,
    expert=True,
  )
  decode_chunk: int = setting(
    32, "sampled tokens per slot and decode call", minimum=1
  )
  page_size: int = setting(
    128,
    "tokens per page of the KV cache; attention reads a page at a time",
    minimum=1,
    expert=True,
  )
  attention: str = setting(
    AUTO,
    "decode attention: kernel reads live pages only; loop reads as many pages "
    "per slot as the longest one has; auto: kernel on TPUs, and on GPUs whose "
    "kernel supports the cache",
    choices=ATTENTIONS,
    expert=True,
  )
  layers: str = setting(
    AUTO,
    "scan: one program for all layers; unrolled: separate code for each layer; "
    "auto: scan on TPUs and for small layers, since other compilers copy each "
    "layer's kernels out of the stack for every token",
    choices=LAYERS,
    expert=True,
  )
  quantization: str = setting(
    NONE,
    "8-bit type of the layers' weights in sampling, with one scale per output "
    "channel; none: model.dtype",
    choices=QUANTIZATIONS,
  )
  kv_cache_dtype: str = setting(
    AUTO,
    "type of cached keys and values; 8-bit types have one scale per token and "
    "key head; auto: model.dtype",
    choices=CACHE_DTYPES,
    expert=True,
  )
  cache_gib: float = setting(
    0.0,
    "size of the KV cache on each device, GiB; 0: enough for all slots, or "
    "whatever fits in memory",
    minimum=0,
  )
  prefix_cache: bool = setting(
    True,
    "share the full pages of equal prompt prefixes",
    expert=True,
  )
  extend_chunk: int = setting(
    0,
    "tokens of tool output per prefill call; 0: the same as for prompts",
    minimum=0,
    expert=True,
  )
  temperature: float = setting(
    1.0, "divisor of the logits; 0 is greedy, for evaluation only", minimum=0
  )
  top_k: int = setting(
    0,
    "sample from this many most probable tokens; 0: all, required for training",
    minimum=0,
  )
  top_p: float = setting(
    1.0,
    "sample from this much probability mass; 1: all, required for training",
    above=0,
    maximum=1,
  )
  stop_strings: tuple[str, ...] = setting(
    ("</answer>",),
    "strings that end a response; (): only the end-of-text token does",
    paper="AZR: ()",
    accepts=_STRINGS,
  )
  stop_after: str = setting(
    "",
    "regular expression that a response must match before a stop string "
    "counts; '': stop strings count anywhere",
    accepts=(_compiles, "a regular expression"),
    expert=True,
  )
  max_staleness: int = setting(
    0, "most steps that a sample's policy may lag the update", minimum=0
  )
  step_tokens: int = setting(
    0,
    "most tokens per sequence and step, after which the sequence is paused "
    "until the next step; 0: no limit",
    minimum=0,
  )
  verdict_delay_calls: int = setting(
    2,
    "decode calls from a program's start until its outcome is used; fixed, so "
    "that runs with equal seeds are equal",
    minimum=1,
    expert=True,
  )

  def check(self) -> None:
    """Rejects combining staleness with partial rollouts, and small pages.

    If a decode call could need several pages per sequence while pages are
    scarce, two sequences could preempt each other forever.
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
        f"0 with max_staleness={self.max_staleness}: a step in flight keeps "
        "its unfinished sequences in the slots, but paused ones leave them",
      )

  @property
  def prefill_chunks(self) -> tuple[int, ...]:
    """Tokens per row that a prefill call may take, ascending."""
    chunks = {min(b, self.prefill_tokens) for b in self.prompt_buckets}
    if self.extend_chunk:
      chunks.add(self.extend_chunk)
    return tuple(sorted(chunks))

  @property
  def longest(self) -> int:
    """The most cached tokens of a sequence: all but its last one."""
    return self.prompt_buckets[-1] + self.max_tokens - 1

  def lists_pages(
    self, platform: str, head_size: int, dtype: DTypeLike
  ) -> bool:
    """Returns whether decoding reads live pages only, by a kernel.

    Args:
      platform: cpu, gpu or tpu.
      head_size: the decoder's head size.
      dtype: the compute dtype.

    Raises:
      Invalid: `attention` is `kernel`, which does not support such a cache.
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
    """Returns whether the layers are unrolled.

    Args:
      platform: cpu, gpu or tpu.
      layer_bytes: size of one layer's parameters in the sampler's dtypes.
    """
    if self.layers == AUTO:
      return platform != "tpu" and layer_bytes >= UNROLLED_BYTES
    return self.layers == UNROLLED

  @property
  def may_be_stale(self) -> bool:
    """Whether training data may come from older parameters."""
    return self.max_staleness > 0 or self.step_tokens > 0

  @property
  def is_quantized(self) -> bool:
    """Whether sampling uses lower precision than the learner."""
    return self.quantization != NONE or self.kv_cache_dtype != AUTO

  @property
  def kernel_dtype(self) -> jnp.dtype | None:
    """The dtype of the layers' quantized weights; None if not quantized."""
    return DTYPES.get(self.quantization)

  def cache_dtype(self, dtype: DTypeLike) -> jnp.dtype:
    """Returns the dtype of cached keys and values.

    Args:
      dtype: the compute dtype.
    """
    return DTYPES.get(self.kv_cache_dtype, jnp.dtype(dtype))

  def dtypes(self, dtype: DTypeLike) -> SamplingDtypes:
    """Returns the dtypes that decoding uses.

    Args:
      dtype: the compute dtype.
    """
    kernels = self.kernel_dtype or jnp.dtype(dtype)
    return SamplingDtypes(dtype, kernels, self.cache_dtype(dtype))

  def pages_for(self, tokens: int) -> int:
    """Returns the number of cache pages that `tokens` tokens fill."""
    return -(-tokens // self.page_size)

  @property
  def truncation(self) -> Truncation:
    """The truncation of the token distribution."""
    return Truncation(self.top_k, self.top_p)
