"""The MLPs of a layer's experts for tokens on many devices."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Float32, Int32, Num

from azr_jax.models.config import ClampedSwiglu
from azr_jax.models.expert_mlps import (
  AxisNames,
  ExpertsFn,
  Projections,
  compute,
  parameter_axes,
)
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Rules


def make(mesh: Mesh, rules: Rules, *, interpret: bool = False) -> ExpertsFn:
  """Returns `compute` for tokens and parameters that are split over a mesh.

  Each device gathers the kernels of its experts. If several devices share the
  experts, each computes its own experts for the tokens of all of them, and the
  sums go back to the tokens' devices.

  Args:
    mesh: the device mesh; tokens are split by `mesh.TOKENS`.
    rules: logical parameter axis to mesh axis.
    interpret: run kernels in interpret mode, for tests.
  """
  platform = mesh_lib.platform(mesh)
  run = functools.partial(compute, platform=platform, interpret=interpret)
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
      if owner is not None:
        experts = whole.down.kernel.shape[0]
        x, weights, chosen = (
          _of_all(owner, array) for array in (x, weights, chosen)
        )
        own = chosen - jax.lax.axis_index(owner) * experts
        chosen = jnp.where((own >= 0) & (own < experts), own, experts)
      if width == "tensor":
        whole = _with_one_bias(whole)
      y = run(x, weights, chosen, whole, scale, clamp)
      if owner is not None:
        y = _summed(owner, y)
      return jax.lax.psum(y, "tensor") if width == "tensor" else y

    tokens: Any = mesh_lib.TOKENS
    return jax.shard_map(
      on_shard,
      mesh=mesh,
      in_specs=(tokens, tokens, tokens, specs),
      out_specs=tokens,
      check_vma=False,
    )(x, weights, chosen, projections)

  return split


def _token_axis(owner: str) -> int | None:
  """Returns the axis of tokens [B, S, ...] that a mesh axis splits."""
  if owner in mesh_lib.BATCH_AXES:
    return 0
  return 1 if owner == "context" else None


def _of_all(
  owner: str, x: Num[Array, "B S channels"]
) -> Num[Array, "_B _S channels"]:
  """Returns the tokens of all devices that share the experts."""
  axis = _token_axis(owner)
  return (
    x if axis is None else jax.lax.all_gather(x, owner, axis=axis, tiled=True)
  )


def _summed(
  owner: str, y: Float[Array, "_B _S channels"]
) -> Float[Array, "B S channels"]:
  """Returns the sum over experts for the tokens of a device."""
  axis = _token_axis(owner)
  if axis is None:
    return jax.lax.psum(y, owner)
  return jax.lax.psum_scatter(y, owner, scatter_dimension=axis, tiled=True)


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
