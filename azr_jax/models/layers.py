"""The layers of the decoder: attention and MLP."""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32

from azr_jax.models import (
  experts,
  gated,
  gpu_projection_kernel,
  pages,
  rope,
)
from azr_jax.models.computation import Computation, Inputs, Varying
from azr_jax.models.config import SILU, ModelConfig
from azr_jax.models.naming import named
from azr_jax.models.norms import JointNorm, RMSNorm
from azr_jax.models.projection import Projection, adapted, biased


class Attention(nn.Module):
  """Grouped-query self-attention, to cached tokens too if there is a cache.

  Attributes:
    config: shapes and constants.
    how: types, kernels and layout of the computation.

  The input is normalized, unless it comes with the norm's scale.

  Returns:
    The output and, with a cache, the keys and values of this call.
  """

  config: ModelConfig
  how: Computation

  @nn.compact
  def __call__(
    self,
    x: Float[Array, "B S D"],
    scale: Float[Array, " D"] | None,
    inputs: Inputs,
    layer: Int[Array, ""],
    own: Varying,
  ) -> tuple[Float[Array, "B S D"], pages.Entries | None]:
    c = self.config
    q, k, v = self._heads(x, inputs, scale, own.rotary)
    if c.attention_scale is not None:
      # Attention multiplies scores by 1 / sqrt(E).
      q = q * (c.attention_scale * math.sqrt(c.head_size))
    sinks = None
    if c.sinks:
      zeros = named(nn.initializers.zeros, ("heads",))
      sinks = self.param("sinks", zeros, (c.num_heads,), jnp.float32)
      # All backends round sinks like keys, so sampler and learner agree.
      sinks = sinks.astype(self.how.dtype)
    new, cache = None, inputs.cache
    if cache is not None:
      new = pages.make_entries(k, v, cache.pool)
      cache = pages.of_window(cache, c.distinct_windows, own.window)
      cache = cache.replace(pool=pages.without_experts(cache.pool))
      recent = inputs.recent
      if recent is not None:
        entries = pages.without_experts(recent.entries)
        recent = recent.replace(entries=entries)
      out = self.how.attend_cached(q, new, cache, recent, layer, sinks)
    else:
      out = self._attend(q, k, v, inputs.segment_ids, sinks, own.window)
    axes = ("heads", "head_size"), ("embed",)
    y = Projection(
      (c.num_heads, c.head_size),
      (c.hidden_size,),
      *axes,
      c.o_bias,
      self.how,
      name="o",
    )(out)
    return adapted(y, out, self.how, inputs.adapter_ids, "o", *axes), new

  @nn.nowrap
  def _attend(
    self,
    q: Float[Array, "B S H E"],
    k: Float[Array, "B S K E"],
    v: Float[Array, "B S K E"],
    segment_ids: Int[Array, "B S"],
    sinks: Float[Array, " H"] | None,
    window: Int32[np.ndarray, ""] | Int32[Array, ""] | None,
  ) -> Float[Array, "B S H E"]:
    """Returns attention without a cache, in the window of this layer."""
    # A window as long as the row hides nothing.
    limits = [
      limit if limit < q.shape[1] else 0
      for limit in self.config.distinct_windows
    ]
    if not any(limits):
      return self.how.attend(q, k, v, segment_ids, sinks=sinks)

    def of_window(
      limit: int, q: Any, k: Any, v: Any, segment_ids: Any, sinks: Any
    ) -> Float[Array, "B S H E"]:
      return self.how.attend(q, k, v, segment_ids, limit, sinks)

    branches = [functools.partial(of_window, limit) for limit in limits]
    if window is None:
      return branches[0](q, k, v, segment_ids, sinks)
    return jax.lax.switch(window, branches, q, k, v, segment_ids, sinks)

  @nn.nowrap
  def _heads(
    self,
    x: Float[Array, "B S D"],
    inputs: Inputs,
    scale: Float[Array, " D"] | None,
    rotary: rope.Rotary | None,
  ) -> gpu_projection_kernel.Heads:
    """Returns rotated queries and keys, and values."""
    c, positions = self.config, inputs.positions
    if scale is not None:
      assert self.how.project is not None
      kernel, bias = self._joined(None)
      with jax.named_scope("qkv"):
        return self.how.project(x, scale, kernel, bias, positions)
    ids = inputs.adapter_ids
    q, k, v = (
      adapted(y, x, self.how, ids, name, ("embed",), (heads, "head_size"))
      for y, name, heads in zip(
        self._project(x),
        ("q", "k", "v"),
        ("heads", "kv_heads", "kv_heads"),
        strict=True,
      )
    )
    if c.qk_norm:
      norm = functools.partial(
        RMSNorm, c.norm_eps, "head_size", offset=c.norm_offset
      )
      q, k = norm(name="q_norm")(q), norm(name="k_norm")(k)
    if c.joint_qk_norm:
      q = JointNorm(c.norm_eps, "heads", name="q_norm")(q)
      k = JointNorm(c.norm_eps, "kv_heads", name="k_norm")(k)
    rotary = rotary or rope.of_layers(c)
    q = rope.rotate(q, positions, *rotary)
    return q, rope.rotate(k, positions, *rotary), v

  def _project(self, x: Float[Array, "B S D"]) -> gpu_projection_kernel.Heads:
    """Returns queries, keys and values."""
    c, project = self.config, self._projection
    if self.how.fused:
      return self._split(self._joined(x))
    axes = "heads", "head_size"
    of_q = (c.num_heads, c.head_size), axes, "q"
    of_k, of_v = (
      ((c.num_kv_heads, c.head_size), ("kv_heads", "head_size"), name)
      for name in ("k", "v")
    )
    if not self.how.joined:
      return project(x, *of_q), project(x, *of_k), project(x, *of_v)
    kernels, biases = zip(
      *(project(None, *of) for of in (of_q, of_k, of_v)), strict=True
    )
    kernel = jnp.concatenate(kernels, axis=1)
    qkv = self.how.multiply(x, kernel, ("embed", *axes), 1)
    qkv = qkv.astype(self.how.dtype)
    if c.qkv_bias:
      qkv = biased(qkv, jnp.concatenate(biases))
    ends = c.num_heads, c.num_heads + c.num_kv_heads
    q, k, v = jnp.split(qkv, ends, axis=2)
    return q, k, v

  @nn.nowrap
  def _joined(self, x: Float[Array, "B S D"] | None) -> Any:
    """Returns the product with the kernel that query, key and value share."""
    c = self.config
    group = c.num_heads // c.num_kv_heads
    shape = c.num_kv_heads, group + 2, c.head_size
    return self._projection(x, shape, ("kv_heads", None, "head_size"), "qkv")

  @nn.nowrap
  def _split(
    self, qkv: Float[Array, "B S K members E"]
  ) -> gpu_projection_kernel.Heads:
    """Returns the queries, keys and values of a product."""
    q, k, v = qkv[..., :-2, :], qkv[..., -2, :], qkv[..., -1, :]
    return q.reshape(*qkv.shape[:2], -1, qkv.shape[-1]), k, v

  @nn.nowrap
  def _projection(
    self,
    x: Float[Array, "B S D"] | None,
    shape: tuple[int, ...],
    axes: tuple[str | None, ...],
    name: str,
  ) -> Any:
    c = self.config
    return Projection(
      *((c.hidden_size,), shape, ("embed",), axes, c.qkv_bias, self.how),
      name=name,
    )(x)


