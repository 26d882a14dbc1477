"""What the device at hand can do, and how much memory the process took."""

import os
import platform
import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from azr_jax.parallel import chips

_REPEATS = 5


def machine() -> dict[str, Any]:
  """What the figures were measured on."""
  return {
    "cores": os.cpu_count(),
    "python": platform.python_version(),
    "kernel": platform.release(),
    "load": os.getloadavg()[0],
  }


def ceilings() -> dict[str, Any]:
  """Bytes and operations per second of the first device.

  A known accelerator's are those of its data sheet, in bfloat16; another
  device's, e.g. a CPU's, are measured in float32.
  """
  kind = jax.devices()[0].device_kind
  if kind in chips.BY_KIND:
    chip = chips.BY_KIND[kind]
    return {
      "device": kind,
      "source": "data sheet",
      "bandwidth": chip.bandwidth,
      "flops": chip.flops,
    }
  return {
    "device": kind,
    "source": "measured",
    "bandwidth": _bandwidth(),
    "flops": _flops(),
  }


def _best_seconds(run: Callable[[], Any]) -> float:
  jax.block_until_ready(run())
  times = []
  for _ in range(_REPEATS):
    start = time.perf_counter()
    jax.block_until_ready(run())
    times.append(time.perf_counter() - start)
  return min(times)


def _bandwidth() -> float:
  """Of a matrix-vector product: the weights are read once, as in decoding."""
  rows, columns = 16384, 8192
  matrix = jnp.ones((rows, columns), jnp.float32)
  vector = jnp.ones((columns, 8), jnp.float32)
  multiply = jax.jit(jnp.matmul)
  return matrix.nbytes / _best_seconds(lambda: multiply(matrix, vector))


def _flops() -> float:
  size = 2048
  matrix = jnp.ones((size, size), jnp.float32)
  multiply = jax.jit(jnp.matmul)
  return 2 * size**3 / _best_seconds(lambda: multiply(matrix, matrix))


def peak_device_bytes() -> int | None:
  """Most device memory in use so far, where the backend counts it."""
  stats = jax.devices()[0].memory_stats()
  return stats.get("peak_bytes_in_use") if stats else None


def peak_process_bytes() -> int:
  """Most memory that this process has had resident."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
