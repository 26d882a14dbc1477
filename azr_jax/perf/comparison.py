"""Our side and a peer's, in turn, so that what else runs hits both."""

from collections.abc import Callable
from typing import Any

import numpy as np

from azr_jax.perf import device


def take_turns(
  ours: Callable[[], float], peer: Callable[[], float] | None, repeats: int
) -> tuple[list[float], list[float]]:
  """Seconds of each run of both sides; a first run of each is not counted."""
  ours()
  if peer is None:
    return [ours() for _ in range(repeats)], []
  peer()
  pairs = [(ours(), peer()) for _ in range(repeats)]
  return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def rates(
  tokens: int, ours: list[float], theirs: list[float]
) -> dict[str, Any]:
  """Tokens per second by the medians, their ratio, and peak memory."""
  found: dict[str, Any] = {
    "tokens": tokens,
    "tokens_per_s": tokens / float(np.median(ours)),
    "peak_process_gib": device.peak_process_bytes() / 2**30,
  }
  if (peak := device.peak_device_bytes()) is not None:
    found["peak_device_gib"] = peak / 2**30
  if theirs:
    found["peer_tokens_per_s"] = tokens / float(np.median(theirs))
    found["of_peer"] = float(
      np.median([b / a for a, b in zip(ours, theirs, strict=True)])
    )
  return found
