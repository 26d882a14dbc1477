"""The forecast of a step against closed forms, and against the scheduler."""

import json
import random

import pytest

from azr_jax.parallel.chips import Chip
from azr_jax.perf import compiled_costs, cost, forecast, lengths
from azr_jax.perf.compiled import Compiled


def rules(**changes):
  return forecast.Rules(
    **{
      "slot_counts": (4,),
      "buckets": (8, 16),
      "prefill_tokens": 64,
      "prefill_multiple": 1,
      "decode_chunk": 16,
      "cache_chunk": 4,
    }
    | changes
  )


def costs(call=0.0, token=1.0, chunk=0.0, prefill=(0.0, 0.0), **changes):
  decode = forecast.DecodeCost(call, token, chunk)
  return forecast.SamplerCosts(
    **{
      "prefill_s": {8: prefill, 16: prefill},
      "insert_s": (0.0, 0.0, 0.0),
      "decode": {4: decode, 8: decode, 1: forecast.DecodeCost(call, 0.5, 0.0)},
    }
    | changes
  )


def prompts(*counts, tokens=8):
  return [forecast.Prompt(tokens, (count,)) for count in counts]


@pytest.mark.parametrize("rounds", [1, 3])
def test_equal_lengths_take_their_tokens_once_per_round_of_slots(rounds):
  played = forecast.sample(prompts(*[40] * 4 * rounds), rules(), costs(call=7))
  calls = rounds * 3  # 16 + 16 + 8 tokens.
  assert (played.steps, played.calls) == (rounds * 40, calls)
  assert played.seconds == rounds * 40 + 7 * calls
  assert played.busy == 1 and played.tokens == rounds * 160


def test_one_long_answer_keeps_the_slots_until_it_ends():
  played = forecast.sample(prompts(10, 10, 10, 100), rules(), costs())
  assert played.seconds == played.steps == 100
  assert played.busy == 130 / 400


def test_slots_are_compacted_for_a_long_answer():
  """After a call of 16 tokens, 84 are left, at half the cost."""
  found = forecast.sample(
    prompts(10, 10, 10, 100),
    rules(slot_counts=(4, 1)),
    costs(compact_s={1: 3.0}),
  )
  assert found.decode_s == 16 + 84 * 0.5
  assert found.insert_s == 3
  assert found.slot_steps == 4 * 16 + 84


def test_attention_reads_the_longest_live_slot_in_chunks():
  """Calls of 8 tokens begin at 5, 13 and 21 entries: 2, 4 and 6 chunks."""
  found = forecast.sample(
    prompts(24, 1, tokens=5), rules(decode_chunk=8), costs(chunk=10.0)
  )
  assert found.decode_s == 24 + 8 * 10 * (2 + 4 + 6)


def test_a_call_ends_early_while_others_wait():
  """One of eight slots is refilled after 3 tokens; the last ones run out."""
  found = forecast.sample(
    prompts(3, *[16] * 7, 16), rules(slot_counts=(8,)), costs()
  )
  # 3 tokens, then 13 to the end of seven slots, and 3 of the ninth answer: the
  # second call is not cut, because nothing waits any more.
  assert found.steps == 3 + 16
  assert found.calls == 2


def test_long_prompts_are_prefilled_in_parts():
  """Ten tokens in parts of four: the cache before them has 0, 1, 2 chunks."""
  found = forecast.sample(
    prompts(1, tokens=10), rules(prefill_tokens=4), costs(prefill=(5.0, 1.0))
  )
  assert found.prefill_s == 3 * 5 + 0 + 1 + 2


def test_inserts_count_prompts_and_slots():
  found = forecast.sample(
    [forecast.Prompt(8, (1, 1, 1)), forecast.Prompt(8, (1,))],
    rules(prefill_tokens=16),
    costs(insert_s=(100.0, 10.0, 1.0)),
  )
  assert found.insert_s == 100 + 2 * 10 + 4


def test_a_step_adds_phases_and_micro_batches():
  """Six sequences of 9 tokens, in rows of 16: two in each, three rows."""
  step = forecast.step(
    [prompts(5, 5), prompts(7)],
    [9] * 6,
    rules(),
    costs(),
    forecast.LearnerRules(row_length=16, micro_rows=2, epochs=2),
    forecast.LearnerCosts(call_s=1.0, micro_batch_s=10.0, params_s=0.5),
  )
  assert (step.rows, step.micro_batches) == (3, 2)
  assert step.update_s == 2 * (1 + 2 * 10) + 0.5
  assert step.step_s == 5 + 7 + step.update_s


def test_costs_come_from_the_loops_of_compiled_programs():
  """A clock of 1 kHz; collectives take their latency alone."""
  chip = Chip(1e9, 1e9, 2e3, 1e30, multipliers=1)

  def loop(name, cycles, *inner):
    body = cost.Cost({"mlp": cycles}, loops=list(inner))
    return cost.Loop(name, 1.0, None, body)

  chunk = loop(cost.CACHE_CHUNK, 2000.0)
  token = loop(
    cost.TOKEN, 3000.0, cost.Loop(chunk.name, 28.0, None, chunk.body)
  )
  decode = Compiled("decode", cost=cost.Cost({"other": 5000.0}, loops=[token]))
  assert compiled_costs.decode_cost(decode, chip) == forecast.DecodeCost(
    5.0, 3.0, 28 * 2.0
  )
  update = Compiled(
    "update",
    cost=cost.Cost({"other": 1000.0}, loops=[loop(cost.MICRO_BATCH, 4000.0)]),
  )
  got = compiled_costs.learner_costs({"update": update}, chip)
  assert (got.call_s, got.micro_batch_s) == (1.0, 4.0)


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
