"""Speeds of a step, compared with hand-computed values."""

import dataclasses

import jax
import numpy as np
import pytest

from azr_jax import types
from azr_jax.configs import azr, orz
from azr_jax.models import operations
from azr_jax.parallel.chips import Chip
from azr_jax.rollout.meter import Counts
from azr_jax.trainer import build, opening, settings, speed

CHIP = Chip(hbm_bytes=1e9, bandwidth=1e9, flops=1e12, link_bandwidth=1e9)


def speed_of(config, chip=CHIP):
  """The speed of an experiment on eight devices, started at time 0."""
  config.mesh.update({"data": 2, "fsdp": 4, "tensor": 1})
  config.rollout.mesh.update({"data": 2, "fsdp": 1, "tensor": 4})
  experiment = build.build(settings.read_train(config))
  experiment.sampler.meter.now = lambda: 0.0
  return experiment, opening.build_speed(experiment, chip)


def trajectory(prompt, completion):
  """A trajectory with the given token counts."""
  ids = np.zeros(completion, np.int32)
  return types.Trajectory(
    prompt=types.Prompt("", (0,) * prompt),
    completion=types.Completion(
      ids,
      np.zeros(completion, np.float32),
      np.ones(completion, bool),
      "stop",
      "",
    ),
    reward=1.0,
    group_id=0,
  )


def times_of(measured, meter, counts):
  """Returns the times of a step.

  It samples from 2 to 6, collects until 8 and updates until 9.
  """
  times = iter([2.0, 8.0, 9.0])
  meter.now = lambda: next(times)
  step = measured.begin()
  # An evaluation, then the copy of the weights, then two decode calls.
  meter.spans = [(0.2, 0.8), (2.0, 4.0), (4.5, 6.0)]
  meter.busy = [(0.3, 0.7), (1.5, 1.7), (2.5, 4.0), (4.0, 5.5)]
  meter.counts = counts
  step.collected([trajectory(3, 5), trajectory(4, 7)])
  step.send()
  return step


def test_idle_fractions_of_the_phases_add_up():
  experiment, measured = speed_of(azr.get_config("tiny"))
  step = times_of(measured, experiment.sampler.meter, Counts())
  metrics = step.metrics(19.0)
  want = {
    # Idle from 2.0 to 2.5 and from 5.5 to 6.0.
    "rollout": 1.0,
    # Idle from 6.0 to 8.0. From 4.0 to 4.5, between requests, a program ran.
    "grading": 2.0,
    "update": 1.0,
    # Everything before 2.0, except the evaluation's and the copy's programs.
    "other": 2.0 - 0.4 - 0.2,
  }
  want["all"] = sum(want.values())
  fractions = {
    name.removeprefix("device/idle_fraction/"): value
    for name, value in metrics.items()
    if name.startswith("device/idle_fraction/")
  }
  assert fractions == pytest.approx({k: v / 19 for k, v in want.items()})
  assert metrics["time/sample"] == 3.5 and metrics["time/collect"] == 6.0
  assert metrics["time/update"] == 11.0 and metrics["time/step"] == 17.0


def test_an_evaluation_before_a_step_is_in_none_of_its_rates():
  """It keeps the devices busy all the same."""
  experiment, measured = speed_of(azr.get_config("tiny"))
  meter = experiment.sampler.meter
  meter.busy = [(1.7, 2.0)]
  meter.counts = Counts(tokens=1000, slot_steps=1000)
  counts = Counts(tokens=70, slot_steps=100, live_slot_steps=80)
  metrics = times_of(measured, meter, counts).metrics(19.0)
  assert metrics["device/rollout/tokens_per_s"] == 70 / 3.5 / 8
  assert metrics["device/rollout/live_slots_fraction"] == 0.8
  other = metrics["device/idle_fraction/other"]
  assert other == pytest.approx((2.0 - 0.4 - 0.2 - 0.3) / 19)


def test_a_step_begins_where_the_update_before_it_was_done():
  experiment, measured = speed_of(azr.get_config("tiny"))
  times_of(measured, experiment.sampler.meter, Counts()).metrics(1.6)
  metrics = times_of(measured, experiment.sampler.meter, Counts()).metrics(19.0)
  # From 1.6 to 2.0, of which the copy takes 0.1.
  assert metrics["device/idle_fraction/other"] == pytest.approx(0.3 / 17.4)


@pytest.mark.parametrize("config, passes", [(azr, 1), (orz, 2)])
def test_rates_by_hand(config, passes):
  """ORZ's critic learns from the same tokens as its policy."""
  counts = Counts(
    tokens=70,
    slot_steps=100,
    live_slot_steps=80,
    alone_s=0.5,
    alone_steps=40,
    alone_entries=900,
  )
  experiment, measured = speed_of(config.get_config("tiny"))
  step = times_of(measured, experiment.sampler.meter, counts)
  metrics = step.metrics(19.0)
  shape = experiment.source.config
  # Reading 7 of 8 and 10 of 11 tokens attends to 28 and 55 of them.
  attention = 4 * shape.num_layers * shape.num_heads * shape.head_size * 83
  matrices = operations.multiplied_weights(shape)
  flops = passes * 3 * (17 * 2 * matrices + attention)
  assert metrics["device/update/mfu"] == pytest.approx(flops / 10 / 8e12)
  assert metrics["device/update/tokens_per_s"] == passes * 17 / 10 / 8
  assert metrics["device/rollout/tokens_per_s"] == 70 / 3.5 / 8
  assert metrics["device/rollout/live_slots_fraction"] == 0.8
  # Two groups of four devices read the weights in each of 40 iterations. Keys
  # and values are float32, like the weights.
  entry = 2 * 4 * shape.num_layers * shape.num_kv_heads * shape.head_size
  read = 40 * 2 * 4 * matrices + 900 * entry
  fraction = metrics["device/rollout/bandwidth_fraction"]
  assert fraction == pytest.approx(read / 0.5 / 8e9)


def test_a_device_without_known_rates_has_no_shares_of_them():
  experiment, measured = speed_of(azr.get_config("tiny"), chip=None)
  assert jax.devices()[0].device_kind == "cpu"
  counts = Counts(tokens=1, slot_steps=2, live_slot_steps=1, alone_s=0.5)
  counts = dataclasses.replace(counts, alone_steps=1)
  metrics = times_of(measured, experiment.sampler.meter, counts).metrics(19.0)
  names = {n for n in metrics if n.startswith("device/") and "idle" not in n}
  assert names == {
    "device/rollout/tokens_per_s",
    "device/rollout/live_slots_fraction",
    "device/update/tokens_per_s",
  }


def test_moments_in_and_outside_of_intervals():
  some = [(3.0, 4.0), (0.0, 1.0), (0.5, 2.0)]
  assert speed.union(some) == [(0.0, 2.0), (3.0, 4.0)]
  assert speed.total(some) == 3.0
  assert speed.overlap(some, [(1.5, 3.5)]) == [(1.5, 2.0), (3.0, 3.5)]
  assert speed.overlap([(0.0, 5.0)], speed.gaps(some)) == [
    (2.0, 3.0),
    (4.0, 5.0),
  ]
  assert speed.overlap([(0.0, 5.0)], speed.gaps([])) == [(0.0, 5.0)]
