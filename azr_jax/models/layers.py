"""The layers of the decoder: attention and MLP, with their projections."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int, Int32, Num

from azr_jax.models import (
  adapters,
  attention,
  cached_attention,
  expert_mlps,
  experts,
  gated,
  gpu_projection_kernel,
  pages,
  products,
  rope,
)
from azr_jax.models.config import SILU, ModelConfig
from azr_jax.models.naming import named


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


# What the backward pass of `_rms_norm` keeps: x, the scale, and the inverse of
# each token's root mean square.
_Normed: TypeAlias = tuple[
  Float[Array, "*B channels"], Float[Array, " channels"], Float32[Array, "*B 1"]
]


class RMSNorm(nn.Module):
  """Root-mean-square normalization in float32, with a learned scale.

  Attributes:
    eps: added to the mean square.
    axis_name: logical name of the normalized axis.
    is_applied: False returns the scale alone, for a kernel that normalizes.
    offset: whether 1 is added to the learned scale, which then starts at 0.
    divisor: divides the scale.
  """

  eps: float
  axis_name: str
  is_applied: bool = True
  offset: bool = False
  divisor: float = 1.0

  @nn.compact
  def __call__(
    self, x: Float[Array, "*B channels"]
  ) -> Float[Array, "*B channels"] | Float[Array, " channels"]:
    start = nn.initializers.zeros if self.offset else nn.initializers.ones
    scale = self.param(
      "scale", named(start, (self.axis_name,)), (x.shape[-1],), jnp.float32
    )
    if self.offset:
      scale = scale + 1.0
    if self.divisor != 1.0:
      scale = scale / self.divisor
    return _rms_norm(x, scale, self.eps) if self.is_applied else scale


class JointNorm(nn.Module):
  """RMSNorm over all heads together.

  Attributes:
    eps: added to the mean square.
    axis_name: logical name of the heads.
  """

  eps: float
  axis_name: str

  @nn.compact
  def __call__(self, x: Float[Array, "B S H E"]) -> Float[Array, "B S H E"]:
    scale = self.param(
      "scale",
      named(nn.initializers.ones, (self.axis_name, "head_size")),
      x.shape[-2:],
      jnp.float32,
    )
    flat = x.reshape(*x.shape[:-2], -1)
    return _rms_norm(flat, scale.reshape(-1), self.eps).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _rms_norm(
  x: Float[Array, "*B channels"], scale: Float[Array, " channels"], eps: float
) -> Float[Array, "*B channels"]:
  """Returns x over its root mean square, times `scale`.

  For the backward pass it keeps x in its own dtype and one number per token,
  instead of the formula's float32 arrays.
  """
  return _rms_norm_forward(x, scale, eps)[0]


def _rms_norm_forward(
  x: Float[Array, "*B channels"], scale: Float[Array, " channels"], eps: float
) -> tuple[Float[Array, "*B channels"], _Normed]:
  x32 = x.astype(jnp.float32)
  mean_square = jnp.mean(x32**2, axis=-1, keepdims=True)
  inverse = jax.lax.rsqrt(mean_square + eps)
  wide_scale = jnp.expand_dims(scale, range(x.ndim - 1))
  return (x32 * inverse * wide_scale).astype(x.dtype), (x, scale, inverse)


def _rms_norm_backward(
  eps: float, kept: _Normed, grad: Float[Array, "*B channels"]
) -> tuple[Float[Array, "*B channels"], Float[Array, " channels"]]:
  del eps
  x, scale, inverse = kept
  normed = x.astype(jnp.float32) * inverse
  grad = grad.astype(jnp.float32)
  scale_grad = jnp.sum(grad * normed, axis=range(x.ndim - 1))
  grad = grad * jnp.expand_dims(scale, range(x.ndim - 1))
  mean = jnp.mean(grad * normed, axis=-1, keepdims=True)
  return (inverse * (grad - normed * mean)).astype(x.dtype), scale_grad


_rms_norm.defvjp(_rms_norm_forward, _rms_norm_backward)


class Projection(nn.Module):
  """A linear map of the last axes of its input, with named parameter axes.

  Attributes:
    shape_in: sizes of the axes that are summed over.
    shape_out: sizes of the axes that replace them.
    axes_in: logical names of the kernel's input axes.
    axes_out: logical names of its output axes.
    bias: whether a bias is added.
    how: compute type and product.

  Returns:
    The product. Without an input, the kernel and bias in the compute type.
  """

  shape_in: tuple[int, ...]
  shape_out: tuple[int, ...]
  axes_in: tuple[str, ...]
  axes_out: tuple[str | None, ...]
  bias: bool
  how: Computation

  @nn.compact
  def __call__(self, x: Float[Array, "B S ..."] | None) -> Any:
    initializer = nn.initializers.variance_scaling(
      1.0,
      "fan_in",
      "truncated_normal",
      in_axis=tuple(range(len(self.shape_in))),
      out_axis=tuple(
        range(len(self.shape_in), len(self.shape_in) + len(self.shape_out))
      ),
    )
    kernel = self._parameter(
      "kernel",
      initializer,
      self.axes_in + self.axes_out,
      self.shape_in + self.shape_out,
    )
    zeros = nn.initializers.zeros
    if x is None:
      kernel = kernel.astype(self.how.dtype)
      bias = None
      if self.bias:
        bias = self._parameter("bias", zeros, self.axes_out, self.shape_out)
      return kernel, bias
    y = self.how.multiply(
      x, kernel, self.axes_in + self.axes_out, len(self.shape_in)
    ).astype(self.how.dtype)
    if self.how.quantized:
      scale = self._parameter(
        "scale", nn.initializers.ones, self.axes_out, self.shape_out
      )
      y = products.rescale(y, scale)
    if self.bias:
      bias = self._parameter("bias", zeros, self.axes_out, self.shape_out)
      y = _biased(y, bias)
    return y

  def _parameter(
    self,
    name: str,
    initializer: nn.initializers.Initializer,
    axes: tuple[str | None, ...],
    shape: tuple[int, ...],
  ) -> Num[Array, "..."]:
    return self.param(name, named(initializer, axes), shape, jnp.float32)


def _adapted(
  y: Float[Array, "B S *out"],
  x: Float[Array, "B S *in"],
  how: Computation,
  adapter_ids: Int[Array, "B _S"] | None,
  name: str,
  axes_in: tuple[str, ...],
  axes_out: tuple[str, ...],
) -> Float[Array, "B S *out"]:
  """Returns the output y of a projection of x, plus its adapter's if any.

  Args:
    y: the projection's output.
    x: its input.
    how: the adapters and the compute type.
    adapter_ids: see `Inputs`.
    name: the projection's name.
    axes_in: logical names of its input axes.
    axes_out: logical names of its output axes.
  """
  if how.lora is None or name not in how.lora.targets:
    return y
  adapter = adapters.Adapter(
    *(how.lora, axes_in, axes_out, how.dtype, how.multiply),
    name=f"{name}{adapters.SUFFIX}",
  )
  return adapter(x, y, adapter_ids)


def _biased(
  y: Float[Array, "B S *out"], bias: Float[Array, "*out"]
) -> Float[Array, "B S *out"]:
  """Returns y plus a bias, in the type of y."""
  return y + jnp.expand_dims(bias, range(y.ndim - bias.ndim)).astype(y.dtype)


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
    return _adapted(y, out, self.how, inputs.adapter_ids, "o", *axes), new

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
      _adapted(y, x, self.how, ids, name, ("embed",), (heads, "head_size"))
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
      qkv = _biased(qkv, jnp.concatenate(biases))
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
        _adapted(y, x, self.how, ids, name, ("embed",), ("mlp",))
        for y, name in ((gate, "gate"), (up, "up"))
      )
      is_silu = self.config.activation == SILU
      hidden = (gated.silu if is_silu else gated.gelu)(gate, up)
    narrow = (inner, outer, ("mlp",), ("embed",), False, self.how)
    y = Projection(*narrow, name="down")(hidden)
    return _adapted(y, hidden, self.how, ids, "down", ("mlp",), ("embed",))


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
