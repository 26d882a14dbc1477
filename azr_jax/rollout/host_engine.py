"""Engines without a device, which run the real stream and scheduler.

| engine | a token follows from | a sequence ends |
| --- | --- | --- |
| `PageEngine` | all tokens before it, as read from the pages | at a stop id |
| `LengthEngine` | nothing: it is taken from a text | at a given length |

`PageEngine` checks that a sequence reads its own pages, and never too early.
`LengthEngine` shows how the scheduler handles a load and what that costs the
host.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, Int32

from azr_jax.rollout import decode_state
from azr_jax.rollout.shapes import EngineShapes

# Annotated as Any, because they hold host arrays here.
_Slots: Any = decode_state.Slots
_Output: Any = decode_state.DecodeOutput
# Parameters of `next_token`: the vocabulary size, and a polynomial hash.
VOCABULARY, BASE, PRIME = 120, 131, 1_000_003


class _Ready(np.ndarray):
  """An array that is always ready, for `RequestMeter`."""

  def is_ready(self) -> bool:
    return True


def _taken(slots: Any, indices: Int[np.ndarray, " some"]) -> Any:
  """Returns copies of the slots at some indices."""
  fields = dataclasses.fields(slots)
  return _Slots(*(getattr(slots, field.name)[indices] for field in fields))


class HostEngine:
  """The part of `Engine` that the scheduler uses, on host arrays."""

  read_experts = None

  def __init__(self, shapes: EngineShapes, num_pages: int | None = None):
    """Creates an engine with any number of devices.

    Args:
      shapes: the sizes of device calls.
      num_pages: P, the pages of each device; None gives all slots enough.
    """
    self.shapes = shapes
    self.num_pages = shapes.num_slot_pages if num_pages is None else num_pages

  def init_pool(self) -> Any:
    """Returns None, because there are no pages."""

  def init_slots(self, slots: int) -> decode_state.Slots:
    """Returns slots that are all done."""
    zeros, ones = np.zeros(slots, np.int32), np.ones(slots, np.float32)
    key_data = np.zeros((slots, 2), np.uint32)
    return _Slots(*[zeros] * 4, np.ones(slots, bool), ones, key_data, zeros)

  def compact(
    self, slots: decode_state.Slots, kept: Int[np.ndarray, " kept"]
  ) -> decode_state.Slots:
    """Returns each device's slots at the indices `kept` of its own part."""
    devices = self.shapes.devices
    first = np.arange(devices) * (len(slots.done) // devices)
    return _taken(slots, kept + np.repeat(first, len(kept) // devices))

  def prefill(self, params: Any, pool: Any, batch: Any) -> Any:
    """Returns the pages unchanged."""
    return pool

  def change(
    self, slots: decode_state.Slots, changes: decode_state.Changes
  ) -> decode_state.Slots:
    """Returns the slots with the changes applied."""
    new: Any = _taken(slots, np.arange(len(slots.done)))
    enters = changes.enters
    for name in ("token", "length", "num_tokens", "max_new_tokens"):
      getattr(new, name)[enters] = getattr(changes, name)[enters]
    new.key_data[enters] = changes.numbers[enters]
    new.done[enters] = False
    new.done[changes.stops] = True
    return new


class LengthEngine(HostEngine):
  """An engine that ends each sequence at a given length."""

  def __init__(
    self,
    shapes: EngineShapes,
    length: Callable[[int, int], int],
    text: Int[np.ndarray, " text"] | None = None,
  ):
    """Creates an engine whose pages never run out.

    Args:
      shapes: the sizes of device calls.
      length: (prompt number, sample index) -> tokens of the completion.
      text: token ids to take random pieces of; None uses zeros.
    """
    super().__init__(shapes)
    self._length = length
    self._text = None if text is None else text.astype(np.int32)
    self._rng = np.random.default_rng(0)

  def decode(
    self,
    params: Any,
    pool: Any,
    slots: Any,
    changes: Any,
    stop_ids: Int[np.ndarray, " I"],
    min_live: int,
  ) -> tuple[Any, Any, Any]:
    """Runs one decode call; arguments as for `decode.decode`."""
    new: Any = self.change(slots, changes)
    for slot in np.flatnonzero(changes.enters):
      # A preempted sequence keeps its length.
      length = self._length(*map(int, changes.numbers[slot]))
      new.max_new_tokens[slot] = min(length, changes.max_new_tokens[slot])
    left = np.where(new.done, 0, new.max_new_tokens - new.num_tokens)
    # The loop ends once no more slots than `min_live` have tokens left.
    most = np.sort(left)[::-1][min(int(min_live), len(left) - 1)]
    generated = np.minimum(left, min(self.shapes.decode_chunk, most))
    tokens = self._tokens(len(left))
    ended = np.flatnonzero((left == generated) & (generated > 0))
    tokens[ended, generated[ended] - 1] = stop_ids[0]
    new = new.replace(
      length=new.length + generated,
      num_tokens=new.num_tokens + generated,
      done=new.done | (left == generated),
    )
    output = _Output(
      tokens,
      np.zeros(tokens.shape, np.float32),
      generated,
      new.done.copy().view(_Ready),
      generated,
    )
    return pool, new, output

  def _tokens(self, slots: int) -> Int32[np.ndarray, "B N"]:
    """Returns the tokens of a call."""
    steps = self.shapes.decode_chunk
    if self._text is None:
      return np.zeros((slots, steps), np.int32)
    starts = self._rng.integers(0, len(self._text) - steps, slots)
    return self._text[starts[:, None] + np.arange(steps)]


def next_token(prefix: Sequence[int], seed: int, index: int) -> int:
  """Returns the next token: a hash of the prefix that depends on its order."""
  powers = np.array([pow(BASE, i, PRIME) for i in range(len(prefix))])
  total = int(np.sum(np.asarray(prefix, np.int64) * powers) % PRIME)
  return (total + 7 * int(seed) + 3 * int(index)) % VOCABULARY


class PageEngine(HostEngine):
  """An engine that derives each token from all earlier ones in the pages.

  A sequence that reads another one's page, or reads a page too early, gets
  different tokens.

  Attributes:
    prefill_calls: number of prefill calls.
    prefilled: number of prefilled tokens.
    next_token: (tokens, sequence seed, index) -> the next token.
  """

  def __init__(self, shapes: EngineShapes, num_pages: int | None = None):
    super().__init__(shapes, num_pages)
    self.prefill_calls = self.prefilled = 0
    self.next_token: Callable[[Sequence[int], int, int], int] = next_token

  def init_pool(self) -> Int[np.ndarray, "devices P C"]:
    """Returns the empty pages of each device."""
    shape = (self.shapes.devices, self.num_pages, self.shapes.page_size)
    return np.full(shape, -1, np.int64)

  def _write(
    self,
    pages: Int[np.ndarray, "P C"],
    table: Int[np.ndarray, " M"],
    start: int,
    tokens: Sequence[int],
  ) -> None:
    for position, token in enumerate(tokens, start):
      page, place = divmod(position, self.shapes.page_size)
      pages[table[page], place] = token

  def _held(
    self,
    pages: Int[np.ndarray, "P C"],
    table: Int[np.ndarray, " M"],
    length: int,
  ) -> list[int]:
    used = self.shapes.pages_for(length)
    held = pages[table[:used]].reshape(-1)[:length]
    assert (held >= 0).all()
    return held.tolist()

  def prefill(self, params: Any, pool: Any, batch: Any) -> Any:
    """Writes a batch's tokens into their pages."""
    rows = len(batch.counts) // self.shapes.devices
    filled = np.flatnonzero(batch.counts)
    # A row attends to all earlier tokens, and no row of the same call may write
    # those.
    for row in filled:
      self._held(pool[row // rows], batch.table[row], batch.starts[row])
    for row in filled:
      start, table = batch.starts[row], batch.table[row]
      tokens = batch.tokens[row, : batch.counts[row]]
      self._write(pool[row // rows], table, start, tokens)
    self.prefill_calls += 1
    self.prefilled += int(batch.counts.sum())
    return pool

  def decode(
    self,
    params: Any,
    pool: Any,
    slots: Any,
    changes: Any,
    stop_ids: Int[np.ndarray, " I"],
    min_live: int,
  ) -> tuple[Any, Any, Any]:
    """Runs one decode call; arguments as for `decode.decode`."""
    count, steps = len(slots.done), self.shapes.decode_chunk
    rows = count // self.shapes.devices
    for slot in range(count):
      device, index = divmod(slot, rows)
      if index < changes.num_copies[device]:
        pages = pool[device]
        pages[changes.copy_targets[slot]] = pages[changes.copy_sources[slot]]
    new: Any = self.change(slots, changes)
    tokens = np.zeros((count, steps), np.int32)
    logprobs = np.zeros((count, steps), np.float32)
    generated = np.zeros(count, np.int32)
    prefixes = [
      self._held(pool[s // rows], changes.table[s], new.length[s])
      if not new.done[s]
      else []
      for s in range(count)
    ]
    for _ in range(steps):
      if (~new.done).sum() <= min_live:
        break
      for slot in np.flatnonzero(~new.done):
        prefixes[slot].append(int(new.token[slot]))
        token = self.next_token(
          prefixes[slot], new.key_data[slot].sum(), new.num_tokens[slot]
        )
        tokens[slot, generated[slot]] = new.token[slot] = token
        generated[slot] += 1
        new.num_tokens[slot] += 1
        new.done[slot] = (
          token in stop_ids or new.num_tokens[slot] == new.max_new_tokens[slot]
        )
    for slot in np.flatnonzero(generated):
      start, table = new.length[slot], changes.table[slot]
      self._write(pool[slot // rows], table, start, prefixes[slot][start:])
    new = new.replace(length=new.length + generated)
    done = new.done.copy().view(_Ready)
    output = _Output(tokens, logprobs, generated, done, generated)
    return pool, new, output
