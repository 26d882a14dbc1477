"""Measures this device's rate of matrix products and of copies.

The keys:

  product_flops   operations per second of a product of square matrices, in
                  bfloat16 (float32 on a CPU)
  copy_bandwidth  bytes per second that a copy reads and writes
  peak_rates      what other commands compare with: the data sheet's rates if
                  the device is known, else measured ones
"""

import argparse
from typing import Any

import jax

from azr_jax.lab.bench import device


def add_flags(parser: argparse.ArgumentParser) -> None:
  """`peak` has no flags; every command defines this."""
  del parser


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Measures both rates of the first device."""
  del flags
  return {
    "machine": device.machine(),
    "jax": jax.__version__,
    "product_flops": device.measured_flops(),
    "copy_bandwidth": device.copy_bandwidth(),
    "peak_rates": device.peak_rates(),
  }
