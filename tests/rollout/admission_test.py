"""How full the slots are, on engines without a device."""

import collections
import dataclasses

import numpy as np
import pytest
from rollout_model import host_stream

from azr_jax import types
from azr_jax.rollout.build import shapes_of
from azr_jax.rollout.host_engine import LengthEngine
from azr_jax.rollout.meter import Meter
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.stream import SampleKey

SETTINGS = SamplerSettings(
  slots=1024,
  prompt_buckets=(1000,),
  max_tokens=8096,
  prefill_tokens=8000,
  decode_chunk=128,
  page_size=512,
  stop_strings=(),
)


class CountingEngine(LengthEngine):
  """Counts how often each sequence enters a slot."""

  def __init__(self, settings, length, devices, num_pages=None):
    super().__init__(shapes_of(settings, devices), length)
    self.num_pages = num_pages or self.num_pages
    self.entries = collections.Counter()
    self.prefills = []

  def prefill(self, params, pool, batch):
    self.prefills.append(int(np.count_nonzero(batch.counts)))
    return pool

  def decode(self, params, pool, slots, changes, stop_ids, min_live):
    self.entries.update(map(tuple, changes.numbers[changes.enters].tolist()))
    self.prefills.append(0)
    return super().decode(params, pool, slots, changes, stop_ids, min_live)


def play(engine, prompts, samples=8):
  """Samples prompts of 1,000 tokens and returns the meter's counts."""
  meter = Meter()
  stream = host_stream(engine, SETTINGS, meter)
  futures = []
  for number in range(prompts):
    prompt = types.Prompt("", (number + 3,) * 1000)
    key = SampleKey(np.zeros(2, np.uint32), number)
    futures += stream.submit(prompt, samples, key)[1]
  while not stream.is_empty:
    if stream.send():
      stream.fetch()
  assert all(future.done() for future in futures)
  return meter.take().counts


@pytest.mark.parametrize("devices", [1, 8])
def test_slots_are_full_while_sequences_wait(devices):
  """1,920 sequences of 8 calls each run in two waves of 1,024 and 896."""
  engine = CountingEngine(SETTINGS, lambda seed, sample: 1024, devices)
  counts = play(engine, 240)
  assert counts.calls == 2 * 8
  assert counts.live_slot_steps == 240 * 8 * 1024
  assert counts.live_slot_steps >= 0.93 * counts.slot_steps


def test_prompts_are_not_prefilled_ahead_of_the_slots():
  engine = CountingEngine(SETTINGS, lambda seed, sample: 1024, 1)
  play(engine, 240)
  # 128 prompts fill the slots; one more call of 8 waits for the next ones.
  first = engine.prefills[: engine.prefills.index(0)]
  assert 128 <= sum(first) <= 128 + 8


def test_a_device_with_short_sequences_is_filled_again_at_once():
  """Even prompts take eight times as long as odd ones."""
  engine = CountingEngine(
    SETTINGS, lambda seed, sample: 128 if seed % 2 else 1024, 8
  )
  counts = play(engine, 480)
  total = 240 * 8 * (1024 + 128)
  assert counts.live_slot_steps == total
  assert counts.live_slot_steps >= 0.8 * counts.slot_steps


@pytest.mark.parametrize("devices, num_pages", [(1, 462), (8, 57)])
def test_few_pages_make_few_sequences_start_again(devices, num_pages):
  """Pages for a tenth of the slots' longest sequences, and half of the load."""
  settings = dataclasses.replace(SETTINGS, slots=256)
  engine = CountingEngine(
    settings, lambda seed, sample: 1024, devices, num_pages
  )
  counts = play(engine, 128)
  assert counts.tokens == 128 * 8 * 1024
  preempted = sum(engine.entries.values()) - len(engine.entries)
  assert len(engine.entries) == 128 * 8
  assert preempted < 0.15 * len(engine.entries)


def test_tokens_are_counted_once_when_slots_become_fewer():
  """Of eight sequences on eight slots, two are left for two slots."""
  settings = dataclasses.replace(SETTINGS, slots=8)

  def length(seed, sample):
    return 300 if sample < 6 else 1024

  shapes = shapes_of(settings, slot_counts=(8, 2))
  counts = play(LengthEngine(shapes, length), 1)
  assert counts.slot_steps == 8 * 384 + 2 * (1024 - 384)
  assert counts.tokens == counts.live_slot_steps == 6 * 300 + 2 * 1024
