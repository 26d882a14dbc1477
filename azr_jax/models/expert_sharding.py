"""The MLPs of a layer's experts for tokens on many devices."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Float32, Int32, Num

from azr_jax.models.config import ClampedSwiglu, ModelConfig
from azr_jax.models.expert_mlps import (
  AxisNames,
  ExpertsFn,
  Projections,
  compute,
  parameter_axes,
)
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Rules

# Devices that share experts compute at least this many tokens at once.
_TOKENS = 4096


def check(config: ModelConfig, mesh: Mesh, rules: Rules, key: str) -> None:
  """Checks that a mesh splits a model's experts evenly.

  Args:
    config: the model's shape.
    mesh: the device mesh.
    rules: logical parameter axis to mesh axis.
    key: the key that sets the size of the mesh's `expert` axis.

  Raises:
    ValueError: it does not, or the model has no experts.
  """
  size = mesh.shape["expert"]
  if config.experts is None and size > 1:
    raise ValueError(f"{key}={size}: expected 1, as the model has no experts")
  if config.experts is not None and rules.get("experts") == "expert":
    count = config.experts.count
    if count % size:
      raise ValueError(f"{key}={size}: expected a divisor of {count} experts")


def make(mesh: Mesh, rules: Rules, *, tokens: int = _TOKENS) -> ExpertsFn:
  """Returns `compute` for tokens and parameters that are split over a mesh.

  Each device gathers the kernels of its experts. If several devices share the
  experts, each computes its own experts for the tokens of all of them, and the
  sums go back to the tokens' devices.

  Args:
    mesh: the device mesh; tokens are split by `mesh.TOKENS`.
    rules: logical parameter axis to mesh axis.
    tokens: the fewest tokens that devices with shared experts compute at once.
      More are computed in parts, because each device must have room for all
      their rows, in case that all tokens choose its experts.
  """
  run = functools.partial(compute, platform=mesh_lib.platform(mesh))
  if mesh.size == 1:
    return run

  def split(
    x: Float[Array, "B S D"],
    weights: Float32[Array, "B S choices"],
    chosen: Int32[Array, "B S choices"],
    projections: Projections,
    scale: float,
    clamp: ClampedSwiglu | None,
  ) -> Float[Array, "B S D"]:
    axes = _logical_axes(projections)
    specs = jax.tree.map(
      lambda leaf, names: mesh_lib.param_spec(names, leaf.shape, mesh, rules),
      projections,
      axes,
    )
    owner, width, _ = specs.down.kernel

    def on_shard(x: Any, weights: Any, chosen: Any, projections: Any) -> Any:
      whole = jax.tree.map(_gathered, projections, axes, specs)
      if width == "tensor":
        whole = _with_one_bias(whole)
      of_experts = functools.partial(
        run, projections=whole, scale=scale, clamp=clamp
      )
      if owner is None:
        y = of_experts(x, weights, chosen)
      else:
        y = _share(of_experts, whole, owner, tokens, x, weights, chosen)
      return jax.lax.psum(y, "tensor") if width == "tensor" else y

    of_tokens: Any = mesh_lib.TOKENS
    return jax.shard_map(
      on_shard,
      mesh=mesh,
      in_specs=(of_tokens, of_tokens, of_tokens, specs),
      out_specs=of_tokens,
      check_vma=False,
    )(x, weights, chosen, projections)

  return split


def _share(
  of_experts: Callable[..., Float[Array, "_B _S D"]],
  projections: Projections,
  owner: str,
  fewest: int,
  *arrays: Num[Array, "B S _channels"],
) -> Float[Array, "B S D"]:
  """Returns the sums over the experts of all devices along a mesh axis.

  Args:
    of_experts: computes the device's own experts.
    projections: the projections of the device's own experts.
    owner: the mesh axis.
    fewest: see `make`.
    arrays: the device's tokens, their weights and their experts.
  """
  shape = arrays[0].shape
  count, devices = shape[0] * shape[1], jax.lax.axis_size(owner)
  experts = projections.down.kernel.shape[0]
  splits_tokens = owner in (*mesh_lib.BATCH_AXES, "context")

  def compute_part(
    arrays: tuple[Num[Array, "_B _S _channels"], ...],
  ) -> Float[Array, "_B _S D"]:
    if splits_tokens:
      arrays = tuple(
        jax.lax.all_gather(x, owner, axis=1, tiled=True) for x in arrays
      )
    x, weights, chosen = arrays
    own = chosen - jax.lax.axis_index(owner) * experts
    chosen = jnp.where((own >= 0) & (own < experts), own, experts)
    y = of_experts(x, weights, chosen)
    if not splits_tokens:
      return jax.lax.psum(y, owner)
    return jax.lax.psum_scatter(y, owner, scatter_dimension=1, tiled=True)

  parts = max(
    n
    for n in range(1, devices + 1)
    if n == 1 or (count % n == 0 and count // n * devices >= fewest)
  )
  # [parts, 1, tokens, channels]
  by_part = tuple(x.reshape(parts, 1, -1, x.shape[-1]) for x in arrays)
  if parts == 1:
    y = compute_part(tuple(x[0] for x in by_part))
    return y.reshape(shape)
  # The backward pass keeps a part's inputs only.
  y = jax.lax.map(jax.checkpoint(compute_part), by_part)
  return y.reshape(shape)


def _with_one_bias(projections: Projections) -> Projections:
  """Returns the parameters of a device along `tensor`, whose sums are added.

  Only the first device keeps the bias of the sum.
  """
  down = projections.down
  if down.bias is None:
    return projections
  is_first = jax.lax.axis_index("tensor") == 0
  bias = jnp.where(is_first, down.bias, 0)
  return projections._replace(down=down._replace(bias=bias))


def _logical_axes(projections: Projections) -> Any:
  """Returns the names of each parameter's axes, in a tree of its structure."""
  wide, narrow = parameter_axes("embed", "mlp"), parameter_axes("mlp", "embed")
  names = [
    name
    for own, each in zip(projections, (wide, wide, narrow), strict=True)
    for leaf, name in zip(own, each, strict=True)
    if leaf is not None
  ]
  return jax.tree.unflatten(jax.tree.structure(projections), names)


def _gathered(
  shard: Num[Array, "..."],
  axes: AxisNames,
  spec: PartitionSpec,
) -> Num[Array, "..."]:
  """Returns a parameter of a device's experts, whole but for `tensor`."""
  for axis, (name, split) in enumerate(zip(axes, spec, strict=True)):
    stays = name == "experts" or (name, split) == ("mlp", "tensor")
    if split is not None and not stays:
      shard = jax.lax.all_gather(shard, split, axis=axis, tiled=True)
  return shard
