"""One request's way through the slots: the host side of continuous batching."""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from azr_jax import types
from azr_jax.rollout import decode as decode_lib
from azr_jax.rollout.programs import Programs


@dataclasses.dataclass
class Row:
  """One sequence to sample, and what has been sampled of it.

  Attributes:
    prompt: index of its prompt.
    sample: which of the prompt's n samples it is.
    place: index of its prompt among those that are read together.
    tokens: ids so far.
    logprobs: of these ids.
    end: tokens up to the end of a stop string, once there is one.
  """

  prompt: int
  sample: int
  place: int
  tokens: list[int] = dataclasses.field(default_factory=list)
  logprobs: list[float] = dataclasses.field(default_factory=list)
  end: int | None = None


@dataclasses.dataclass
class _Reading:
  """Prompts of one bucket that are being read, or wait for slots.

  Attributes:
    tokens: int32 [P, bucket], right-padded.
    lengths: int32 [P].
    rows: sequences that wait for a slot.
    prompts: on the device.
    done: tokens that have been read.
  """

  tokens: np.ndarray
  lengths: np.ndarray
  rows: collections.deque[Row]
  prompts: decode_lib.Prompts
  done: int = 0

  @property
  def ready(self) -> bool:
    """Whether every prompt has been read to its end."""
    return self.done >= int(self.lengths.max())


