"""Tests the forecast of a step against closed forms."""

import json
import random

import pytest
from lab_forecast import costs, prompts, rules

from azr_jax.configs import orz
from azr_jax.lab.compile import (
  compiled_costs,
  cost,
  forecast,
  lengths,
  roofline,
  roofline_floors,
  sampler_forecast,
  sampling_programs,
)
from azr_jax.lab.compile.compiled import Compiled
from azr_jax.lab.compile.sampler_forecast import DecodeCost, PromptLoad
from azr_jax.parallel.chips import Chip
from azr_jax.trainer import settings


@pytest.mark.parametrize("rounds", [1, 3])
def test_equal_lengths_take_their_tokens_once_per_round_of_slots(rounds):
  simulated = sampler_forecast.sample(
    prompts(*[40] * 4 * rounds), rules(), costs(call=7)
  )
  calls = rounds * 3  # 16 + 16 + 8 tokens.
  assert (simulated.steps, simulated.calls) == (rounds * 40, calls)
  assert simulated.seconds == rounds * 40 + 7 * calls
  assert simulated.busy == 1 and simulated.tokens == rounds * 160


def test_one_long_answer_keeps_the_slots_until_it_ends():
  simulated = sampler_forecast.sample(
    prompts(10, 10, 10, 100), rules(), costs()
  )
  assert simulated.seconds == simulated.steps == 100
  assert simulated.busy == 130 / 400


def test_slots_are_compacted_for_a_long_answer():
  """After a call of 16 tokens, 84 are left, at half the cost."""
  found = sampler_forecast.sample(
    prompts(10, 10, 10, 100),
    rules(slot_counts=(4, 1)),
    costs(compact_s={1: 3.0}),
  )
  assert found.decode_s == 16 + 84 * 0.5
  assert found.compact_s == 3
  assert found.slot_steps == 4 * 16 + 84


@pytest.mark.parametrize(
  "longest, decode_s",
  [
    # One on each of eight devices: 84 tokens are left, at half the cost.
    (range(8), 16 + 84 * 0.5),
    # Prompts 0 and 8 are on one device, whose two slots all others get too.
    ((0, 8), 100),
  ],
)
def test_the_fullest_device_decides_how_many_slots_are_left(longest, decode_s):
  found = sampler_forecast.sample(
    prompts(*(100 if number in longest else 10 for number in range(32))),
    rules(slot_counts=(32, 8), devices=8),
    costs(decode={32: DecodeCost(0.0, 1.0, 0.0), 8: DecodeCost(0.0, 0.5, 0.0)}),
  )
  assert found.decode_s == decode_s


def test_attention_reads_the_pages_of_the_longest_live_slot():
  """Calls of 8 tokens start at 4, 12 and 20 entries: 1, 3 and 5 pages."""
  found = sampler_forecast.sample(
    prompts(24, 1, tokens=5), rules(decode_chunk=8), costs(page=10.0)
  )
  assert found.decode_s == 24 + 8 * 10 * (1 + 3 + 5)


def test_slots_of_similar_length_are_read_together():
  """32 slots are read eight at a time, and one block has a long row."""
  found = sampler_forecast.sample(
    [*prompts(1, tokens=16), *prompts(*[1] * 31, tokens=5)],
    rules(slot_counts=(32,), prefill_tokens=512),
    costs(page=10.0),
  )
  assert found.decode_s == 1 + 10 * (4 + 1 + 1 + 1)


def test_a_call_ends_early_while_others_wait():
  """One of eight slots is refilled after 3 tokens; the last ones run out."""
  found = sampler_forecast.sample(
    prompts(3, *[16] * 7, 16), rules(slot_counts=(8,)), costs()
  )
  # 3 tokens, then 13 to the end of seven slots, and 3 of the ninth answer: the
  # second call is not cut short, because nothing is waiting any more.
  assert found.steps == 3 + 16
  assert found.calls == 2


def test_long_prompts_are_read_in_parts():
  """Nine of ten tokens in chunks of four, after 0, 4 and 8 cached tokens."""
  found = sampler_forecast.sample(
    prompts(1, tokens=10),
    rules(prefill_tokens=4),
    costs(prefill=(5.0, 1.0)),
  )
  assert found.prefill_s == 3 * 5 + 0 + 1 + 2


