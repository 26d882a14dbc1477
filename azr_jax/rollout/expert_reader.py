"""Reads the experts of sequences from their pages (`expert_record.py`)."""

import numpy as np

from azr_jax.rollout.engine import Engine
from azr_jax.rollout.expert_record import Reading
from azr_jax.rollout.kv_cache import KVCache
from azr_jax.rollout.sequence import SequenceState

# Sequences whose pages a call reads, per device.
ROWS = 4


class ExpertReader:
  """Reads the experts of sequences before their pages are written again.

  Every call that writes pages comes after `flush`.
  """

  def __init__(self, engine: Engine, cache: KVCache):
    """Starts without readings.

    Args:
      engine: the compiled functions.
      cache: the pages.
    """
    self._engine, self._cache = engine, cache
    self._readings: list[Reading] = []

  def note(self, sequence: SequenceState, count: int | None = None) -> None:
    """Records that a sequence will lose its pages.

    Args:
      sequence: a sequence with pages, or without.
      count: number of tokens in its pages; None has `cached.count`.
    """
    cached, record = sequence.cached, sequence.experts
    if self._engine.read_experts is None or cached is None:
      return
    stop = cached.count if count is None else count
    if stop <= len(record):
      return
    reading = Reading(
      cached.device, list(cached.pages), len(record), stop, self.flush
    )
    self._readings.append(reading)
    record.add(reading)

  def flush(self) -> None:
    """Sends the calls that read the pages of all readings so far."""
    readings, self._readings = self._readings, []
    by_device: dict[int, list[Reading]] = {}
    for reading in readings:
      by_device.setdefault(reading.device, []).append(reading)
    longest = max(map(len, by_device.values()), default=0)
    for start in range(0, longest, ROWS):
      self._send(
        {device: own[start : start + ROWS] for device, own in by_device.items()}
      )

  def warm_up(self) -> None:
    """Compiles the program by reading nothing."""
    if self._engine.read_experts is not None:
      self._send({})

  def _send(self, by_device: dict[int, list[Reading]]) -> None:
    """Sends a call for some readings of each device."""
    read, shapes = self._engine.read_experts, self._engine.shapes
    assert read is not None
    table = np.zeros(
      (shapes.devices * ROWS, shapes.max_pages_per_row), np.int32
    )
    for device, readings in by_device.items():
      for row, reading in enumerate(readings, start=device * ROWS):
        table[row, : len(reading.pages)] = reading.pages
        reading.row = row
    result = read(self._cache.pool, table)
    for readings in by_device.values():
      for reading in readings:
        reading.result, reading.send = result, None
