"""The slots of the decode loop on the host: which sequence has which."""

from typing import Any

import numpy as np

from azr_jax.rollout import decode_state, draft_policy
from azr_jax.rollout.changes import ChangesBuilder
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.meter import RequestMeter
from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.sequence_stages import Stages


class SlotTable:
  """The sequence of each slot, and the slots on the device.

  On one device the number of slots follows the demand, over a few sizes.

  Attributes:
    sequences: that of each slot; None where it is free.
    state: the slots on the device.
    changes: what the next call of the decode loop is told.
  """

  def __init__(self, engine: Engine, stages: Stages, meter: RequestMeter):
    """Makes free slots.

    Args:
      engine: the compiled functions.
      stages: the scheduler's sequences; those in slots are `stages.running`.
      meter: counts the programs that are sent.
    """
    self._engine, self._stages, self._meter = engine, stages, meter
    count = engine.slot_counts[0]
    self.sequences: list[SequenceState | None] = [None] * count
    self.state: Any = engine.init_slots(count)
    self.changes = ChangesBuilder(engine.devices, engine.max_pages_per_row)

  def __len__(self) -> int:
    return len(self.sequences)

  @property
  def are_mostly_decoding(self) -> bool:
    """Whether more than half of the slots decode.

    Below that, prefill goes before decoding, because decoding a few slots costs
    nearly as much as decoding all of them.
    """
    return len(self._stages.running) > len(self) // 2

  def free(self) -> list[list[int]]:
    """Returns the free slots of each device, the last one first."""
    per_device = len(self) // self._engine.devices
    free: list[list[int]] = [[] for _ in range(self._engine.devices)]
    for slot in reversed(range(len(self))):
      if self.sequences[slot] is None:
        free[slot // per_device].append(slot)
    return free

  def enter(self, slot: int, sequence: SequenceState) -> None:
    """Gives a free slot to a sequence."""
    self.sequences[slot] = sequence
    self._stages.running.append(sequence)
    self.changes.enter(slot, sequence)

  def leave(self, sequence: SequenceState) -> None:
    """Frees the slot of a sequence."""
    slot = self.sequences.index(sequence)
    self.sequences[slot] = None
    self._stages.running.remove(sequence)
    self.changes.leave(slot, sequence)

  def take_changes(self, drafts: bool) -> decode_state.Changes:
    """Returns the changes since the last call of the decode loop.

    Args:
      drafts: whether the next call has drafts.
    """
    changes = self.changes.take(self.sequences)
    if not drafts:
      return changes
    size = self._engine.settings.speculation.context
    return changes.replace(context=draft_policy.contexts(self.sequences, size))

  def resize(self, needed: int) -> None:
    """Changes the number of slots to the smallest count that is enough.

    It goes through the compiled slot counts one by one, because only changes
    between neighbours were compiled.

    Args:
      needed: sequences that have slots or may need one.
    """
    counts = self._engine.slot_counts
    for slots in reversed(counts):
      if len(self) < slots and len(self) < needed:
        self.change_count(slots)
    for slots in counts:
      if needed <= slots < len(self):
        self.change_count(slots)

  def change_count(self, slots: int) -> None:
    """Makes this many slots: all live ones first, then free ones."""
    kept = sorted(
      range(len(self)), key=lambda slot: self.sequences[slot] is None
    )[:slots]
    added = slots - len(kept)
    self.sequences = [self.sequences[slot] for slot in kept] + [None] * added
    self.changes.move(kept, slots)
    self._meter.record_dispatch()
    # New slots are copies of slot 0. `move` has marked them as done, so that
    # they decode nothing.
    kept = np.asarray(kept + [0] * added, np.int32)
    self.state = self._engine.compact(self.state, kept)

  def close(self) -> None:
    """Frees the memory of the slots on the device, which nobody uses again."""
    self.sequences = []
    del self.state
