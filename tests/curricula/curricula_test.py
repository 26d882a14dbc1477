"""Curricula by hand-computed shares, and their state."""

import collections
import json

import numpy as np
import pytest

from azr_jax.curricula import adaptive, mixed, mixture, replay
from azr_jax.curricula.curriculum import Draw, Pool

NAMES = ("easy", "medium", "hard")
PAPER = adaptive.AdaptiveSettings(
  target=0.40, temperature=0.20, floor=0.10, window=20, warm_up=10
)
REPLAY = replay.ReplaySettings(
  share=0.25, warm_up=2, lowest=0.05, highest=0.95, most=0, decay=0.8
)


def pool(counts=(10, 20, 30)):
  buckets = [b for b, count in enumerate(counts) for _ in range(count)]
  return Pool(NAMES, buckets)


def rng(seed=0):
  return np.random.default_rng(seed)


@pytest.mark.parametrize("progress", [0, 0.1, 0.4, 0.6, 0.75, 0.9, 1.0])
def test_the_static_schedule_sums_to_one_and_follows_table_1(progress):
  shares = mixture.static(101)(1 + round(progress * 100))
  assert shares.sum() == pytest.approx(1.0)
  if progress < 0.4:
    a = progress / 0.4
    want = (0.70 - 0.35 * a, 0.25 + 0.35 * a, 0.05)
  elif progress < 0.75:
    a = (progress - 0.4) / 0.35
    want = (0.35 - 0.25 * a, 0.60, 0.05 + 0.25 * a)
  else:
    a = (progress - 0.75) / 0.25
    want = (0.10 - 0.05 * a, 0.60 - 0.20 * a, 0.30 + 0.25 * a)
  assert shares == pytest.approx(want)


def test_a_static_schedule_of_one_step_is_its_beginning():
  assert mixture.static(1)(1) == pytest.approx((0.70, 0.25, 0.05))


def test_a_mixture_draws_by_its_shares_and_passes_over_empty_buckets():
  curriculum = mixture.Mixture(pool(), mixture.constant((1, 2, 1)))
  counts = collections.Counter(
    draw.bucket for draw in curriculum.draw(1, 4000, rng())
  )
  assert counts[1] == pytest.approx(2000, rel=0.06)
  empty = mixture.Mixture(pool((5, 0, 5)), mixture.constant((1, 2, 1)))
  assert {draw.bucket for draw in empty.draw(1, 100, rng())} == {0, 2}
  assert empty.metrics()["probability/medium"] == 0


def test_uniform_gives_every_item_the_same_chance():
  items = pool((10, 30, 60))
  curriculum = mixture.Mixture(items, mixture.proportional(items))
  draws = curriculum.draw(1, 20_000, rng())
  counts = collections.Counter(draw.index for draw in draws)
  assert len(counts) == 100
  assert np.std([counts[i] for i in range(100)]) < 20  # expected 14


def observe(curriculum, step, bucket, rates):
  draws = [Draw(i, bucket) for i in range(len(rates))]
  curriculum.observe(step, draws, rates)


def test_adaptive_probabilities_match_a_hand_computed_example():
  curriculum = adaptive.Adaptive(pool(), PAPER)
  assert curriculum.probabilities(10) == pytest.approx([1 / 3] * 3)
  observe(curriculum, 1, 0, [1.0, 0.8])  # 0.9
  observe(curriculum, 2, 0, [0.7])  # mean of 0.9 and 0.7: 0.8
  observe(curriculum, 3, 1, [0.5, 0.5, 0.2])  # 0.4: on target
  # Hard was never drawn: as if on target.
  weights = np.exp([-0.4 / 0.2, 0.0, 0.0])
  want = 0.9 * weights / weights.sum() + 0.1 / 3
  assert curriculum.probabilities(11) == pytest.approx(want)
  assert want == pytest.approx([0.0904, 0.4548, 0.4548], abs=1e-4)


def test_adaptive_takes_one_bucket_a_step_and_forgets_past_its_window():
  curriculum = adaptive.Adaptive(pool(), PAPER)
  for step in range(1, 30):
    assert len({d.bucket for d in curriculum.draw(step, 8, rng(step))}) == 1
  for step in range(20):
    observe(curriculum, step, 2, [0.0])
  for step in range(20):
    observe(curriculum, step, 2, [0.4])
  assert curriculum.metrics()["success/hard"] == pytest.approx(0.4)


