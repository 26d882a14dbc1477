"""One request's way through the slots: the host side of continuous batching.

In a conversation a slot that waits for an answer keeps what it has read, and
is not filled with anything else.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from azr_jax import types
from azr_jax.rollout import decode as decode_lib
from azr_jax.rollout import extend as append_lib
from azr_jax.rollout.engine import Programs
from azr_jax.rollout.environment import Environment, split_replies


@dataclasses.dataclass
class Row:
  """One sequence to sample, and what has been sampled of it.

  Attributes:
    prompt: index of its prompt.
    sample: which of the prompt's n samples it is.
    place: index of its prompt among those that are read together.
    tokens: ids so far.
    logprobs: of these ids.
    own: whether the model wrote them.
    reply: index of the first id of the reply that is being written.
    waits: whether an answer to its last reply is on its way.
    unread: of an answer, the ids that are to be read next.
    finish_reason: once it has ended.
  """

  prompt: int
  sample: int
  place: int
  tokens: list[int] = dataclasses.field(default_factory=list)
  logprobs: list[float] = dataclasses.field(default_factory=list)
  own: list[bool] = dataclasses.field(default_factory=list)
  reply: int = 0
  waits: bool = False
  unread: list[int] = dataclasses.field(default_factory=list)
  finish_reason: str | None = None

  @property
  def writes(self) -> bool:
    """Whether the model is at work on it."""
    return not self.waits and not self.unread

  @property
  def replies(self) -> list[list[int]]:
    """What the model wrote, without the answers to it."""
    return split_replies(self.tokens, self.own)

  def write(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
    """Adds what the model wrote."""
    self.tokens += ids
    self.logprobs += logprobs
    self.own += [True] * len(ids)

  def hear(self, ids: Sequence[int]) -> None:
    """Adds an answer; it has yet to be read into the slot."""
    self.waits = False
    self.unread = list(ids)
    self.tokens += ids
    self.logprobs += [0.0] * len(ids)
    self.own += [False] * len(ids)
    self.reply = len(self.tokens)

  def cut(self, end: int) -> None:
    """Forgets what follows the first `end` ids."""
    del self.tokens[end:], self.logprobs[end:], self.own[end:]


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
    end_of_reply: Callable[[Sequence[int], int, int], int | None],
    environment: Environment | None,
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
      end_of_reply: see `Turns.end_of_reply`.
      environment: who answers replies; None if nobody does.
    """
    self._programs = programs
    self._params = params
    self._prompts = prompts
    self._n = n
    self._limits = limits
    self._numbers = numbers
    self._key = key
    self._stop_ids = stop_ids
    self._end_of_reply = end_of_reply
    self._environment = environment
    if environment is not None:
      environment.begin()
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
  def writing(self) -> int:
    """How many slots the model is at work on."""
    return sum(row is not None and row.writes for row in self._slots)

  @property
  def _waiting(self) -> bool:
    """Whether sequences wait for a slot."""
    return self._reading is not None or bool(self._unread)

  def fill_up(self) -> bool:
    """Reads prompts and answers into slots; false when all has ended.

    Once nothing waits, slots that are free for good are given up.
    """
    while self._waiting:
      if self._reading is None:
        self._reading = self._begin(*self._unread.popleft())
      self._read_on()
      if self._reading.ready:
        if None not in self._slots:
          break
        self._fill()
      # Decoding a few slots costs nearly as much as decoding all.
      if self.writing > len(self._slots) // 2:
        break
    if self.live and not self._waiting:
      for size in self._programs.sizes:  # One by one: each was compiled.
        if self.live <= size < len(self._slots):
          self._keep(size)
    self.hear(wait=False)
    return self.live > 0

  def hear(self, wait: bool) -> None:
    """Reads the answers that have come; with `wait`, at least one.

    An answer that leaves no room to go on ends its conversation.
    """
    rows = {(row.prompt, row.sample): row for row in self._slots if row}
    if self._environment is not None and any(
      row.waits for row in rows.values()
    ):
      for name, ids in self._environment.answers(wait).items():
        row = rows[name]
        row.waits = False
        if len(row.tokens) + len(ids) >= self._limits[row.prompt]:
          row.finish_reason = "length"
        else:
          row.hear(ids)
    while any(row.unread for row in rows.values()):
      self._append()
      # As with prompts: between the calls that decode.
      if self.writing > len(self._slots) // 2:
        break

  def _keep(self, size: int) -> None:
    """Goes on with `size` slots: all that are live, and some that are not."""
    kept = sorted(range(len(self._slots)), key=lambda s: self._slots[s] is None)
    kept = np.asarray(kept[:size], np.int32)
    self._slots = [self._slots[slot] for slot in kept]
    self._cut = self._cut[kept]
    self._state = self._programs.keep_slots(self._state, kept)

  def _append(self) -> None:
    """Reads the next part of answers, as many together as fit one call."""
    chunk = self._programs.settings.extend_chunk
    devices = self._programs.devices
    total = min(self._programs.together(chunk), len(self._slots))
    own, held = total // devices, len(self._slots) // devices
    part = append_lib.Addition(
      tokens=np.zeros((total, chunk), np.int32),
      **{
        name: np.zeros(total, np.int32)
        for name in ("counts", "rows", "slots", "starts", "written")
      },
      goes_on=np.zeros(total, bool),
    )
    taken = [0] * devices
    for slot, row in enumerate(self._slots):
      device = slot // held
      if row is None or not row.unread or taken[device] == own:
        continue
      place = device * own + taken[device]
      taken[device] += 1
      ids, row.unread = row.unread[:chunk], row.unread[chunk:]
      part.tokens[place, : len(ids)] = ids
      part.counts[place] = len(ids)
      part.rows[place] = slot % held
      part.slots[place] = slot
      part.written[place] = len(row.tokens) - len(row.unread)
      before = len(self._prompts[row.prompt].token_ids)
      part.starts[place] = before + part.written[place] - len(ids)
      part.goes_on[place] = not row.unread
      if not row.unread:
        self._cut[slot] = False
    self._state = self._programs.append(self._params, self._state, part)

  def decode(self) -> decode_lib.Written:
    """Starts the next call of the decode loop; does not wait for it."""
    enough, writing = 0, self.writing
    if self._waiting:
      # Slots are filled anew by the eighth: each break in decoding costs.
      enough = len(self._slots) - max(1, len(self._slots) // 8)
      enough -= self.live - writing
    if self._environment is not None:
      self._environment.observe(writing, self.live - writing, len(self._slots))
    self._state, written = self._programs.decode(
      self._params,
      self._state,
      self._stop_ids,
      self._cut,
      np.int32(max(0, min(enough, writing - 1))),
    )
    self._cut = np.zeros(len(self._slots), bool)
    return written

  def take(self, written: decode_lib.Written) -> list[Row]:
    """Takes what was written (on the host); frees the slots of what ended."""
    ended = []
    for slot, row in enumerate(self._slots):
      if row is None:
        continue
      if row.finish_reason is None and row.writes:
        count = int(written.count[slot])
        seen = len(row.tokens)
        row.write(
          written.tokens[slot, :count].tolist(),
          written.logprobs[slot, :count].tolist(),
        )
        end = self._end_of_reply(row.tokens, row.reply, seen)
        if end is None and not written.done[slot]:
          continue
        self._cut[slot] = True
        self._end_reply(row, end)
      if row.finish_reason is not None:
        self._slots[slot] = None
        ended.append(row)
    return ended

  def _end_reply(self, row: Row, end: int | None) -> None:
    """Ends a row with its reply, or has it wait for an answer."""
    if end is not None:
      row.cut(end)
    elif row.tokens[-1] not in self._stop_ids:
      row.finish_reason = "length"
      return
    row.finish_reason = "stop"
    if self._environment is not None:
      name = row.prompt, row.sample
      row.finish_reason = self._environment.take(name, row.replies)
      row.waits = row.finish_reason is None

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
      if self._programs.settings.extend_chunk:
        self._append()

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
