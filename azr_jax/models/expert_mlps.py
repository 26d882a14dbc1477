"""The MLPs of a layer's experts, by grouped products, on one device."""

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int32, Num

from azr_jax.models import expert_rows, gated, grouped_products
from azr_jax.models.config import ClampedSwiglu


class ExpertParams(NamedTuple):
  """One of the three projections of all experts of a layer.

  Attributes:
    kernel: one matrix per expert.
    scale: scales of 8-bit kernels, by output channel; None for other dtypes.
    a: A of the adapters; None without adapters.
    b: B of the adapters, like `a`.
    bias: one bias per expert; None without biases.
  """

  kernel: Num[Array, "X inner outer"]
  scale: Float32[Array, "X outer"] | None = None
  a: Float[Array, "X inner rank"] | None = None
  b: Float[Array, "X rank outer"] | None = None
  bias: Float[Array, "X outer"] | None = None


class Projections(NamedTuple):
  """The projections of all experts of a layer."""

  gate: ExpertParams
  up: ExpertParams
  down: ExpertParams


class AxisNames(tuple):
  """The names of a parameter's axes, as one leaf of a tree."""


def parameter_axes(inner: str, outer: str) -> tuple[AxisNames, ...]:
  """Returns the names of the axes of each field of `ExpertParams`."""
  return (
    AxisNames(("experts", inner, outer)),
    AxisNames(("experts", outer)),
    AxisNames(("experts", inner, None)),
    AxisNames(("experts", None, outer)),
    AxisNames(("experts", outer)),
  )


# (tokens x [B, S, D], weight of each expert [B, S, choices], chosen experts
# [B, S, choices], projections, scale of adapters, `ExpertShape.clamp`) ->
# [B, S, D]. Experts >= X are no experts, and add nothing.
ExpertsFn: TypeAlias = Callable[
  [
    Float[Array, "B S D"],
    Float32[Array, "B S choices"],
    Int32[Array, "B S choices"],
    Projections,
    float,
    ClampedSwiglu | None,
  ],
  Float[Array, "B S D"],
]


def compute(
  x: Float[Array, "B S D"],
  weights: Float32[Array, "B S choices"],
  chosen: Int32[Array, "B S choices"],
  projections: Projections,
  scale: float,
  clamp: ClampedSwiglu | None = None,
  platform: str = "cpu",
  interpret: bool = False,
) -> Float[Array, "B S D"]:
  """Returns the outputs of the tokens of one device; see `ExpertsFn`.

  Args:
    x: the tokens.
    weights: the weight of each expert of a token.
    chosen: the experts of each token.
    projections: the projections of all experts.
    scale: the factor of adapters.
    clamp: see `ExpertShape`.
    platform: the device's platform: cpu, gpu or tpu.
    interpret: run kernels in interpret mode, for tests.
  """
  D, choices = x.shape[-1], chosen.shape[-1]
  experts = projections.gate.kernel.shape[0]
  chosen = chosen.reshape(-1, choices)
  product = grouped_products.make(
    platform, chosen.size, experts, interpret=interpret
  )
  groups = expert_rows.arrange(chosen, experts, product)
  rows = expert_rows.dispatch(x.reshape(-1, D), groups)
  project = functools.partial(
    _project, product=product, sizes=groups.sizes, scale=scale
  )
  gate, up = (project(rows, own) for own in (projections.gate, projections.up))
  if clamp is None:
    hidden = gated.silu(gate, up)
  else:
    hidden = gated.clamped(gate, up, clamp.alpha, clamp.limit)
  out = project(hidden, projections.down)
  y = expert_rows.combine(out, weights.reshape(-1, choices), groups)
  return y.reshape(x.shape)


def _project(
  rows: Float[Array, "rows inner"],
  own: ExpertParams,
  product: grouped_products.GroupedProduct,
  sizes: Int32[Array, " X"],
  scale: float,
) -> Float[Array, "rows outer"]:
  """Returns the product of rows with their experts' kernels and adapters.

  Biases are added. Rows after the last expert's have no meaning.
  """
  y = product(rows, own.kernel, sizes)
  at = jnp.arange(rows.shape[0])
  group = jnp.searchsorted(jnp.cumsum(sizes), at, side="right")
  if own.scale is not None:
    factors = own.scale[jnp.minimum(group, sizes.shape[0] - 1)]
    y = (y.astype(jnp.float32) * factors).astype(y.dtype)
  if own.bias is not None:
    # A product, because the gradient of a lookup would be a scatter.
    is_own = jax.nn.one_hot(group, sizes.shape[0], dtype=own.bias.dtype)
    bias = jnp.matmul(is_own, own.bias, precision=jax.lax.Precision.HIGHEST)
    # Rows after the last expert's may hold anything, even NaN, of which the
    # gradient of the biases would be a multiple.
    is_used = (group < sizes.shape[0])[:, None]
    y = jnp.where(is_used, y + bias.astype(y.dtype), 0)
  if own.a is not None and own.b is not None:
    narrow = product(rows, own.a, sizes)
    y = y + product(narrow * scale, own.b, sizes)
  return y