class MLP(nn.Module):
  """SwiGLU, or GeGLU: down(activation(gate(x)) * up(x))."""

  config: ModelConfig
  how: Computation

  @nn.compact
  def __call__(
    self, x: Float[Array, "B S D"], inputs: Inputs
  ) -> Float[Array, "B S D"]:
    outer, inner = (self.config.hidden_size,), (self.config.mlp_size,)
    widen = (outer, inner, ("embed",), ("mlp",), False, self.how)
    is_joined, ids = self.how.joined, inputs.adapter_ids
    gate, up = (
      Projection(*widen, name=name)(None if is_joined else x)
      for name in ("gate", "up")
    )
    if is_joined:
      # Gate and up alternate, so that one pass over memory computes both
      # gradients.
      kernel = jnp.stack([gate[0], up[0]], axis=-1)
      both = self.how.multiply(x, kernel, ("embed", "mlp", None), 1)
      both = both.astype(self.how.dtype)
      if self.config.activation == SILU:
        hidden = gated.silu_of_pairs(both)
      else:
        hidden = gated.gelu(both[..., 0], both[..., 1])
    else:
      gate, up = (
        adapted(y, x, self.how, ids, name, ("embed",), ("mlp",))
        for y, name in ((gate, "gate"), (up, "up"))
      )
      is_silu = self.config.activation == SILU
      hidden = (gated.silu if is_silu else gated.gelu)(gate, up)
    narrow = (inner, outer, ("mlp",), ("embed",), False, self.how)
    y = Projection(*narrow, name="down")(hidden)
    return adapted(y, hidden, self.how, ids, "down", ("mlp",), ("embed",))


class Block(nn.Module):
  """One layer, in the carry form that `nn.scan` needs.

  The carry is (hidden states, index of the layer).
  """

  config: ModelConfig
  how: Computation

  @nn.compact
  def __call__(
    self,
    carry: tuple[Float[Array, "B S D"], Int[Array, ""]],
    inputs: Inputs,
    own: Varying,
  ) -> tuple[
    tuple[Float[Array, "B S D"], Int[Array, ""]], pages.Entries | None
  ]:
    x, layer = carry
    c, project = self.config, self.how.project
    in_kernel = project is not None and project.fits(x.shape[0] * x.shape[1])
    norm = functools.partial(RMSNorm, c.norm_eps, "embed", offset=c.norm_offset)
    normed = x
    if c.norm_before:
      normed = norm(not in_kernel, name="attention_norm")(x)
    y, new = Attention(self.config, self.how, name="attention")(
      *((x, normed) if in_kernel else (normed, None)), inputs, layer, own
    )
    if c.norm_after:
      y = norm(name="attention_post_norm")(y)
    x = x + (y if c.residual_scale == 1.0 else y * c.residual_scale)
    normed = norm(name="mlp_norm")(x) if c.norm_before else x
    y, chosen = self._mlp(normed, inputs, own)
    if chosen is not None and new is not None and inputs.cache is not None:
      new = pages.with_experts(new, chosen, inputs.cache.pool)
    if c.norm_after:
      y = norm(name="mlp_post_norm")(y)
    x = x + (y if c.residual_scale == 1.0 else y * c.residual_scale)
    return (x, layer + 1), new

  def _mlp(
    self, x: Float[Array, "B S D"], inputs: Inputs, own: Varying
  ) -> tuple[Float[Array, "B S D"], Int[Array, "B S choices"] | None]:
    """Returns the output of the MLP, or that of experts and their numbers."""
    if self.config.experts is None:
      return MLP(self.config, self.how, name="mlp")(x, inputs), None
    how = self.how
    layer = experts.Experts(
      *(self.config, how.dtype, how.compute_experts, how.quantized, how.lora),
      name="experts",
    )
    return layer(x, inputs.segment_ids, own.chosen)
