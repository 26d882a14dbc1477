"""The host's slot table: which sequence is in which slot, and what changes."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int, Int32, Int64

from azr_jax.rollout import decode_state
from azr_jax.rollout import drafts as drafts_lib
from azr_jax.rollout.decode_state import Changes
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.meter import RequestMeter
from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.sequence_stages import Stages
from azr_jax.rollout.tokens import DecodedCall, SlotTokens, no_call

_KEY_DATA = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))


class ChangesBuilder:
  """Collects the slot changes for the next call of `decode`."""

  def __init__(self, devices: int, max_pages_per_row: int):
    """Starts without changes.

    Args:
      devices: number of devices that slots are split over, in equal parts.
      max_pages_per_row: M, the maximum number of pages per slot.
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

  def leave(self, slot: int, sequence: SequenceState) -> bool:
    """Records that a sequence left its slot.

    Returns:
      Whether the sequence was still waiting for a copy of its last page.
    """
    self._entering.pop(slot, None)
    self._stopped.add(slot)
    return self._copies.pop(sequence, None) is not None

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

  def move(self, old: Sequence[int | None]) -> None:
    """Renumbers the slots.

    Args:
      old: the old index of each slot; None if the slot is new.
    """
    new_slot = {slot: new for new, slot in enumerate(old) if slot is not None}
    self._entering = {new_slot[s]: q for s, q in self._entering.items()}
    stopped = {new_slot[slot] for slot in self._stopped if slot in new_slot}
    self._stopped = stopped | {s for s, slot in enumerate(old) if slot is None}

  def take(self, table: Int32[np.ndarray, "B M"]) -> Changes:
    """Returns the changes since the last call and clears them.

    Args:
      table: the pages of each slot.
    """
    slots = len(table)
    changes = no_changes(slots, self._devices, self._max_pages_per_row)
    changes = changes.replace(table=table)
    if self._entering:
      _set_entering(changes, self._entering)
    changes.stops[list(self._stopped)] = True
    per_device = slots // self._devices
    for sequence, (page, to) in self._copies.items():
      assert sequence.cached is not None
      device = sequence.cached.device
      index = device * per_device + changes.num_copies[device]
      changes.copy_sources[index], changes.copy_targets[index] = page, to
      changes.num_copies[device] += 1
    self._entering, self._stopped, self._copies = {}, set(), {}
    return changes


def _set_entering(
  changes: Changes, entering: Mapping[int, SequenceState]
) -> None:
  """Describes the sequences that enter, by slot."""
  slots, sequences = [*entering], [*entering.values()]
  requests = [sequence.request for sequence in sequences]
  changes.enters[slots] = True
  changes.token[slots] = [one.last_token for one in sequences]
  changes.length[slots] = [one.cached.count for one in sequences if one.cached]
  changes.num_tokens[slots] = [one.num_tokens for one in sequences]
  changes.max_new_tokens[slots] = [one.max_new_tokens for one in sequences]
  changes.temperature[slots] = [one.temperature for one in requests]
  changes.key_data[slots] = [one.key_data for one in requests]
  changes.adapter[slots] = [one.adapter.index for one in requests]
  changes.numbers[slots] = [
    (one.request.prompt_number, one.sample_index) for one in sequences
  ]


