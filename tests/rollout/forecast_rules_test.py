"""The forecast plays the rules that the scheduler follows."""

import copy
import dataclasses

import jax
import numpy as np
import pytest
from rollout_model import TEXTS, ByteTokenizer, policy

from azr_jax import types
from azr_jax.lab.bench import measured_costs
from azr_jax.lab.compile import sampler_forecast


@pytest.mark.parametrize("samples", [1, 3, 5])
def test_calls_and_tokens_are_those_of_the_scheduler(
  params, one_device_mesh, samples
):
  sampler = copy.copy(policy(params, one_device_mesh).sampler)
  engine, calls = sampler.engine, []

  def counted(name):
    function = getattr(engine, name)

    def call(*args):
      result = function(*args)
      tokens = int(np.max(result[2].num_generated)) if name == "decode" else 0
      calls.append((name, tokens))
      return result

    return call

  names = ("prefill", "decode", "compact")
  sampler._engine = dataclasses.replace(
    engine, **{name: counted(name) for name in names}
  )
  prompts = [
    types.Prompt(text, tuple(ByteTokenizer().encode(text))) for text in TEXTS
  ]
  lengths = np.zeros((len(prompts), samples), int)
  for index, sample, completion in sampler.generate(
    sampler.compute_params(params), prompts, samples, jax.random.key(1)
  ):
    lengths[index, sample] = len(completion.token_ids)

  decode = sampler_forecast.DecodeCost(0.0, 0.0, 0.0)
  counts = engine.slot_counts
  s = sampler.settings
  played = sampler_forecast.sample(
    [
      sampler_forecast.Prompt(len(prompt.token_ids), tuple(each.tolist()))
      for prompt, each in zip(prompts, lengths, strict=True)
    ],
    sampler_forecast.Rules(
      counts,
      s.prompt_buckets,
      s.prefill_chunks,
      s.prefill_tokens,
      1,
      s.decode_chunk,
      s.page_size,
      "cpu",
    ),
    # Each call that reads costs 1, each compaction 100.
    sampler_forecast.SamplerCosts(
      dict.fromkeys(s.prefill_chunks, (1.0, 0.0)),
      dict.fromkeys(counts, decode),
      dict.fromkeys(counts, 100.0),
    ),
  )
  times = {name: sum(one == name for one, _ in calls) for name in names}
  assert played.calls == times["decode"]
  assert played.steps == sum(tokens for _, tokens in calls)
  assert played.prefill_s == times["prefill"]
  assert played.compact_s == 100 * times["compact"]
  assert played.tokens == lengths.sum()


def test_costs_of_every_device_call_are_measured(params, one_device_mesh):
  sampler = policy(params, one_device_mesh).sampler
  engine = sampler.engine
  costs = measured_costs.sampler_costs(
    engine, sampler.compute_params(params), repeats=1
  )
  assert list(costs.prefill_s) == list(engine.prefill_chunks)
  assert list(costs.decode) == list(engine.slot_counts)
  assert list(costs.compact_s) == list(engine.slot_counts[1:])
  assert costs.request_s > 0 and all(
    seconds > 0 for seconds, _ in costs.prefill_s.values()
  )
