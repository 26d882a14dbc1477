"""Tests forecasts over several draws of lengths."""

import dataclasses
import random

import pytest
from lab_forecast import costs, prompts, rules

from azr_jax.lab.compile import draws, forecast, lengths, sampler_forecast
from azr_jax.lab.compile.roofline import Load
from azr_jax.lab.compile.sampler_forecast import HostCosts, PromptLoad

LEARNER = forecast.LearnerRules(row_length=256, micro_rows=1)
LEARNED = forecast.LearnerCosts(call_s=2.0, micro_batch_s=0.0, params_s=1.0)


def forecast_steps(name, samples=1, count=4, **changes):
  load = Load(4 * samples, 4 * samples, 4, 8.0, 0.0, ((4, samples),))
  return draws.forecast_steps(
    load,
    lengths.parse(name, 500),
    rules(),
    costs(**changes),
    LEARNER,
    LEARNED,
    count,
  )


def test_a_spread_by_hand():
  """1, 2 and 6 differ from their mean 3 by 2, 1 and 3: variance 14 / 2."""
  found = draws.spread([1.0, 2.0, 6.0])
  assert found.mean == 3
  assert found.deviation == pytest.approx(7**0.5)
  assert found.error == pytest.approx((7 / 3) ** 0.5)
  assert draws.spread([5.0]) == draws.Spread(5.0, 0.0, 0.0)


def test_steps_that_alternate_have_a_small_error():
  """A long step helps the next one, so pairs differ less than steps."""
  found = draws.spread([9.0, 1.0, 9.0, 3.0, 7.0], window=2)
  assert found.mean == 29 / 5
  # Pairs have the means 5 and 6; the last value has no partner.
  assert found.error == pytest.approx(0.5)


def test_steps_of_equal_lengths_do_not_differ():
  found = forecast_steps("equal:40")
  assert found["draws"] == 4
  assert found["sample_s"] == {"mean": 40, "deviation": 0, "error": 0}
  assert found["step_s"] == {"mean": 43, "deviation": 0, "error": 0}
  assert found["longest_tokens"] == found["mean_tokens"] == 40


def test_each_step_has_lengths_of_its_own():
  """Four slots and four answers: a step takes its longest answer."""
  found = forecast_steps("lognormal:40:1:200")
  longest = []
  for seed in range(4):
    rng = random.Random(seed)
    drawn = [
      lengths.parse("lognormal:40:1:200", 500).draw(1, rng)[0] for _ in range(4)
    ]
    longest.append(max(drawn))
  assert len({*longest}) > 1
  expected = draws.spread(longest)
  assert found["sample_s"] == pytest.approx(dataclasses.asdict(expected))
  assert found["step_s"]["mean"] == pytest.approx(expected.mean + 3)
  assert found["longest_tokens"] == pytest.approx(expected.mean)


def test_more_steps_ahead_take_no_longer_and_differ_in_their_draws():
  found = forecast_steps("lognormal:40:1:200", count=6)
  by_staleness = [found["ahead_sample_s"][n] for n in ("1", "2")]
  assert found["sample_s"]["mean"] > by_staleness[0]["mean"]
  assert by_staleness[0]["mean"] > by_staleness[1]["mean"]
  assert all(ahead["deviation"] > 0 for ahead in by_staleness)
  assert found["ahead_step_s"]["1"]["mean"] == pytest.approx(
    by_staleness[0]["mean"] + 3
  )


def test_decoding_is_counted_by_the_number_of_slots():
  """After a call of 16 tokens in four slots, one answer needs 84 more."""

  class OneLong:
    def draw(self, count, rng):
      del rng
      return [10] * (count - 1) + [100]

  found = draws.forecast_steps(
    Load(4, 4, 4, 8.0, 0.0, ((1, 4),)),
    OneLong(),
    rules(slot_counts=(4, 1)),
    costs(),
    LEARNER,
    LEARNED,
    2,
  )
  assert found["decode_by_slots"] == {
    "4": {"calls": 1, "steps": 16, "live_slots": (3 * 10 + 16) / 16},
    "1": {"calls": 6, "steps": 84, "live_slots": 1},
  }


def test_only_steps_between_others_are_timed():
  """One long step: its own time counts, but not that of its neighbours."""
  long, short = prompts(100, 100, 100, 100), prompts(10, 10, 10, 10)
  seconds = draws.ahead([long, short, short, long], 1, rules(), costs())
  assert len(seconds) == 1 and seconds[0] < 100


def test_phases_are_sampled_one_after_another():
  load = Load(8, 8, 4, 8.0, 0.0, ((2, 1), (2, 1)))
  found = draws.forecast_steps(
    load, lengths.parse("equal:20", 500), rules(), costs(), LEARNER, LEARNED, 1
  )
  assert found["phases_sample_s"]["mean"] == 40


def test_the_device_waits_for_the_host():
  """Two calls of 16 tokens in four slots, the second with ends."""
  host = HostCosts(call_s=0.5, slot_s=0.25, exchange_s=10.0)
  found = sampler_forecast.sample(prompts(32, 32), rules(), costs(host=host))
  assert found.calls == 2
  assert found.host_s == 2 * (0.5 + 4 * 0.25) + 10
  assert found.seconds == 32 + found.host_s


def test_verdicts_are_exchanged_after_calls_that_end_completions():
  host = HostCosts(exchange_s=1.0)
  found = sampler_forecast.sample(
    [PromptLoad(8, (5, 20, 40))], rules(), costs(host=host)
  )
  assert found.calls == found.host_s == 3