def no_changes(slots: int, devices: int, max_pages_per_row: int) -> Changes:
  """Returns arrays that change nothing.

  Args:
    slots: B.
    devices: number of devices that slots are split over.
    max_pages_per_row: M, the maximum number of pages per slot.
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
    numbers=zeros(slots, 2),
    adapter=zeros(slots),
    stops=zeros(slots, dtype=bool),
    table=zeros(slots, max_pages_per_row),
    copy_sources=zeros(slots),
    copy_targets=zeros(slots),
    num_copies=zeros(devices),
  )


# A slot on the host. In a free slot, only `occupied` is valid.
_SLOT = np.dtype(
  [
    ("occupied", bool),
    ("watched", bool),  # Any token may end the response.
    ("marked", bool),  # A token with one of its tool's marks may end it.
    ("started", np.int64),  # Ascending in the order of entry.
    ("length", np.int64),  # Cached tokens.
    ("num_pages", np.int64),
    ("max_pages", np.int64),  # The pages of the longest completion.
  ]
)


class SlotTable:
  """The sequence in each slot on the host, and the slots on the device.

  A decode call changes most slots in the same way, so their numbers are arrays.
  A sequence gets its number of cached tokens back when it leaves its slot, and
  its tokens when they are read (`tokens.py`).

  The number of slots follows demand, in a few fixed sizes. Each device has
  equally many slots, and a sequence stays on the device of its pages.

  Attributes:
    sequences: the sequence in each slot; None if the slot is free.
    state: the slots on the device.
    marks: the end marks of all tools that have had a slot.
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
    self._shapes = shapes = engine.shapes
    count = shapes.slot_counts[0]
    self.sequences: list[SequenceState | None] = [None] * count
    self.state: Any = engine.init_slots(count)
    self.marks: set[str] = set()
    self.changes = ChangesBuilder(shapes.devices, shapes.max_pages_per_row)
    self._slots = np.zeros(count, _SLOT)
    self._table = np.zeros((count, shapes.max_pages_per_row), np.int32)
    self._num_entered = 0
    self._call = no_call()

  def __len__(self) -> int:
    return len(self.sequences)

  @property
  def per_device(self) -> int:
    """Number of slots of each device."""
    return len(self) // self._shapes.devices

  @property
  def lengths(self) -> Int64[np.ndarray, " B"]:
    """Number of cached tokens of each slot; any number if it is free."""
    return self._slots["length"]

  @property
  def occupied(self) -> Bool[np.ndarray, " B"]:
    """The slots with a sequence."""
    return self._slots["occupied"]

  @property
  def watched(self) -> Bool[np.ndarray, " B"]:
    """The slots whose requests have ends of their own, at any token."""
    return self._slots["watched"] & self.occupied

  @property
  def marked(self) -> Bool[np.ndarray, " B"]:
    """The slots whose tools end responses at a mark."""
    return self._slots["marked"] & self.occupied

  @property
  def num_live(self) -> Int[np.ndarray, " devices"]:
    """Number of live slots of each device."""
    return self.occupied.reshape(self._shapes.devices, -1).sum(1)

  def free(self) -> list[list[int]]:
    """Returns the free slots of each device, in descending order."""
    per_device = self.per_device
    free: list[list[int]] = [[] for _ in range(self._shapes.devices)]
    for slot in np.flatnonzero(~self.occupied)[::-1].tolist():
      free[slot // per_device].append(slot)
    return free

  def on_device(self, device: int) -> list[SequenceState]:
    """Returns the sequences in a device's slots, in the order of entry."""
    first = device * self.per_device
    slots = np.arange(first, first + self.per_device)
    return self._in_order(slots[self.occupied[slots]])

  def _in_order(self, slots: Int[np.ndarray, " some"]) -> list[SequenceState]:
    """Returns the sequences in some occupied slots, in the order of entry."""
    ordered = slots[np.argsort(self._slots["started"][slots])].tolist()
    return [one for slot in ordered if (one := self.sequences[slot])]

  def enter(self, slot: int, sequence: SequenceState) -> None:
    """Puts a sequence into a free slot."""
    cached, request = sequence.cached, sequence.request
    assert cached is not None
    self.sequences[slot] = sequence
    self._stages.running[sequence] = slot
    sequence.read_from(SlotTokens(slot, self._call))
    self._num_entered += 1
    self.marks.update(request.end_marks or "")
    self._slots[slot] = (
      True,
      request.has_own_ends,
      bool(request.end_marks),
      self._num_entered,
      cached.count,
      len(cached.pages),
      self._shapes.pages_for(sequence.max_cached),
    )
    self._table[slot] = 0
    self._table[slot, : len(cached.pages)] = cached.pages
    self.changes.enter(slot, sequence)

  def leave(self, sequence: SequenceState) -> None:
    """Frees a sequence's slot."""
    slot = self._stages.running.pop(sequence)
    length = int(self.lengths[slot])
    cached, unread = sequence.cached, sequence.unread
    assert cached is not None and unread is not None
    unread.end(self._call, length - cached.count)
    cached.count = length
    self.sequences[slot] = None
    self.occupied[slot] = False
    if self.changes.leave(slot, sequence):
      # Its last page still holds what its previous owner wrote.
      cached.count -= cached.count % self._shapes.page_size

  def add_tokens(self, call: DecodedCall) -> None:
    """Adds the tokens of a decode call to the sequences in the slots."""
    self._call.following = self._call = call
    self._slots["length"] += call.num_generated

  def growing(self, tokens: int) -> list[tuple[SequenceState, int]]:
    """Returns the sequences that need pages for more tokens.

    Args:
      tokens: the new tokens of each sequence; fewer if it can have no more.

    Returns:
      Sequences, in the order of entry, and how many tokens they will have
      cached.
    """
    s, running = self._slots, self._stages.running
    pages = -(-(s["length"] + tokens) // self._shapes.page_size)
    more = np.minimum(pages, s["max_pages"]) > s["num_pages"]
    found = self._in_order(np.flatnonzero(more & s["occupied"]))
    lengths = (s["length"] + tokens).tolist()
    return [(one, min(lengths[running[one]], one.max_cached)) for one in found]

  def num_growing(self, device: int) -> int:
    """Returns how many sequences of a device may need another page."""
    slots = self._slots.reshape(self._shapes.devices, -1)[device]
    more = slots["max_pages"] > slots["num_pages"]
    return int(np.count_nonzero(more & slots["occupied"]))

  def update_pages(self, sequence: SequenceState) -> None:
    """Records the pages that were added to a sequence in a slot."""
    slot, cached = self._stages.running[sequence], sequence.cached
    assert cached is not None
    self._slots["num_pages"][slot] = len(cached.pages)
    self._table[slot, : len(cached.pages)] = cached.pages

  def take_changes(self, context: int) -> decode_state.Changes:
    """Returns the changes since the last decode call.

    Args:
      context: T, the tokens per slot that the next call drafts from; 0 without
        drafts.
    """
    table = np.where(self.occupied[:, None], self._table, 0)
    changes = self.changes.take(table)
    if not context:
      return changes
    return changes.replace(context=drafts_lib.contexts(self.sequences, context))

  def resize(self, needed: int) -> None:
    """Changes the number of slots to the smallest sufficient count.

    It steps through the slot counts one by one, because only changes between
    neighbouring counts are compiled.

    Args:
      needed: number of sequences that have or may need a slot.
    """
    counts = self._shapes.slot_counts
    for slots in reversed(counts):
      if len(self) < slots and len(self) < needed:
        self.change_count(slots)
    for slots in counts:
      if needed <= slots < len(self):
        self.change_count(slots)

  def change_count(self, slots: int) -> None:
    """Sets the number of slots; each device's live slots move to the front."""
    devices, per_device = self._shapes.devices, slots // self._shapes.devices
    occupied = self.occupied.reshape(devices, -1)
    assert max(self.num_live) <= per_device, "a live slot would be lost"
    kept = np.argsort(~occupied, axis=1, kind="stable")[:, :per_device]
    added = per_device - kept.shape[1]
    # New slots are copies of their device's first slot. `move` marks them as
    # stopped, so they decode nothing.
    local = np.pad(kept.astype(np.int32), ((0, 0), (0, added)))
    is_new = np.tile(np.arange(per_device) >= kept.shape[1], devices)
    from_slot = np.ravel(local + self.per_device * np.arange(devices)[:, None])
    old = [
      None if new else slot
      for slot, new in zip(from_slot.tolist(), is_new, strict=True)
    ]
    self.sequences = [None if s is None else self.sequences[s] for s in old]
    self.changes.move(old)
    self._meter.record_dispatch()
    self.state = self._engine.compact(self.state, np.ravel(local))
    self._slots, self._table = self._slots[from_slot], self._table[from_slot]
    self.occupied[is_new] = False
    for slot, sequence in enumerate(self.sequences):
      if sequence is not None:
        # The outputs of earlier calls have the tokens at the old slot.
        sequence.read_from(SlotTokens(slot, self._call))
        assert sequence.cached is not None
        sequence.cached.count = int(self.lengths[slot])
        self._stages.running[sequence] = slot

  def close(self) -> None:
    """Frees the slots' device memory; the table cannot be used afterwards."""
    self.sequences = []
    del self.state
