"""Streams on an engine of arrays of the host, whose pages hold token ids.

A token is a function of all tokens before it, as the pages hold them. So a
sequence that read a page of another one, or too early, would have others.
"""

import dataclasses
import itertools
import random

import numpy as np
import pytest
from rollout_model import ByteTokenizer

from azr_jax import types
from azr_jax.rollout import decode, engine
from azr_jax.rollout.meter import Meter
from azr_jax.rollout.response_end import ResponseEnds
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.stream import SampleKey, Stream

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
  prefill_batch_size = engine.Engine.prefill_batch_size

  def __init__(self, settings, devices, num_pages):
    self.settings, self.devices = settings, devices
    self.num_pages = num_pages
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
    return decode.Slots(
      *[zeros] * 4,
      np.ones(slots, bool),
      np.ones(slots),
      np.zeros(slots, np.int64),
    )

  def compact(self, slots, kept):
    values = (getattr(slots, f.name)[kept] for f in dataclasses.fields(slots))
    return decode.Slots(*values)

  def _write(self, pages, table, start, tokens):
    for position, token in enumerate(tokens, start):
      page, place = divmod(position, self.settings.page_size)
      pages[table[page], place] = token

  def prefill(self, params, pool, batch):
    rows = len(batch.counts) // self.devices
    for row, count in enumerate(batch.counts):
      start, table = batch.starts[row], batch.table[row]
      # These tokens attend to all before them.
      self._held(pool[row // rows], table, start)
      tokens = batch.tokens[row, :count]
      self._write(pool[row // rows], table, start, tokens)
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
    return pool, new, decode.DecodeOutput(tokens, tokens * 0.0, generated, done)


class Tools:
  """Calls a tool after each response, whose output comes a few polls later."""

  def __init__(self, rng):
    self.rng, self.pending = rng, {}

  def forget(self, name):
    self.pending.pop(name, None)

  def end_of_response(self, name, token_ids, response_start, num_checked):
    end = response_start + 4
    return end if num_checked < end <= len(token_ids) else None

  def step(self, name, responses):
    if len(responses) > 2:
      return "turns"
    self.pending[name] = [sum(map(sum, responses)) % 50] * (
      1 + len(responses) * 3
    )
    return None

  def tool_outputs(self, wait):
    ready = [name for name in self.pending if self.rng.random() < 0.3]
    if wait and not ready:
      ready = list(self.pending)[:1]
    return {name: self.pending.pop(name) for name in ready}

  def record_occupancy(self, decoding, awaiting, slots):
    assert 0 < decoding <= slots


def expected(prompt, seed, sample, limit, with_tools):
  """The completion of a sample, token by token."""
  ids, responses = [], [[]]
  while True:
    token = next_token([*prompt, *ids], seed + sample, len(ids))
    ids.append(token)
    responses[-1].append(token)
    ended = token == 0 or with_tools and len(responses[-1]) == 4
    if not ended and len(ids) == limit:
      return ids, "length"
    if not ended:
      continue
    if not with_tools:
      return ids, "stop"
    if len(responses) > 2:
      return ids, "turns"
    output = [sum(map(sum, responses)) % 50] * (1 + len(responses) * 3)
    if len(ids) + len(output) >= limit:
      return ids, "length"
    ids += output
    responses.append([])


SETTINGS = SamplerSettings(
  slots=8,
  prompt_buckets=(5, 16),
  max_tokens=24,
  prefill_tokens=16,
  page_size=4,
  decode_chunk=3,
  extend_chunk=3,
  stop_strings=(),
)


class Requests:
  """Submits random requests to a stream, and looks at their completions."""

  def __init__(self, seed, devices, spare_pages):
    self._rng = random.Random(seed)
    pages_for = SETTINGS.pages_for
    least = pages_for(SETTINGS.longest) + pages_for(16)
    self._engine = HostEngine(SETTINGS, devices, least + spare_pages)
    tokenizer = ByteTokenizer()
    ends = ResponseEnds(tokenizer, SETTINGS)
    self._stream = Stream(self._engine, tokenizer, ends, Meter(), {})
    self._tools = Tools(self._rng)
    self._numbers = itertools.count()
    self._open = []

  def run(self, count):
    """Samples so many completions."""
    submitted = 0
    while submitted < count or self._open:
      while submitted < count and len(self._open) < self._rng.choice(
        [1, 8, 20]
      ):
        submitted += self._submit()
      self._disturb()
      if self._stream.send():
        self._stream.fetch()
      else:
        self._stream.wait_for_tools()
      self._check()
    self._stream.deliver()
    assert self._stream.is_empty

  def _submit(self):
    rng, number = self._rng, next(self._numbers)
    prompt = tuple(rng.randrange(1, 100) for _ in range(rng.randint(1, 16)))
    n, limit = rng.choice([1, 1, 2, 5]), rng.randint(1, 24)
    with_tools = rng.random() < 0.4
    request, futures = self._stream.submit(
      types.Prompt("", prompt),
      n,
      SampleKey(np.zeros(2, np.uint32), number),
      limit,
      priority=(number // 50,),
      environment=self._tools if with_tools else None,
    )
    wanted = [
      expected(prompt, number, sample, limit, with_tools) for sample in range(n)
    ]
    self._open.append((request, futures, wanted))
    return n

  def _disturb(self):
    """Now and then cancels a request, or changes the parameters."""
    if self._rng.random() < 0.01 and self._open:
      request, _, _ = self._open.pop(self._rng.randrange(len(self._open)))
      self._stream.cancel([request])
    if self._rng.random() < 0.01:
      self._stream.suspend()
      self._stream.resume({}, 1)

  def _check(self):
    for entry in list(self._open):
      _, futures, wanted = entry
      if all(future.done() for future in futures):
        self._open.remove(entry)
        for future, (ids, reason) in zip(futures, wanted, strict=True):
          got = future.result()
          assert (got.token_ids.tolist(), got.finish_reason) == (ids, reason)
    scheduler = self._stream._scheduler
    if scheduler is not None and not scheduler.stages.num_sequences:
      num_free = map(scheduler._pages.num_free, range(self._engine.devices))
      assert set(num_free) == {self._engine.num_pages}


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("spare_pages", [0, 3, 60])
@pytest.mark.parametrize(
  "count", [300, pytest.param(17_000, marks=pytest.mark.slow)]
)
def test_completions_do_not_depend_on_pages_or_moments(
  count, devices, spare_pages
):
  Requests(count, devices, spare_pages).run(count)


@pytest.mark.parametrize(
  "requests",
  [
    # All samples of one prompt, which begin on one device.
    [(16, 12)],
    # One device has long completions, and the others short ones.
    [(8, 24), *[(8, 3)] * 6],
  ],
)
def test_no_device_is_idle_while_others_have_a_line(requests):
  host = HostEngine(SETTINGS, 4, 60)
  tokenizer = ByteTokenizer()
  ends = ResponseEnds(tokenizer, SETTINGS)
  stream = Stream(host, tokenizer, ends, Meter(), {})
  for number, (n, limit) in enumerate(requests):
    prompt = types.Prompt("", (number + 3,) * 9)
    stream.submit(prompt, n, SampleKey(np.zeros(2, np.uint32), number), limit)
  while not stream.is_empty:
    if stream.send():
      scheduler = stream._scheduler
      slots = [slot is not None for slot in scheduler._slots.sequences]
      by_device = [any(slots[i : i + 2]) for i in range(0, 8, 2)]
      waiting = [len(group.waiting) for group in scheduler.stages.groups]
      assert all(by_device) or max(waiting, default=0) < 2
    stream.fetch()
