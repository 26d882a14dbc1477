"""Reads the experts of sequences from their pages (`expert_record.py`)."""

import jax
import numpy as np
from jaxtyping import Int32

from azr_jax.rollout.engine import Engine
from azr_jax.rollout.expert_record import Reading, ReadTokens
from azr_jax.rollout.kv_cache import KVCache
from azr_jax.rollout.sequence import SequenceState

# Sequences whose pages a call reads, per device; fewer if each device gets the
# experts of all sequences.
_ROWS, _FEW_ROWS = 4, 1


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
    self._calls: list[ReadTokens] = []
    self._rows = _ROWS if jax.process_count() == 1 else _FEW_ROWS

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
    """Sends the calls that read the pages of all readings so far.

    Results of earlier calls leave the devices.
    """
    for call in self._calls:
      call.on_host()
    self._calls.clear()
    readings, self._readings = self._readings, []
    by_device: dict[int, list[Reading]] = {}
    for reading in readings:
      by_device.setdefault(reading.device, []).append(reading)
    longest = max(map(len, by_device.values()), default=0)
    for start in range(0, longest, self._rows):
      part = slice(start, start + self._rows)
      self._send({device: own[part] for device, own in by_device.items()})

  def warm_up(self) -> None:
    """Compiles the programs for all numbers of pages by reading nothing."""
    if self._engine.read_experts is not None:
      for width in self._widths():
        self._read(np.zeros((self._num_rows(), width), np.int32))

  def _widths(self) -> list[int]:
    """Returns the numbers of pages per row that have a program."""
    most = self._engine.shapes.max_pages_per_row
    return [*(1 << n for n in range((most - 1).bit_length())), most]

  def _num_rows(self) -> int:
    """Returns the rows of a call, on all devices."""
    return self._engine.shapes.devices * self._rows

  def _read(self, table: Int32[np.ndarray, "rows M"]) -> ReadTokens:
    """Sends a call that reads some pages."""
    assert self._engine.read_experts is not None
    return ReadTokens(self._engine.read_experts(self._cache.pool, table))

  def _send(self, by_device: dict[int, list[Reading]]) -> None:
    """Sends a call for some readings of each device."""
    each = [reading for own in by_device.values() for reading in own]
    most = max(len(reading.pages) for reading in each)
    width = min(width for width in self._widths() if width >= most)
    table = np.zeros((self._num_rows(), width), np.int32)
    for device, readings in by_device.items():
      for row, reading in enumerate(readings, start=device * self._rows):
        table[row, : len(reading.pages)] = reading.pages
        reading.row = row
    result = self._read(table)
    self._calls.append(result)
    for reading in each:
      reading.result, reading.send = result, None