def test_what_follows_a_completion_waits_for_it_alone():
  """A short and a long proposal; the short one's answer fills its slot."""
  first = PromptLoad(8, (4,), (PromptLoad(8, (12,)),))
  second = PromptLoad(8, (16,), (PromptLoad(8, (4,)),))
  stream = rules(slot_counts=(2,))
  two = costs(decode={2: DecodeCost(0.0, 1.0, 0.0)})
  separate = [
    sampler_forecast.sample(prompts(*counts), stream, two)
    for counts in ((4, 16), (12, 4))
  ]
  assert sum(simulated.seconds for simulated in separate) == 16 + 12
  found = sampler_forecast.sample([first, second], rules(slot_counts=(2,)), two)
  # The first call is not cut short, as nothing waits yet: 16 and 12 tokens.
  assert found.seconds == 16 + 12
  # A completion is delivered while the next call runs, so its follow-up waits
  # for a call of 4 tokens: 4 + 4 + 12, then 4 + 4 for the long one's answer.
  short = rules(slot_counts=(2,), decode_chunk=4)
  found = sampler_forecast.sample([first, second], short, two)
  assert found.seconds == 16 + 4 + 4


def test_a_step_ahead_fills_the_slots_of_a_long_answer():
  """Each step has an answer of 40 tokens and three of 10, in four slots."""
  step = prompts(10, 10, 10, 40)
  short = rules(decode_chunk=10)
  alone = sampler_forecast.sample_steps([step] * 4, 0, short, costs())
  assert alone.steps == 4 * 40 and alone.busy == 70 / 160
  ahead = sampler_forecast.sample_steps([step] * 4, 1, short, costs())
  assert ahead.tokens == alone.tokens and 120 <= ahead.steps < 160
  assert ahead.step_ends[-1] == ahead.seconds


def test_sequences_read_their_tokens_again_when_a_step_ends():
  """The second step's answer has 20 tokens when the first one is complete.

  A call is in flight when the first step's last completion is delivered.
  """
  steps = [prompts(10), prompts(30)]
  found = sampler_forecast.sample_steps(
    steps, 1, rules(decode_chunk=10), costs(prefill=(1.0, 0.0))
  )
  # Two prompts of 7 tokens in one call; then the prompt, and 20 tokens in two.
  assert found.prefill_s == 1 + 1 + 2
  assert found.steps == 10 + 20


def test_a_step_adds_sampling_and_micro_batches():
  """Six sequences of 9 tokens, in rows of 16: two in each, three rows."""
  step = forecast.step(
    prompts(5, 5),
    [9] * 6,
    rules(),
    costs(),
    forecast.LearnerRules(row_length=16, micro_rows=2, epochs=2),
    forecast.LearnerCosts(1.0, 10.0, 0.5, 0.25, 3.0),
  )
  assert (step.rows, step.micro_batches) == (3, 2)
  # A batch is scored once, in however many epochs it is trained on.
  assert step.update_s == (0.25 + 2 * 3) + 2 * (1 + 2 * 10)
  assert step.step_s == 5 + step.update_s + 0.5


def test_minibatches_share_no_micro_batch():
  """Three sequences of 9 tokens in each part: two rows, one micro-batch."""
  step = forecast.step(
    prompts(5, 5),
    [9] * 6,
    rules(),
    costs(),
    forecast.LearnerRules(row_length=16, micro_rows=3, minibatches=2),
    forecast.LearnerCosts(1.0, 10.0),
  )
  assert (step.rows, step.micro_batches) == (4, 2)
  assert step.update_s == 2 * 1 + 2 * 10


@pytest.mark.parametrize("most, steps", [(12, 3), (3, 3), (2, 2)])
def test_a_critic_takes_no_more_steps_than_there_are_micro_batches(most, steps):
  step = forecast.step(
    prompts(5, 5),
    [9] * 6,
    rules(),
    costs(),
    forecast.LearnerRules(16, micro_rows=1, epochs=2, critic_steps=most),
    forecast.LearnerCosts(1.0, 10.0, critic_step_s=0.5),
  )
  assert step.micro_batches == 3
  assert step.update_s == 2 * (1 + 3 * 10 + steps * 0.5)


