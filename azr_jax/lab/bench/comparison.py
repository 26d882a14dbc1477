"""Compares a function with a baseline by alternating runs of both.

This way, other load on the machine slows both alike.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from azr_jax.lab.bench import device


def alternate(
  candidate: Callable[[], float],
  baseline: Callable[[], float] | None,
  repeats: int,
) -> tuple[list[float], list[float]]:
  """Times both functions in alternation, after a warm-up run of each.

  Args:
    candidate: does the work once and returns seconds.
    baseline: does the same work once and returns seconds, or None.
    repeats: timed runs of each.

  Returns:
    The seconds of the candidate's runs and of the baseline's runs.
  """
  candidate()
  if baseline is None:
    return [candidate() for _ in range(repeats)], []
  baseline()
  pairs = [(candidate(), baseline()) for _ in range(repeats)]
  return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def rates(
  tokens: int, candidate: list[float], baseline: list[float]
) -> dict[str, Any]:
  """Returns tokens per second at the median, their ratio, and peak memory.

  Args:
    tokens: tokens of one run.
    candidate: seconds of the candidate's runs.
    baseline: seconds of the baseline's runs; empty without a baseline.
  """
  metrics: dict[str, Any] = {
    "tokens": tokens,
    "tokens_per_s": tokens / float(np.median(candidate)),
    "peak_process_gib": device.peak_process_bytes() / 2**30,
  }
  if (peak := device.peak_device_bytes()) is not None:
    metrics["peak_device_gib"] = peak / 2**30
  if baseline:
    metrics["baseline_tokens_per_s"] = tokens / float(np.median(baseline))
    metrics["speedup"] = median_ratio(baseline, candidate)
  return metrics


def median_ratio(seconds: list[float], others: list[float]) -> float:
  """Returns the median of `seconds / others` over pairs of runs."""
  pairs = zip(seconds, others, strict=True)
  return float(np.median([one / other for one, other in pairs]))
