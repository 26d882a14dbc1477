"""Streams of random requests on a host engine."""

import dataclasses
import itertools
import random

import numpy as np
import pytest
from rollout_model import host_stream, page_engine
from typed import present

from azr_jax import types
from azr_jax.rollout.host_engine import next_token
from azr_jax.rollout.meter import Meter
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.stream import SampleKey


class Tools:
  """Calls a tool after each response; outputs arrive a few polls later."""

  def __init__(self, rng):
    self.rng, self.pending = rng, {}

  end_marks = None

  def forget(self, sequence_id):
    self.pending.pop(sequence_id, None)

  def end_of_response(
    self, sequence_id, prompt, token_ids, response_start, num_checked
  ):
    end = response_start + 4
    return end if num_checked < end <= len(token_ids) else None

  def step(self, sequence_id, prompt, responses):
    if len(responses) > 2:
      return "turns"
    self.pending[sequence_id] = [sum(map(sum, responses)) % 50] * (
      1 + len(responses) * 3
    )
    return None

  def tool_outputs(self, wait):
    ready = [
      sequence_id for sequence_id in self.pending if self.rng.random() < 0.3
    ]
    if wait and not ready:
      ready = list(self.pending)[:1]
    return {sequence_id: self.pending.pop(sequence_id) for sequence_id in ready}

  def record_occupancy(self, decoding, awaiting, slots):
    assert 0 < decoding <= slots


def expected(prompt, seed, sample, limit, with_tools, ignores_ends):
  """Returns a sample's completion, computed token by token."""
  ids, responses = [], [[]]
  while True:
    token = next_token([*prompt, *ids], seed + sample, len(ids))
    ids.append(token)
    responses[-1].append(token)
    ended = token == 0 and not ignores_ends
    ended |= with_tools and len(responses[-1]) == 4
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
  """Submits random requests to a stream and checks their completions.

  Prompts share prefixes.
  """

  def __init__(self, seed, devices, spare_pages, settings):
    self._rng = random.Random(seed)
    self._templates = [
      tuple(self._rng.randrange(1, 100) for _ in range(16)) for _ in range(4)
    ]
    self._engine = page_engine(settings, devices)
    shapes = self._engine.shapes
    least = shapes.max_pages_per_row + shapes.pages_for(16)
    self._engine.num_pages = least + spare_pages
    self._meter = Meter()
    self._stream = host_stream(self._engine, settings, self._meter)
    self._tools = Tools(self._rng)
    self._numbers = itertools.count()
    self._open = []

  def run(self, count):
    """Samples this many completions."""
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
    return self._meter.take().counts

  def _submit(self):
    rng, number = self._rng, next(self._numbers)
    length = rng.randint(1, 16)
    prompt = rng.choice(self._templates)[: rng.randint(0, length)]
    prompt += tuple(rng.randrange(1, 100) for _ in range(length - len(prompt)))
    n, limit = rng.choice([1, 1, 2, 5]), rng.randint(1, 24)
    with_tools = rng.random() < 0.4
    ignores_ends = not with_tools and rng.random() < 0.3
    request, futures = self._stream.submit(
      types.Prompt("", prompt),
      n,
      SampleKey(np.zeros(2, np.uint32), number),
      limit,
      # Two steps are in flight at a time.
      priority=(number // 50 + rng.randrange(2), rng.randrange(2)),
      tool_runner=self._tools if with_tools else None,
      ignores_ends=ignores_ends,
    )
    wanted = [
      expected(prompt, number, sample, limit, with_tools, ignores_ends)
      for sample in range(n)
    ]
    self._open.append((request, futures, wanted))
    return n

  def _disturb(self):
    """Occasionally cancels a request or changes the parameters."""
    if self._rng.random() < 0.01 and self._open:
      request, _, _ = self._open.pop(self._rng.randrange(len(self._open)))
      self._stream.cancel([request])
    if self._rng.random() < 0.01:
      self._stream.suspend()
      self._stream.weights.restore({}, version=1)

  def _check(self):
    for entry in list(self._open):
      _, futures, wanted = entry
      if all(future.done() for future in futures):
        self._open.remove(entry)
        for future, (ids, reason) in zip(futures, wanted, strict=True):
          got = future.result()
          assert (got.token_ids.tolist(), got.finish_reason) == (ids, reason)
    scheduler, cache = self._stream._scheduler, self._stream._cache
    if cache and not (scheduler and scheduler.stages.num_sequences):
      for device, kept in enumerate(cache.pages._kept):
        free = [*cache.pages._free[device], *kept]
        assert sorted(free) == list(range(self._engine.num_pages))
        assert not any(cache.pages._ref_counts[device])


@pytest.mark.parametrize(
  "count, spare_pages, devices",
  [
    *((300, 0, 1), (300, 0, 4), (300, 3, 4), (300, 60, 1)),
    *(
      pytest.param(17_000, spare, devices, marks=pytest.mark.slow)
      for spare in (0, 3, 60)
      for devices in (1, 4)
    ),
  ],
)
def test_completions_do_not_depend_on_pages_or_moments(
  count, spare_pages, devices
):
  counts = Requests(count, devices, spare_pages, SETTINGS).run(count)
  assert 0.05 * counts.prefilled < counts.reused


def test_completions_without_a_prefix_cache():
  settings = dataclasses.replace(SETTINGS, prefix_cache=False)
  assert Requests(1, 1, 3, settings).run(300).reused == 0


@pytest.mark.parametrize(
  "requests",
  [
    # All samples of one prompt, which start on one device.
    [(16, 12)],
    # One device has long completions, the others short ones.
    [(8, 24), *[(8, 3)] * 6],
  ],
)
def test_no_device_is_idle_while_others_have_a_line(requests):
  stream = host_stream(page_engine(SETTINGS, 4, 60), SETTINGS)
  for number, (n, limit) in enumerate(requests):
    prompt = types.Prompt("", (number + 3,) * 9)
    stream.submit(prompt, n, SampleKey(np.zeros(2, np.uint32), number), limit)
  while not stream.is_empty:
    if stream.send():
      scheduler = present(stream._scheduler)
      slots = [slot is not None for slot in scheduler._slots.sequences]
      by_device = [any(slots[i : i + 2]) for i in range(0, 8, 2)]
      waiting = [len(group.waiting) for group in scheduler.stages.groups]
      assert all(by_device) or max(waiting, default=0) < 2
    stream.fetch()
