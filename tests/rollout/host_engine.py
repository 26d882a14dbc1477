"""An engine of arrays of the host, whose pages hold token ids.

A token is a function of all tokens before it, as the pages hold them. So a
sequence that read a page of another one, or too early, would have others.
"""

import dataclasses

import numpy as np

from azr_jax.rollout import decode_state, engine

VOCABULARY, BASE, PRIME = 120, 131, 1_000_003


def next_token(prefix, words, index):
  """Returns the token after some, by a sum that knows their order."""
  powers = np.array([pow(BASE, i, PRIME) for i in range(len(prefix))])
  total = int(np.sum(np.asarray(prefix, np.int64) * powers) % PRIME)
  return (total + 7 * int(words) + 3 * index) % VOCABULARY


class _Ready(np.ndarray):
  """An array that is there, as `RequestMeter` asks."""

  def is_ready(self):
    return True


class HostEngine:
  """What the scheduler uses of an engine, on arrays of the host."""

  prefill_chunks = property(lambda self: self.settings.prefill_chunks)
  max_pages_per_row = property(
    lambda self: self.settings.pages_for(self.settings.longest)
  )
  prefill_chunk = engine.Engine.prefill_chunk

  def __init__(self, settings, devices, num_pages):
    self.settings, self.devices = settings, devices
    self.num_pages = num_pages
    self.prefill_calls = self.prefilled = 0
    slots = settings.slots
    self.slot_counts = (slots,) if devices > 1 else (slots, -(-slots // 4))

  def prefill_rows(self, chunk):
    rows = max(1, self.settings.prefill_tokens // chunk)
    return rows + -rows % self.devices

  def init_pool(self):
    shape = (self.devices, self.num_pages, self.settings.page_size)
    return np.full(shape, -1, np.int64)

  def init_slots(self, slots):
    zeros = np.zeros(slots, np.int64)
    return decode_state.Slots(
      zeros,
      zeros,
      zeros,
      zeros,
      np.ones(slots, bool),
      np.ones(slots),
      np.zeros(slots, np.int64),
    )

  def compact(self, slots, kept):
    values = (getattr(slots, f.name)[kept] for f in dataclasses.fields(slots))
    return decode_state.Slots(*values)

  def _write(self, pages, table, start, tokens):
    for position, token in enumerate(tokens, start):
      page, place = divmod(position, self.settings.page_size)
      pages[table[page], place] = token

  def prefill(self, params, pool, batch):
    rows = len(batch.counts) // self.devices
    filled = np.flatnonzero(batch.counts)
    # These tokens attend to all before them, which no row of the call writes.
    for row in filled:
      self._held(pool[row // rows], batch.table[row], batch.starts[row])
    for row in filled:
      start, table = batch.starts[row], batch.table[row]
      tokens = batch.tokens[row, : batch.counts[row]]
      self._write(pool[row // rows], table, start, tokens)
    self.prefill_calls += 1
    self.prefilled += int(batch.counts.sum())
    return pool

  def _held(self, pages, table, length):
    used = -(-length // self.settings.page_size)
    held = pages[table[:used]].reshape(-1)[:length]
    assert (held >= 0).all()
    return held.tolist()

  def decode(self, params, pool, slots, changes, stop_ids, min_active):
    count, steps = len(slots.done), self.settings.decode_chunk
    rows = count // self.devices
    for slot in range(count):
      device, index = divmod(slot, rows)
      if index < changes.num_copies[device]:
        pages = pool[device]
        pages[changes.copy_targets[slot]] = pages[changes.copy_sources[slot]]
    new = self.compact(slots, np.arange(count))
    enters = changes.enters
    for name in ("token", "length", "num_tokens", "max_new_tokens"):
      getattr(new, name)[enters] = getattr(changes, name)[enters]
    new.key_data[enters] = changes.seeds[enters].sum(axis=1)
    new.done[enters] = False
    new.done[changes.stops] = True
    tokens = np.zeros((count, steps), np.int64)
    generated = np.zeros(count, np.int64)
    prefixes = [
      self._held(pool[s // rows], changes.table[s], new.length[s])
      if not new.done[s]
      else []
      for s in range(count)
    ]
    for _ in range(steps):
      if (~new.done).sum() <= min_active:
        break
      for slot in np.flatnonzero(~new.done):
        prefixes[slot].append(int(new.token[slot]))
        token = next_token(
          prefixes[slot], new.key_data[slot], new.num_tokens[slot]
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
    output = decode_state.DecodeOutput(
      tokens, tokens * 0.0, generated, done, generated
    )
    return pool, new, output
