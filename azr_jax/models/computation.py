"""How a decoder computes, and the arguments of one call."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Int32

from azr_jax.models import (
  adapters,
  attention,
  cached_attention,
  expert_mlps,
  gpu_projection_kernel,
  pages,
  products,
  rope,
)
from azr_jax.models.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class Computation:
  """How a decoder computes: its dtypes, attention and matrix products.

  Attributes:
    dtype: compute type; parameters are float32.
    attend: attention without a cache, from `attention.make`.
    attend_cached: attention with a cache, from `cached_attention.make`.
    multiply: the product with a kernel, from `products.make`.
    fused: whether query, key and value share a kernel (`sampling_params.py`).
    quantized: whether kernels have 8 bits and scales (`sampling_params.py`).
    joined: whether projections of the same input are computed as one product,
      although their kernels are separate. A GPU then runs fewer and larger
      products. Must be false if heads are sharded over devices, or with
      adapters.
    project: the kernel for the heads of a few tokens, from
      `gpu_projection_kernel.make`; None computes them without it.
    lora: the adapters of the projections; None without adapters.
    compute_experts: computes experts, from `expert_sharding.make`.
  """

  dtype: jnp.dtype = jnp.float32
  attend: attention.AttentionFn = attention.xla_attention
  attend_cached: cached_attention.CachedAttentionFn = (
    cached_attention.cached_attention
  )
  multiply: products.MultiplyFn = products.multiply
  fused: bool = False
  quantized: bool = False
  joined: bool = False
  project: gpu_projection_kernel.HeadProjection | None = None
  lora: adapters.Lora | None = None
  compute_experts: expert_mlps.ExpertsFn = expert_mlps.compute


class Inputs(NamedTuple):
  """The arguments of one call that all layers read.

  Attributes:
    positions: position of each token in its sequence.
    segment_ids: which sequence of its row a token belongs to.
    cache: keys and values of earlier tokens; None without a cache.
    recent: keys and values of the tokens after those.
    adapter_ids: which of several stacked adapters each token, or each row,
      gets. None if there is no stack (`adapters.Lora.stacked`).
  """

  positions: Int[Array, "B S"]
  segment_ids: Int[Array, "B S"]
  cache: pages.PagedCache | None = None
  recent: pages.RecentKV | None = None
  adapter_ids: Int[Array, "B _S"] | None = None


class Varying(NamedTuple):
  """The inputs in which layers differ: of one layer or, with L, of all.

  Attributes:
    window: index of the layer's window in `ModelConfig.distinct_windows`. None
      if all layers have the same.
    rotary: the layer's rotation. None if all layers have the same.
    chosen: the experts that tokens get in the layer instead of the router's
      (`experts.Experts`). None leaves the choice to the router.
  """

  window: Int32[np.ndarray, "*L"] | Int32[Array, "*L"] | None
  rotary: rope.Rotary | None
  chosen: Int32[Array, "*L B S choices"] | None = None


def varying(config: ModelConfig) -> Varying:
  """Returns the inputs in which the layers of a decoder differ."""
  rotary, windows = rope.of_layers(config), config.distinct_windows
  is_alike = rotary.frequencies.ndim == 1
  index = None
  if len(windows) > 1:
    index = np.asarray([windows.index(w) for w in config.windows], np.int32)
  return Varying(index, None if is_alike else rotary)
