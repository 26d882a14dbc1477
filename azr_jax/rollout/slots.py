"""The host's slot table: which sequence is in which slot, and what changes."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from azr_jax.rollout import decode_state
from azr_jax.rollout import drafts as drafts_lib
from azr_jax.rollout.decode_state import Changes
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.meter import RequestMeter
from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.sequence_stages import Stages

_KEY_DATA = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))


class ChangesBuilder:
  """Collects the slot changes for the next call of `decode`."""

  def __init__(self, devices: int, max_pages_per_row: int):
    """Starts without changes.

    Args:
      devices: number of devices that slots are split over, in equal parts.
      max_pages_per_row: M, the most pages per slot.
    """
    self._devices = devices
    self._max_pages_per_row = max_pages_per_row
    self._entering: dict[int, SequenceState] = {}
    self._stopped: set[int] = set()
    self._copies: dict[SequenceState, tuple[int, int]] = {}

  def enter(self, slot: int, sequence: SequenceState) -> None:
    """Records that a sequence entered a slot."""
    self._entering[slot] = sequence
    self._stopped.discard(slot)

  def leave(self, slot: int, sequence: SequenceState) -> None:
    """Records that a sequence left its slot."""
    self._entering.pop(slot, None)
    self._copies.pop(sequence, None)
    self._stopped.add(slot)

  def copy(self, sequence: SequenceState, page: int, to: int) -> None:
    """Records that an entering sequence needs a copy of `page` in page `to`."""
    self._copies[sequence] = page, to

  def is_copied(self, device: int, pages: Sequence[int]) -> bool:
    """Returns whether any of a device's pages is waiting to be copied."""
    return any(
      sequence.cached is not None
      and sequence.cached.device == device
      and page in pages
      for sequence, (page, _) in self._copies.items()
    )

  def move(self, kept: Sequence[int], slots: int) -> None:
    """Renumbers the slots.

    Args:
      kept: the old index of each of the first slots.
      slots: the new number of slots; those past `kept` are new.
    """
    new_slot = {old: new for new, old in enumerate(kept)}
    self._entering = {new_slot[s]: q for s, q in self._entering.items()}
    stopped = {new_slot[slot] for slot in self._stopped if slot in new_slot}
    self._stopped = stopped | set(range(len(kept), slots))

  def take(self, slots: Sequence[SequenceState | None]) -> Changes:
    """Returns the changes since the last call and clears them.

    Args:
      slots: the sequence in each slot.
    """
    changes = no_changes(len(slots), self._devices, self._max_pages_per_row)
    for slot, sequence in enumerate(slots):
      if sequence is not None and sequence.cached is not None:
        pages = sequence.cached.pages
        changes.table[slot, : len(pages)] = pages
    for slot, sequence in self._entering.items():
      request = sequence.request
      assert sequence.cached is not None
      changes.enters[slot] = True
      changes.token[slot] = sequence.last_token
      changes.length[slot] = sequence.cached.count
      changes.num_tokens[slot] = len(sequence.token_ids)
      changes.max_new_tokens[slot] = sequence.max_new_tokens
      changes.temperature[slot] = request.temperature
      changes.key_data[slot] = request.key_data
      changes.seeds[slot] = request.seed, sequence.sample_index
    changes.stops[list(self._stopped)] = True
    per_device = len(slots) // self._devices
    for sequence, (page, to) in self._copies.items():
      assert sequence.cached is not None
      device = sequence.cached.device
      index = device * per_device + changes.num_copies[device]
      changes.copy_sources[index], changes.copy_targets[index] = page, to
      changes.num_copies[device] += 1
    self._entering, self._stopped, self._copies = {}, set(), {}
    return changes


