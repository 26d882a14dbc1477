"""Compares the errors and seconds of programs that compute the same arrays."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from azr_jax.lab.bench import device

# A kernel is wrong if its worst error is so many times that of plain XLA in the
# same type, and above what another order of sums makes in float32.
_FACTOR, _LEAST = 3.0, 1e-4

# This part of the mean norm is added to a vector's own: one that should be 0,
# such as the gradient of a first query, has no relative error.
_FLOOR = 0.1


@dataclasses.dataclass(frozen=True)
class Programs:
  """What is compared.

  Attributes:
    inputs: arrays, perhaps in a tree.
    names: of the arrays [..., E] that a program returns.
    exact: (*inputs) to these arrays, in float32.
    plain: the same in the type of the inputs.
    kernel: the same by a kernel; None: this machine has none, and plain XLA is
      what a run would take.
    calls: of attention in a program.
  """

  inputs: tuple[Any, ...]
  names: tuple[str, ...]
  exact: Callable[..., tuple[jax.Array, ...]]
  plain: Callable[..., tuple[jax.Array, ...]]
  kernel: Callable[..., tuple[jax.Array, ...]] | None
  calls: int = 1


def compare(programs: Programs, repeats: int) -> dict[str, Any]:
  """Runs them.

  Args:
    programs: what is compared.
    repeats: timed calls of each.

  Returns:
    For each array NAME_error, the norm of the difference from the exact array
    divided by its norm, NAME_worst, the largest one of a vector [E], by its
    norm and a tenth of the mean norm, and both of plain XLA, ..._plain;
    `wrong`, the names whose worst errors are too large; seconds of both, and
    their ratio. Without a kernel, plain XLA's errors and seconds alone.
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
      # This way around NaN is wrong.
      if not found[f"{name}_worst"] <= _FACTOR * plain[f"{name}_worst"] + _LEAST
    ],
    "seconds": seconds,
    "plain_seconds": plain_s,
    "speedup": plain_s / seconds,
  }


def _errors(
  names: tuple[str, ...],
  found: tuple[jax.Array, ...],
  exact: tuple[jax.Array, ...],
) -> dict[str, float]:
  """Returns the errors of arrays, of all of each and of its worst vector."""
  errors = {}
  for name, *arrays in zip(names, found, exact, strict=True):
    error, worst = jax.device_get(_error(*arrays))
    errors |= {f"{name}_error": float(error), f"{name}_worst": float(worst)}
  return errors


@jax.jit
def _error(found: jax.Array, exact: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns the relative error of an array, and that of its worst vector."""
  off = jnp.linalg.norm(found.astype(jnp.float32) - exact, axis=-1)
  size = jnp.linalg.norm(exact, axis=-1)
  mean = jnp.sqrt(jnp.mean(size**2))
  error = jnp.sqrt(jnp.mean(off**2)) / mean
  return error, jnp.max(off / (size + _FLOOR * mean))


def floats(tree: Any) -> Any:
  """Returns a tree with numbers of half precision in float32."""
  return jax.tree.map(
    lambda x: (
      x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x
    ),
    tree,
  )