class Request:
  """Prompts that are sampled together; call `fill_up`, `decode`, `take`."""

  def __init__(
    self,
    programs: Programs,
    params: Any,
    prompts: Sequence[types.Prompt],
    by_bucket: Mapping[int, Sequence[int]],
    n: int,
    limits: Sequence[int],
    numbers: Sequence[int],
    key: jax.Array,
    stop_ids: np.ndarray,
    stop_end: Callable[[list[int], int], int | None],
  ):
    """Lays out what is to be done; nothing runs yet.

    Args:
      programs: the compiled programs.
      params: parameters to sample with.
      prompts: what to sample from.
      by_bucket: prompt indices by bucket; read in this order.
      n: samples per prompt.
      limits: most tokens per sample, of each prompt.
      numbers: what is folded into the key, of each prompt.
      key: random key; used up.
      stop_ids: int32 [I], ids that end a completion.
      stop_end: given a row's ids and how many of them were looked at before,
        the number of ids up to the end of a stop string, or None.
    """
    self._programs = programs
    self._params = params
    self._prompts = prompts
    self._n = n
    self._limits = limits
    self._numbers = numbers
    self._key = key
    self._stop_ids = stop_ids
    self._stop_end = stop_end
    self._state = programs.empty_slots()
    self._slots: list[Row | None] = [None] * programs.sizes[0]
    self._cut = np.zeros(programs.sizes[0], bool)
    self._reading: _Reading | None = None
    self._unread = collections.deque(
      (bucket, indices[first : first + programs.together(bucket)])
      for bucket, indices in by_bucket.items()
      for first in range(0, len(indices), programs.together(bucket))
    )

  @property
  def live(self) -> int:
    """How many slots hold a sequence that has not ended."""
    return sum(row is not None for row in self._slots)

  @property
  def _waiting(self) -> bool:
    """Whether sequences wait for a slot."""
    return self._reading is not None or bool(self._unread)

  def fill_up(self) -> bool:
    """Reads prompts and fills free slots; false when all has ended.

    Once nothing waits, slots that are free for good are given up.
    """
    while self._waiting:
      if self._reading is None:
        self._reading = self._begin(*self._unread.popleft())
      self._read_on()
      if self._reading.ready and None in self._slots:
        self._fill()
      # Decoding a few slots costs nearly as much as decoding all.
      if self.live > len(self._slots) // 2:
        break
    if self.live and not self._waiting:
      for size in self._programs.sizes:  # One by one: each was compiled.
        if self.live <= size < len(self._slots):
          self._keep(size)
    return self.live > 0

  def _keep(self, size: int) -> None:
    """Goes on with `size` slots: all that are live, and some that are not."""
    kept = sorted(range(len(self._slots)), key=lambda s: self._slots[s] is None)
    kept = np.asarray(kept[:size], np.int32)
    self._slots = [self._slots[slot] for slot in kept]
    self._cut = self._cut[kept]
    self._state = self._programs.keep_slots(self._state, kept)

  def decode(self) -> decode_lib.Written:
    """Starts the next call of the decode loop; does not wait for it."""
    enough = 0
    if self._waiting:
      # Slots are filled anew by the eighth: each break in decoding costs.
      enough = len(self._slots) - max(1, len(self._slots) // 8)
    self._state, written = self._programs.decode(
      self._params,
      self._state,
      self._stop_ids,
      self._cut,
      np.int32(max(0, min(enough, self.live - 1))),
    )
    self._cut = np.zeros(len(self._slots), bool)
    return written

  def take(self, written: decode_lib.Written) -> list[Row]:
    """Takes what was written (on the host); frees the slots of what ended."""
    ended = []
    for slot, row in enumerate(self._slots):
      if row is None:
        continue
      count = int(written.count[slot])
      before = len(row.tokens)
      row.tokens += written.tokens[slot, :count].tolist()
      row.logprobs += written.logprobs[slot, :count].tolist()
      row.end = self._stop_end(row.tokens, before)
      if row.end is not None or written.done[slot]:
        self._cut[slot] = True
        self._slots[slot] = None
        ended.append(row)
    return ended

  def warm_up(self) -> None:
    """Runs each program once, on nothing, so that all are compiled."""
    for bucket in self._programs.settings.prompt_buckets:
      self._reading = self._begin(bucket, [])
      self._read_on()
      self._fill()
    self._reading = None
    for size in self._programs.sizes:
      if size < len(self._slots):
        self._keep(size)
      jax.block_until_ready(self.decode())

  def _begin(self, bucket: int, indices: Sequence[int]) -> _Reading:
    """Lays out prompts to be read together."""
    count = self._programs.together(bucket)
    tokens = np.zeros((count, bucket), np.int32)
    lengths = np.ones(count, np.int32)
    for place, index in enumerate(indices):
      ids = self._prompts[index].token_ids
      tokens[place, : len(ids)] = ids
      lengths[place] = len(ids)
    rows = collections.deque(
      Row(index, sample, place)
      for place, index in enumerate(indices)
      for sample in range(self._n)
    )
    room = self._programs.empty_prompts(count, bucket)
    return _Reading(tokens, lengths, rows, room)

  def _read_on(self) -> None:
    """Reads the next part of the prompts."""
    reading = self._reading
    assert reading is not None
    if reading.ready:
      return
    bucket = reading.tokens.shape[1]
    size = self._programs.prefill_size(bucket)
    # The last part may overlap the one before: it is read again, to the same.
    start = min(reading.done, bucket - size)
    reading.prompts = self._programs.prefill(
      self._params,
      reading.prompts,
      reading.tokens[:, start : start + size],
      np.int32(start),
      reading.lengths,
    )
    reading.done = start + size

  def _fill(self) -> None:
    """Puts waiting sequences into the free slots."""
    reading = self._reading
    assert reading is not None
    free = [slot for slot, row in enumerate(self._slots) if row is None]
    counts = np.zeros(len(reading.lengths), np.int32)
    slots = np.zeros(len(self._slots), np.int32)
    limits = np.zeros(len(self._slots), np.int32)
    streams = np.zeros((len(self._slots), 2), np.int32)
    count = min(len(free), len(reading.rows))
    for index, slot in enumerate(free[:count]):
      row = reading.rows.popleft()
      self._slots[slot] = row
      self._cut[slot] = False
      counts[row.place] += 1
      slots[index] = slot
      limits[index] = self._limits[row.prompt]
      streams[index] = self._numbers[row.prompt], row.sample
    self._state = self._programs.fill_slots(
      self._state,
      reading.prompts,
      counts,
      slots,
      limits,
      streams,
      self._key,
    )
    if not reading.rows:
      self._reading = None
