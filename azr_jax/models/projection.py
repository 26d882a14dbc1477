"""Linear maps, their biases and their adapters."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from azr_jax.models import adapters, products
from azr_jax.models.computation import Computation
from azr_jax.models.naming import named


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
      y = biased(y, bias)
    return y

  def _parameter(
    self,
    name: str,
    initializer: nn.initializers.Initializer,
    axes: tuple[str | None, ...],
    shape: tuple[int, ...],
  ) -> Num[Array, "..."]:
    return self.param(name, named(initializer, axes), shape, jnp.float32)


def adapted(
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
    adapter_ids: see `computation.Inputs`.
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


def biased(
  y: Float[Array, "B S *out"], bias: Float[Array, "*out"]
) -> Float[Array, "B S *out"]:
  """Returns y plus a bias, in the type of y."""
  return y + jnp.expand_dims(bias, range(y.ndim - bias.ndim)).astype(y.dtype)