def no_changes(slots: int, devices: int, max_pages_per_row: int) -> Changes:
  """Returns arrays that change nothing.

  Args:
    slots: B.
    devices: number of devices that slots are split over.
    max_pages_per_row: M, the most pages per slot.
  """

  def zeros(*shape: int, dtype: type = np.int32) -> Any:
    return np.zeros(shape, dtype)

  return Changes(
    enters=zeros(slots, dtype=bool),
    token=zeros(slots),
    length=zeros(slots),
    num_tokens=zeros(slots),
    max_new_tokens=zeros(slots),
    temperature=zeros(slots, dtype=np.float32),
    key_data=zeros(slots, *_KEY_DATA.shape, dtype=np.uint32),
    seeds=zeros(slots, 2),
    stops=zeros(slots, dtype=bool),
    table=zeros(slots, max_pages_per_row),
    copy_sources=zeros(slots),
    copy_targets=zeros(slots),
    num_copies=zeros(devices),
  )


class SlotTable:
  """The sequence in each slot on the host, and the slots on the device.

  On one device the number of slots follows demand, in a few fixed sizes.

  Attributes:
    sequences: the sequence in each slot; None if the slot is free.
    state: the slots on the device.
    changes: the changes that the next decode call applies.
  """

  def __init__(self, engine: Engine, stages: Stages, meter: RequestMeter):
    """Creates free slots.

    Args:
      engine: the compiled functions.
      stages: the scheduler's sequences; `stages.running` are in slots.
      meter: counts the programs that are sent to the device.
    """
    self._engine, self._stages, self._meter = engine, stages, meter
    count = engine.slot_counts[0]
    self.sequences: list[SequenceState | None] = [None] * count
    self.state: Any = engine.init_slots(count)
    self.changes = ChangesBuilder(engine.devices, engine.max_pages_per_row)

  def __len__(self) -> int:
    return len(self.sequences)

  def free(self) -> list[list[int]]:
    """Returns the free slots of each device, in descending order."""
    per_device = len(self) // self._engine.devices
    free: list[list[int]] = [[] for _ in range(self._engine.devices)]
    for slot in reversed(range(len(self))):
      if self.sequences[slot] is None:
        free[slot // per_device].append(slot)
    return free

  def enter(self, slot: int, sequence: SequenceState) -> None:
    """Puts a sequence into a free slot."""
    self.sequences[slot] = sequence
    self._stages.running.append(sequence)
    self.changes.enter(slot, sequence)

  def leave(self, sequence: SequenceState) -> None:
    """Frees a sequence's slot."""
    slot = self.sequences.index(sequence)
    self.sequences[slot] = None
    self._stages.running.remove(sequence)
    self.changes.leave(slot, sequence)

  def take_changes(self, drafts: bool) -> decode_state.Changes:
    """Returns the changes since the last decode call.

    Args:
      drafts: whether the next call uses drafts.
    """
    changes = self.changes.take(self.sequences)
    if not drafts:
      return changes
    size = self._engine.settings.speculation.context
    return changes.replace(context=drafts_lib.contexts(self.sequences, size))

  def resize(self, needed: int) -> None:
    """Changes the number of slots to the smallest sufficient count.

    It steps through the slot counts one by one, because only changes between
    neighbouring counts are compiled.

    Args:
      needed: number of sequences that have or may need a slot.
    """
    counts = self._engine.slot_counts
    for slots in reversed(counts):
      if len(self) < slots and len(self) < needed:
        self.change_count(slots)
    for slots in counts:
      if needed <= slots < len(self):
        self.change_count(slots)

  def change_count(self, slots: int) -> None:
    """Changes to this many slots: all live ones first, then free ones."""
    kept = sorted(
      range(len(self)), key=lambda slot: self.sequences[slot] is None
    )[:slots]
    added = slots - len(kept)
    self.sequences = [self.sequences[slot] for slot in kept] + [None] * added
    self.changes.move(kept, slots)
    self._meter.record_dispatch()
    # New slots are copies of slot 0. `move` has marked them as stopped, so
    # they decode nothing.
    kept = np.asarray(kept + [0] * added, np.int32)
    self.state = self._engine.compact(self.state, kept)

  def close(self) -> None:
    """Frees the slots' device memory; the table cannot be used afterwards."""
    self.sequences = []
    del self.state
