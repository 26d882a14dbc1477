"""A device program that can be lowered, and shapes in the place of arrays."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Program:
  """One device program.

  Attributes:
    name: of a step: weights, prefill or prefill_WIDTH, decode, score, estimate,
      critic, prepare or update; of a start: start_copy, start_critic,
      start_policy or restore.
    lower: traces the program; returns a `jax.stages.Lowered`. None: arrays are
      read, and no program runs.
    resident_bytes: bytes of a device that other arrays take while it runs.
    cache_bytes: bytes of all keys, or values, on a device; 0: the program has
      none.
  """

  name: str
  lower: Callable[[], jax.stages.Lowered] | None
  resident_bytes: float
  cache_bytes: float = 0.0


def shapes_of(tree: Any) -> Any:
  """Returns a tree of arrays of the host as shapes."""
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def ints(*shape: int) -> Any:
  """Returns the shape of an int32 array, to be given in its place."""
  return jax.ShapeDtypeStruct(shape, jnp.int32)


def with_shardings(shapes: Any, shardings: Any) -> Any:
  """Returns a tree of shapes with a sharding for each."""
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=sharding
    ),
    shapes,
    shardings,
  )


def device_bytes(tree: Any) -> float:
  """Returns the bytes of a tree of shapes on one device; 0 for None."""

  def of(leaf: Any) -> float:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      return 8.0 * np.prod(leaf.shape)
    shape = leaf.sharding.shard_shape(leaf.shape)
    return float(np.prod(shape) * leaf.dtype.itemsize)

  return float(sum(map(of, jax.tree.leaves(tree))))