def test_an_empty_bucket_is_never_chosen():
  curriculum = adaptive.Adaptive(pool((3, 0, 3)), PAPER)
  for step in (1, 11):
    probabilities = curriculum.probabilities(step)
    assert probabilities[1] == 0 and probabilities.sum() == pytest.approx(1)


def replaying(settings=REPLAY):
  shares = mixture.constant((1, 0, 0))
  return replay.Replay(mixture.Mixture(pool((40, 5, 5)), shares), settings)


def test_replay_keeps_to_range_warm_up_bucket_and_share():
  curriculum = replaying()
  draws = [Draw(0, 0), Draw(1, 0), Draw(2, 0), Draw(3, 0), Draw(41, 1)]
  curriculum.observe(1, draws, [0.0, 0.5, 0.96, 0.05, 0.5])
  assert not any(d.replayed for d in curriculum.draw(2, 8, rng()))  # Warm-up.
  for step in range(3, 20):
    drawn = curriculum.draw(step, 8, rng(step))
    again = [d.index for d in drawn if d.replayed]
    # A quarter of eight; 0 and 2 are out of range, 41 is in another bucket.
    assert sorted(again) == [1, 3] and len(drawn) == 8
  assert curriculum.metrics()["replay_share"] == 0.25


def test_replay_prefers_what_is_solved_half_of_the_time():
  settings = replay.ReplaySettings(0.125, 0, 0.05, 0.95, 0, 0.8)
  curriculum = replaying(settings)
  curriculum.observe(1, [Draw(0, 0), Draw(1, 0)], [0.5, 0.1])
  counts = collections.Counter(
    d.index
    for step in range(2000)
    for d in curriculum.draw(step + 1, 8, rng(step))
    if d.replayed
  )
  assert counts[0] / counts[1] == pytest.approx(0.25 / 0.09, rel=0.15)


def test_replay_has_a_cap_and_a_moving_mean():
  settings = replay.ReplaySettings(0.25, 0, 0.20, 0.80, 3, 0.8)
  curriculum = replaying(settings)
  curriculum.observe(1, [Draw(7, 0)], [0.5])
  seen = []
  for step in range(1, 8):
    again = [d for d in curriculum.draw(step, 8, rng(step)) if d.replayed]
    curriculum.observe(step, again, [0.5] * len(again))
    seen.append(len(again))
  assert seen == [1, 1, 1, 0, 0, 0, 0]
  curriculum.observe(2, [Draw(8, 0)], [0.5])
  curriculum.observe(3, [Draw(8, 0)], [1.0])
  assert curriculum.state_dict()["seen"][1] == [0, 8, 0, pytest.approx(0.6), 0]


def test_mixed_draws_from_both_and_tells_each_its_own():
  one = adaptive.Adaptive(pool(), PAPER)
  two = adaptive.Adaptive(pool((4, 4, 4)), PAPER)
  both = mixed.Mixed(one, two, 0.5)
  draws = both.draw(1, 8, rng())
  assert [d.source for d in draws] == [0] * 4 + [1] * 4
  both.observe(1, draws, [1.0] * 4 + [0.0] * 4)
  success = {n: v for n, v in both.metrics().items() if "/success/" in n}
  assert sorted(success.values()) == [0.0, 1.0]
  assert {n.split("/")[0] for n in success} == {"source0", "source1"}


def every_kind():
  inner = adaptive.Adaptive(pool(), PAPER)
  over = replay.Replay(inner, REPLAY)
  made = pool((4, 4, 4))
  return mixed.Mixed(
    over, mixture.Mixture(made, mixture.proportional(made)), 0.5
  )


def play(curriculum, steps):
  batches = []
  for step in steps:
    drawn = curriculum.draw(step, 16, rng(step))
    batches.append(drawn)
    rates = rng((step, 1)).random(len(drawn)).tolist()
    curriculum.observe(step, drawn, rates)
  return batches


def test_state_goes_through_json_and_the_next_five_batches_are_the_same():
  whole = every_kind()
  play(whole, range(1, 16))
  state = json.loads(json.dumps(whole.state_dict()))
  want = play(whole, range(16, 21))
  resumed = every_kind()
  resumed.load_state_dict(state)
  assert play(resumed, range(16, 21)) == want
  fresh = every_kind()
  assert play(fresh, range(16, 21)) != want  # The state matters.


def test_items_can_be_added_to_a_pool():
  items = pool((1, 0, 0))
  index = items.add(2)
  assert (index, items.size, items.count(2)) == (1, 2, 1)
  assert items.draw(2, rng()) == Draw(1, 2)
