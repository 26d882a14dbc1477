"""Compares us with a peer by alternate runs, so that other load hits both."""

from collections.abc import Callable
from typing import Any

import numpy as np

from azr_jax.perf import device


def alternate(
  ours: Callable[[], float], peer: Callable[[], float] | None, repeats: int
) -> tuple[list[float], list[float]]:
  """Runs both sides in turn, after one run of each that is not counted.

  Args:
    ours: does the work once and returns seconds.
    peer: does the same work once and returns seconds, or None.
    repeats: counted runs of each side.

  Returns:
    The seconds of our runs, and those of the peer's.
  """
  ours()
  if peer is None:
    return [ours() for _ in range(repeats)], []
  peer()
  pairs = [(ours(), peer()) for _ in range(repeats)]
  return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def rates(tokens: int, ours: list[float], peer: list[float]) -> dict[str, Any]:
  """Returns tokens per second by the medians, their ratio, and peak memory.

  Args:
    tokens: the work of one run.
    ours: seconds of our runs.
    peer: seconds of the peer's runs; empty without a peer.
  """
  metrics: dict[str, Any] = {
    "tokens": tokens,
    "tokens_per_s": tokens / float(np.median(ours)),
    "peak_process_gib": device.peak_process_bytes() / 2**30,
  }
  if (peak := device.peak_device_bytes()) is not None:
    metrics["peak_device_gib"] = peak / 2**30
  if peer:
    metrics["peer_tokens_per_s"] = tokens / float(np.median(peer))
    metrics["of_peer"] = float(
      np.median([b / a for a, b in zip(ours, peer, strict=True)])
    )
  return metrics
