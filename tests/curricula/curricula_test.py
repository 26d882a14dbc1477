"""Curricula against probabilities computed by hand, and their state."""

import collections
import json

import numpy as np
import pytest
from buckets import make_buckets, rng

from azr_jax.curricula import adaptive, mixed, mixture, replay
from azr_jax.curricula.curriculum import SampledItem

PAPER = adaptive.AdaptiveSettings(
  target=0.40, temperature=0.20, epsilon=0.10, window=20, warmup_steps=10
)
REPLAY = replay.ReplaySettings(
  fraction=0.25,
  warmup_steps=2,
  min_pass_rate=0.05,
  max_pass_rate=0.95,
  decay=0.8,
)


@pytest.mark.parametrize("progress", [0, 0.1, 0.4, 0.6, 0.75, 0.9, 1.0])
def test_the_static_schedule_sums_to_one_and_follows_table_1(progress):
  fractions = mixture.static(101)(1 + round(progress * 100))
  assert fractions.sum() == pytest.approx(1.0)
  if progress < 0.4:
    a = progress / 0.4
    want = (0.70 - 0.35 * a, 0.25 + 0.35 * a, 0.05)
  elif progress < 0.75:
    a = (progress - 0.4) / 0.35
    want = (0.35 - 0.25 * a, 0.60, 0.05 + 0.25 * a)
  else:
    a = (progress - 0.75) / 0.25
    want = (0.10 - 0.05 * a, 0.60 - 0.20 * a, 0.30 + 0.25 * a)
  assert fractions == pytest.approx(want)


def test_a_static_schedule_of_one_step_is_its_beginning():
  assert mixture.static(1)(1) == pytest.approx((0.70, 0.25, 0.05))


def test_a_mixture_samples_by_its_weights_and_skips_empty_buckets():
  curriculum = mixture.Mixture(make_buckets(), mixture.constant((1, 2, 1)))
  counts = collections.Counter(
    item.bucket for item in curriculum.sample(1, 4000, rng())
  )
  assert counts[1] == pytest.approx(2000, rel=0.06)
  empty = mixture.Mixture(make_buckets((5, 0, 5)), mixture.constant((1, 2, 1)))
  assert {item.bucket for item in empty.sample(1, 100, rng())} == {0, 2}
  assert empty.metrics()["probability/medium"] == 0


def test_uniform_gives_every_item_the_same_chance():
  buckets = make_buckets((10, 30, 60))
  curriculum = mixture.Mixture(buckets, mixture.proportional(buckets))
  items = curriculum.sample(1, 20_000, rng())
  counts = collections.Counter(item.index for item in items)
  assert len(counts) == 100
  # The expected deviation is 14.
  assert np.std([counts[i] for i in range(100)]) < 20


def learn(curriculum, step, items, rates):
  """Updates a curriculum that ignores advantages."""
  curriculum.update(step, items, rates, [0.0] * len(items))


def update(curriculum, step, bucket, rates):
  items = [SampledItem(i, bucket) for i in range(len(rates))]
  learn(curriculum, step, items, rates)


def test_adaptive_probabilities_match_a_hand_computed_example():
  curriculum = adaptive.Adaptive(make_buckets(), **vars(PAPER))
  assert curriculum.probabilities(10) == pytest.approx([1 / 3] * 3)
  update(curriculum, 1, 0, [1.0, 0.8])  # The mean is 0.9.
  update(curriculum, 2, 0, [0.7])  # The mean of 0.9 and 0.7 is 0.8.
  update(curriculum, 3, 1, [0.5, 0.5, 0.2])  # The mean, 0.4, is on target.
  # The bucket `hard` was never sampled, so it counts as on target.
  weights = np.exp([-0.4 / 0.2, 0.0, 0.0])
  want = 0.9 * weights / weights.sum() + 0.1 / 3
  assert curriculum.probabilities(11) == pytest.approx(want)
  assert want == pytest.approx([0.0904, 0.4548, 0.4548], abs=1e-4)


def test_adaptive_samples_one_bucket_per_step_and_forgets_beyond_its_window():
  curriculum = adaptive.Adaptive(make_buckets(), **vars(PAPER))
  for step in range(1, 30):
    assert len({d.bucket for d in curriculum.sample(step, 8, rng(step))}) == 1
  for step in range(20):
    update(curriculum, step, 2, [0.0])
  for step in range(20):
    update(curriculum, step, 2, [0.4])
  assert curriculum.metrics()["success/hard"] == pytest.approx(0.4)


def test_an_empty_bucket_is_never_chosen():
  curriculum = adaptive.Adaptive(make_buckets((3, 0, 3)), **vars(PAPER))
  for step in (1, 11):
    probabilities = curriculum.probabilities(step)
    assert probabilities[1] == 0 and probabilities.sum() == pytest.approx(1)


def replaying(settings=REPLAY):
  weights = mixture.constant((1, 0, 0))
  inner = mixture.Mixture(make_buckets((40, 5, 5)), weights)
  return replay.Replay(inner, **vars(settings))


