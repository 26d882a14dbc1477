"""Device programs that can be lowered, with shapes in place of arrays."""

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
    name: weights, prefill or prefill_WIDTH, decode, score, estimate, critic,
      prepare or update in a step; start_copy, start_critic, start_policy or
      restore at the start.
    lower: traces the program and returns a `jax.stages.Lowered`. None if arrays
      are only read and no program runs.
    resident_bytes: bytes per device of other arrays while the program runs.
    cache_bytes: bytes per device of all keys, or values; 0 without a cache.
  """

  name: str
  lower: Callable[[], jax.stages.Lowered] | None
  resident_bytes: float
  cache_bytes: float = 0.0


def shapes_of(tree: Any) -> Any:
  """Replaces the host arrays of a tree by their shapes."""
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def ints(*shape: int) -> Any:
  """Returns an abstract int32 array."""
  return jax.ShapeDtypeStruct(shape, jnp.int32)


def with_shardings(shapes: Any, shardings: Any) -> Any:
  """Adds a sharding to each shape of a tree."""
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