def test_costs_come_from_the_loops_of_compiled_programs():
  """Uses a clock of 1 kHz; collectives take only their latency."""
  chip = Chip(1e9, 1e9, 2e3, 1e30, multipliers=1)

  def loop(name, cycles, *inner):
    body = cost.Cost({"mlp": cycles}, loops=list(inner))
    return cost.Loop(name, 1.0, None, body)

  page = loop(cost.PAGE, 2000.0)
  token = loop(cost.TOKEN, 3000.0, cost.Loop(page.name, 28.0, None, page.body))
  decode = Compiled("decode", cost=cost.Cost({"other": 5000.0}, loops=[token]))
  assert compiled_costs.decode_cost(decode, chip) == DecodeCost(
    5.0, 3.0, 28 * 2.0
  )
  update = Compiled(
    "update",
    cost=cost.Cost({"other": 1000.0}, loops=[loop(cost.MICRO_BATCH, 4000.0)]),
  )
  weights = Compiled("weights", cost=cost.Cost({"other": 600.0}))
  programs = {"update": update, "weights": weights}
  got = compiled_costs.learner_costs(programs, chip)
  assert (got.call_s, got.micro_batch_s, got.params_s) == (1.0, 4.0, 0.6)
  steps = loop(cost.OPTIMIZER_STEP, 500.0, loop(cost.MICRO_BATCH, 3000.0))
  critic = Compiled("critic", cost=cost.Cost({"other": 200.0}, loops=[steps]))
  estimate = Compiled(
    "estimate",
    cost=cost.Cost({"other": 70.0}, loops=[loop(cost.MICRO_BATCH, 1500.0)]),
  )
  learned = programs | {"critic": critic, "estimate": estimate}
  assert compiled_costs.learner_costs(learned, chip) == forecast.LearnerCosts(
    call_s=1.0 + 0.2,
    micro_batch_s=4.0 + 3.0,
    params_s=0.6,
    score_call_s=0.07,
    score_micro_batch_s=1.5,
    critic_step_s=0.5,
  )


@pytest.mark.parametrize(
  "most",
  [12, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 10_000))],
)
def test_a_run_s_forecast_has_its_critic_s_steps(most):
  """Uses a clock of 1 kHz, where nothing else takes time."""
  config = orz.get_config("tiny")
  config.critic.num_minibatches = most
  c = settings.read_train(config).shared
  step = cost.Loop(cost.OPTIMIZER_STEP, 1.0, None, cost.Cost({"other": 500.0}))
  programs = {
    name: Compiled(name, cost=cost.Cost())
    for name in ("decode", "update", "weights")
  } | {"critic": Compiled("critic", cost=cost.Cost(loops=[step]))}
  for chunk in c.rollout.prefill_chunks:
    name = sampling_programs.prefill_name(c.rollout, chunk)
    programs[name] = Compiled(name, cost=cost.Cost())
  found = compiled_costs.forecast_step(
    programs,
    Chip(1e9, 1e9, 2e3, 1e30, multipliers=1),
    c,
    roofline_floors.Shapes(
      1, 1, 256, 2, 4, 64.0, 8, {}, c.rollout.dtypes("float32")
    ),
    (4,),
    roofline.Load(64, 64, 8, 20.0, 30.0, ((8, 8),)),
    lengths.parse("equal:30", 100),
    draws=2,
  )
  assert 12 > found["micro_batches"] > 1
  steps = min(most, found["micro_batches"])
  assert found["update_s"]["mean"] == pytest.approx(0.5 * steps)


@pytest.mark.parametrize(
  "text, mean, longest",
  [("equal:70", 70, 70), ("lognormal:64:0.5:400", 64, 400)],
)
def test_lengths_have_the_named_distribution(text, mean, longest):
  drawn = lengths.parse(text, 1000).draw(4000, random.Random(1))
  assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.03)
  assert max(drawn) <= longest


def test_lengths_are_cut_to_the_longest_completion():
  assert lengths.parse("equal:70", 50).draw(2, random.Random(1)) == [50, 50]
  drawn = lengths.parse("lognormal:64:2:900", 100).draw(99, random.Random(1))
  assert max(drawn) == 100 and min(drawn) >= 1


def test_lengths_of_a_run_are_those_of_its_metrics(tmp_path):
  line = {"tokens/a/mean": 100.0, "tokens/a/std": 50.0, "count/a": 3.0}
  other = {"tokens/b/mean": 20.0, "tokens/b/std": 0.0, "count/b": 1.0}
  (tmp_path / "metrics.jsonl").write_text(json.dumps(line | other) + "\n")
  drawn = lengths.parse(f"run:{tmp_path}", 500).draw(8000, random.Random(1))
  assert sum(drawn) / len(drawn) == pytest.approx((3 * 100 + 20) / 4, rel=0.03)
  assert drawn.count(20) / len(drawn) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(
  "text", ["equal", "equal:x", "lognormal:5", "run:/nowhere", "normal:1:1"]
)
def test_wrong_lengths_are_refused_in_one_line(text):
  with pytest.raises(ValueError, match=r"^lengths=.*expected[^\n]*$"):
    lengths.parse(text, 10)
