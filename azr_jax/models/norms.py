"""Root-mean-square normalization, with a backward pass that keeps little."""

import functools
from typing import TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from azr_jax.models.naming import named

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
