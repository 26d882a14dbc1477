"""Compares errors and seconds of programs that compute the same arrays."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from azr_jax.lab.bench import device

# A kernel is wrong if its worst error exceeds `_FACTOR` times plain XLA's in
# the same dtype plus `_LEAST`, which allows for float32 summation order.
_FACTOR, _LEAST = 3.0, 1e-4

# This fraction of the mean norm is added to each vector's norm, because vectors
# that should be 0, such as a first query's gradient, have no relative error.
_FLOOR = 0.1


@dataclasses.dataclass(frozen=True)
class Programs:
  """The programs to compare, with their inputs.

  Attributes:
    inputs: arrays, possibly in trees.
    names: names of the arrays [..., E] that a program returns.
    exact: computes the arrays in float32, given the inputs.
    plain: computes them in the dtype of the inputs.
    kernel: computes them by a kernel. None if this machine has none, so that a
      run would use plain XLA.
    calls: calls of attention per program.
  """

  inputs: tuple[Any, ...]
  names: tuple[str, ...]
  exact: Callable[..., tuple[Float[Array, "..."], ...]]
  plain: Callable[..., tuple[Float[Array, "..."], ...]]
  kernel: Callable[..., tuple[Float[Array, "..."], ...]] | None
  calls: int = 1


def compare(programs: Programs, repeats: int) -> dict[str, Any]:
  """Runs the programs and returns their errors and seconds.

  Args:
    programs: the programs to compare.
    repeats: timed calls of each.

  Returns:
    For each array, NAME_error is the norm of its difference from the exact
    array, relative to the exact norm. NAME_worst is the largest such error of a
    vector [E], relative to its norm plus a tenth of the mean norm. Plain XLA's
    errors end in `_plain`. `wrong` lists the names whose worst error is too
    large. `seconds`, `plain_seconds` and `speedup` compare the times. Without a
    kernel, there are only plain XLA's errors and seconds.
  """
  inputs, p = programs.inputs, programs
  with jax.default_matmul_precision("highest"):
    exact = p.exact(*inputs)
  plain = _errors(p.names, p.plain(*inputs), exact)
  plain_s = device.fastest(lambda: p.plain(*inputs), repeats) / p.calls
  kernel = p.kernel
  if kernel is None:
    return plain | {"seconds": plain_s}
  found = _errors(p.names, kernel(*inputs), exact)
  seconds = device.fastest(lambda: kernel(*inputs), repeats) / p.calls
  return {
    **found,
    **{f"{name}_plain": error for name, error in plain.items()},
    "wrong": [
      name
      for name in p.names
      # Written as `not <=`, so that NaN counts as wrong.
      if not found[f"{name}_worst"] <= _FACTOR * plain[f"{name}_worst"] + _LEAST
    ],
    "seconds": seconds,
    "plain_seconds": plain_s,
    "speedup": plain_s / seconds,
  }


def _errors(
  names: tuple[str, ...],
  found: tuple[Float[Array, "..."], ...],
  exact: tuple[Float[Array, "..."], ...],
) -> dict[str, float]:
  """Returns the errors of each array, overall and of its worst vector."""
  errors = {}
  for name, *arrays in zip(names, found, exact, strict=True):
    error, worst = jax.device_get(_error(*arrays))
    errors |= {f"{name}_error": float(error), f"{name}_worst": float(worst)}
  return errors


@jax.jit
def _error(
  found: Float[Array, "*B E"], exact: Float[Array, "*B E"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
  """Returns the relative error of an array and of its worst vector."""
  off = jnp.linalg.norm(found.astype(jnp.float32) - exact, axis=-1)
  size = jnp.linalg.norm(exact, axis=-1)
  mean = jnp.sqrt(jnp.mean(size**2))
  error = jnp.sqrt(jnp.mean(off**2)) / mean
  return error, jnp.max(off / (size + _FLOOR * mean))


def floats(tree: Any) -> Any:
  """Converts the floating-point arrays of a tree to float32."""
  return jax.tree.map(
    lambda x: (
      x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x
    ),
    tree,
  )
