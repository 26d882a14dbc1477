"""Peak rates and peak memory of the device and the process."""

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
  """Returns the machine that measurements run on, and its load average."""
  return {
    "cores": os.cpu_count(),
    "python": platform.python_version(),
    "kernel": platform.release(),
    "load": os.getloadavg()[0],
  }


def peak_rates() -> dict[str, Any]:
  """Returns bytes and FLOPs per second of the first device.

  A known accelerator has data-sheet rates, in bfloat16. Any other device is
  measured, a CPU in float32.
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
    "flops": measured_flops(),
  }


def fastest(run: Callable[[], Any], repeats: int = _REPEATS) -> float:
  """Returns the seconds of the fastest run, after a warm-up run."""
  jax.block_until_ready(run())
  times = []
  for _ in range(repeats):
    start = time.perf_counter()
    jax.block_until_ready(run())
    times.append(time.perf_counter() - start)
  return min(times)


def _bandwidth() -> float:
  """Measures bytes per second of a product with a tall, thin matrix.

  It reads the large matrix once, as decoding reads the weights.
  """
  rows, columns = 16384, 8192
  matrix = jnp.ones((rows, columns), jnp.float32)
  vectors = jnp.ones((columns, 8), jnp.float32)
  multiply = jax.jit(jnp.matmul)
  return matrix.nbytes / fastest(lambda: multiply(matrix, vectors))


def measured_flops() -> float:
  """Measures FLOPs per second of a product of square matrices.

  They are float32 [2048, 2048] on a CPU, else bfloat16 [8192, 8192].
  """
  size, dtype = (2048, jnp.float32) if _is_cpu() else (8192, jnp.bfloat16)
  # Random, because a GPU draws less power and clocks higher on constants.
  matrix = jax.random.normal(jax.random.key(0), (size, size), dtype)
  multiply = jax.jit(jnp.matmul)
  return 2 * size**3 / fastest(lambda: multiply(matrix, matrix))


def copy_bandwidth() -> float:
  """Measures bytes per second of reading an array and writing its negative.

  It has 64 MiB on a CPU, else 2 GiB.
  """
  array = jnp.ones((16 if _is_cpu() else 512, 1 << 20), jnp.float32)
  negate = jax.jit(jnp.negative)
  return 2 * array.nbytes / fastest(lambda: negate(array))


def _is_cpu() -> bool:
  """Returns whether the first device is a CPU."""
  return jax.devices()[0].platform == "cpu"


def peak_device_bytes() -> int | None:
  """Returns the peak device memory so far, or None if it is not tracked."""
  stats = jax.devices()[0].memory_stats()
  return stats.get("peak_bytes_in_use") if stats else None


def peak_process_bytes() -> int:
  """Returns the peak resident memory of this process, in bytes."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