def test_a_small_temperature_samples_the_best_bucket():
  buckets = make_buckets((1, 1, 1))
  settings = adaptive.AdaptiveSettings(
    temperature=1e-4, epsilon=0.0, warmup_steps=0
  )
  curriculum = adaptive.Adaptive(buckets, **vars(settings))
  items = [SampledItem(0, bucket, bucket) for bucket in range(3)]
  learn(curriculum, 1, items, [1.0, 0.7, 0.0])
  # exp(-0.3 / 1e-4) underflows to 0 in float64.
  assert curriculum.probabilities(2).tolist() == [0.0, 1.0, 0.0]


def test_replay_respects_range_warm_up_bucket_and_fraction():
  curriculum = replaying()
  items = [SampledItem(index, 0) for index in range(4)] + [SampledItem(41, 1)]
  learn(curriculum, 1, items, [0.0, 0.5, 0.96, 0.05, 0.5])
  assert not any(d.replayed for d in curriculum.sample(2, 8, rng()))
  for step in range(3, 20):
    items = curriculum.sample(step, 8, rng(step))
    replayed = [item.index for item in items if item.replayed]
    # The quota is a quarter of eight. Items 0 and 2 have pass rates out of
    # range, and item 41 is in another bucket.
    assert sorted(replayed) == [1, 3] and len(items) == 8
  assert curriculum.metrics()["replay_fraction"] == 0.25


def test_replay_prefers_prompts_that_are_solved_half_of_the_time():
  settings = replay.ReplaySettings(fraction=0.125, warmup_steps=0)
  curriculum = replaying(settings)
  learn(curriculum, 1, [SampledItem(0, 0), SampledItem(1, 0)], [0.5, 0.1])
  counts = collections.Counter(
    d.index
    for step in range(2000)
    for d in curriculum.sample(step + 1, 8, rng(step))
    if d.replayed
  )
  assert counts[0] / counts[1] == pytest.approx(0.25 / 0.09, rel=0.15)


def test_replay_has_a_maximum_per_prompt_and_a_moving_mean():
  settings = replay.ReplaySettings(
    fraction=0.25,
    warmup_steps=0,
    min_pass_rate=0.20,
    max_pass_rate=0.80,
    max_replays=3,
  )
  curriculum = replaying(settings)
  learn(curriculum, 1, [SampledItem(7, 0)], [0.5])
  counts = []
  for step in range(1, 8):
    items = curriculum.sample(step, 8, rng(step))
    replayed = [item for item in items if item.replayed]
    learn(curriculum, step, replayed, [0.5] * len(replayed))
    counts.append(len(replayed))
  assert counts == [1, 1, 1, 0, 0, 0, 0]
  learn(curriculum, 2, [SampledItem(8, 0)], [0.5])
  learn(curriculum, 3, [SampledItem(8, 0)], [1.0])
  assert curriculum.state_dict()["seen"][1] == [0, 8, 0, pytest.approx(0.6), 0]


def test_mixed_samples_from_both_and_updates_each_with_its_items():
  first = adaptive.Adaptive(make_buckets(), **vars(PAPER))
  second = adaptive.Adaptive(make_buckets((4, 4, 4)), **vars(PAPER))
  both = mixed.Mixed(first, second, 0.5)
  items = both.sample(1, 8, rng())
  assert [item.source for item in items] == [0] * 4 + [1] * 4
  learn(both, 1, items, [1.0] * 4 + [0.0] * 4)
  success = {n: v for n, v in both.metrics().items() if "/success/" in n}
  assert sorted(success.values()) == [0.0, 1.0]
  assert {n.split("/")[0] for n in success} == {"source0", "source1"}


def every_curriculum():
  first = replay.Replay(
    adaptive.Adaptive(make_buckets(), **vars(PAPER)), **vars(REPLAY)
  )
  buckets = make_buckets((4, 4, 4))
  second = mixture.Mixture(buckets, mixture.proportional(buckets))
  return mixed.Mixed(first, second, 0.5)


def run(curriculum, steps):
  batches = []
  for step in steps:
    items = curriculum.sample(step, 16, rng(step))
    batches.append(items)
    rates = rng((step, 1)).random(len(items)).tolist()
    learn(curriculum, step, items, rates)
  return batches


def test_a_resumed_curriculum_samples_the_same_next_five_batches():
  whole = every_curriculum()
  run(whole, range(1, 16))
  state = json.loads(json.dumps(whole.state_dict()))
  want = run(whole, range(16, 21))
  resumed = every_curriculum()
  resumed.load_state_dict(state)
  assert run(resumed, range(16, 21)) == want
  fresh = every_curriculum()
  assert run(fresh, range(16, 21)) != want


def test_items_can_be_added_to_buckets():
  buckets = make_buckets((1, 0, 0))
  index = buckets.add(2)
  assert (index, buckets.size, buckets.count(2)) == (1, 2, 1)
  assert buckets.sample(2, rng()) == SampledItem(1, 2)
