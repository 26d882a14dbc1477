"""Slots that become fewer and more, on each device for itself."""

import dataclasses
import itertools
import random
import re
from typing import cast

import jax
import numpy as np
import pytest
from rollout_model import MODEL, RULES, SETTINGS, ByteTokenizer, page_engine
from typed import present

from azr_jax import types
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import decode_state, shapes
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.meter import Meter, RequestMeter
from azr_jax.rollout.page_pool import CachedTokens
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.sequence_stages import Stages
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.slots import SlotTable
from azr_jax.rollout.stream import SampleKey
from azr_jax.rollout.weights import Weights

LAYOUTS = [{"data": 8}, {"data": 4, "fsdp": 2}]


@pytest.mark.parametrize(
  "slots, devices, platform, want",
  [
    (1024, 8, "gpu", (1024, 256, 64, 16, 8)),
    (1024, 8, "tpu", (1024, 256, 64, 16)),
    (60, 4, "cpu", (60, 16, 4)),
    (60, 4, "tpu", (60, 16, 8)),
    (61, 8, "cpu", (64, 16, 8)),
    (3, 8, "cpu", (8,)),
    (3, 8, "tpu", (8,)),
    (20, 1, "cpu", (20, 5, 1)),
    (20, 1, "tpu", (20, 5, 2)),
  ],
)
def test_every_device_has_a_part_of_each_slot_count(
  slots, devices, platform, want
):
  assert shapes.slot_counts(slots, devices, platform) == want


class Table:
  """A slot table on a host engine, with sequences of one prompt token."""

  def __init__(self, slots, devices):
    self.engine = page_engine(SamplerSettings(slots=slots), devices)
    self.stages = Stages((16,))
    meter = RequestMeter(Meter())
    engine = cast(Engine, self.engine)
    self.slots = SlotTable(engine, self.stages, meter)
    self.devices = devices
    self._seeds = itertools.count(1)

  def enter(self, device):
    """Puts a new sequence into the device's first free slot."""
    prompt, seed = types.Prompt("", (1,)), next(self._seeds)
    request = Request(0, prompt, 1, 9, np.zeros(2, np.uint32), seed)
    cached = CachedTokens(device, [seed])
    sequence = SequenceState(request, 0, cached=cached)
    self.slots.enter(self.slots.free()[device][-1], sequence)

  def send(self):
    """Applies the changes as the next decode call does."""
    changes = self.slots.take_changes(0)
    self.slots.state = self.engine.change(self.slots.state, changes)
    return changes

  def check(self):
    """Asserts that each slot has its sequence's key, page and device."""
    changes = self.send()
    for slot, sequence in enumerate(self.slots.sequences):
      is_live = not self.slots.state.done[slot]
      assert is_live == (sequence is not None) == self.slots.occupied[slot]
      if sequence is not None:
        assert self.stages.running[sequence] == slot
        cached = present(sequence.cached)
        assert cached.device == slot // self.slots.per_device
        seeds = self.slots.state.key_data[slot].tolist()
        assert seeds == [sequence.request.prompt_number, 0]
        assert changes.table[slot, 0] == cached.pages[0]


@pytest.mark.parametrize("devices", [1, 4])
def test_a_sequence_stays_on_its_device_as_slots_become_fewer_and_more(devices):
  table, rng = Table(4 * 8, devices), random.Random(devices)
  counts = set()
  for _ in range(200):
    slots, stages = table.slots, table.stages
    most = slots.num_live.max()
    if rng.random() < 0.3 and stages.running:
      slots.leave(rng.choice([*stages.running]))
    elif most < slots.per_device:
      table.enter(rng.randrange(devices))
    if rng.random() < 0.5:
      slots.resize(slots.num_live.max() * devices)
    if slots.num_live.max() == slots.per_device:
      slots.resize(len(slots) + 1)
      if rng.random() < 0.1:
        for sequence in rng.sample([*stages.running], len(stages.running) - 1):
          slots.leave(sequence)
    # Changes of slots that move before the next call move with them.
    if rng.random() < 0.5:
      table.check()
    counts.add(len(slots))
  assert counts == {32, 8}


@pytest.mark.parametrize("sizes", LAYOUTS)
def test_compacting_needs_no_communication(sizes):
  mesh = mesh_lib.make_mesh(sizes)
  settings = SamplerSettings(slots=64, prompt_buckets=(16,), max_tokens=16)
  sampler = Sampler(MODEL, ByteTokenizer(), mesh, RULES, settings)
  engine = sampler.engine
  names = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
  for old, new in [(64, 16), (16, 64)]:
    slots = engine.init_slots(old)
    kept = np.tile(np.arange(new // 8, dtype=np.int32) % (old // 8), 8)
    program = engine.compact.lower(slots, kept).compile()
    assert not re.findall(names, program.as_text() or "")
    found = engine.compact(slots, kept)
    assert found.token.sharding.is_equivalent_to(engine.slots_sharding, 1)
    # The check would find the gather of a program for all devices.
    whole = jax.jit(
      decode_state.compact, out_shardings=engine.slots_sharding
    ).lower(slots, kept)
    assert re.findall(names, whole.compile().as_text() or "")


def sample_in_bursts(params, mesh):
  """Samples 24 prompts of 1 to 10 tokens, and 24 more from the fourth call on.

  Returns:
    The completions, and the number of slots of each call.
  """
  settings = dataclasses.replace(SETTINGS, slots=64, prefill_tokens=256)
  rules = RULES | {"embed": "fsdp"}
  sampler = Sampler(MODEL, ByteTokenizer(), mesh, rules, settings)
  stream = sampler.open(Weights(sampler.compute_params(params)))
  key, futures, sizes = np.asarray([3, 7], np.uint32), [], []

  def submit(seeds):
    for seed in seeds:
      prompt = types.Prompt("", (seed + 2, 7, 100 - seed))
      _, [future] = stream.submit(
        prompt, 1, SampleKey(key, seed), 1 + seed * 7 % 10
      )
      futures.append(future)

  submit(range(24))
  while not stream.is_empty:
    if stream.send():
      sizes.append(len(present(stream._scheduler)._slots))
      stream.fetch()
    if len(sizes) == 3 and len(futures) == 24:
      submit(range(24, 48))
  return [future.result() for future in futures], sizes


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"data": 8}, {"data": 4, "fsdp": 2}])
def test_samples_do_not_depend_on_the_slots_left_to_each_device(
  params, one_device_mesh, monkeypatch, sizes
):
  found, slots = sample_in_bursts(params, mesh_lib.make_mesh(sizes))
  # Three sequences a device need 64 slots, two need 16, and one needs 8.
  assert slots == [64, 64, 16, 64, 64, 16, 8]
  monkeypatch.setattr(shapes, "slot_counts", lambda slots, *_: (slots,))
  want, all_slots = sample_in_bursts(params, one_device_mesh)
  assert all_slots == [64] * len(slots)
  for completion, alone in zip(found, want, strict=True):
    np.testing.assert_array_equal(completion.token_ids, alone.token_ids)
    np.testing.assert_allclose(completion.logprobs, alone.logprobs, atol=1e-5)
