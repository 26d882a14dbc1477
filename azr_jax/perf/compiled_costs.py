"""The costs of a step's device calls, from programs that were compiled.

A compiler's cycles at the chip's clock, kernels and collectives that nothing
hides at the data sheet's rates, and an assumed latency for each collective.
"""

import random
from collections.abc import Mapping
from typing import Any

from azr_jax.parallel.chips import Chip
from azr_jax.perf import cost, forecast, program_report
from azr_jax.perf.compiled import Compiled
from azr_jax.perf.cost import Cost
from azr_jax.perf.floors import Shapes
from azr_jax.perf.lengths import Lengths
from azr_jax.perf.roofline import Load
from azr_jax.trainer.settings import TrainSettings

# Assumed, not measured: seconds until a collective's first byte arrives.
COLLECTIVE_LATENCY_S = 3e-6
# The draws of a forecast are the same each time.
_SEED = 0


def seconds(one: Cost, chip: Chip) -> float:
  """Returns the seconds of a cost; loops of unknown length count nothing.

  Args:
    one: the cost.
    chip: a kind of device with a clock.
  """
  own = Cost()
  own.add(one)
  own.loops = []
  report = program_report.time_report(own, chip, {})
  return report["total_seconds"] + COLLECTIVE_LATENCY_S * sum(
    own.collectives.values()
  )


def sampler_costs(
  programs: Mapping[str, Compiled],
  chip: Chip,
  c: TrainSettings,
  slot_counts: tuple[int, ...],
) -> forecast.SamplerCosts:
  """Returns the costs of sampling.

  A prefill call of any bucket costs what one of the largest does, as all have
  about as many tokens; fewer slots cost what all do.

  Args:
    programs: by name.
    chip: the kind of device.
    c: the run's configuration.
    slot_counts: slots that decode is compiled for.
  """
  prefill, insert = programs["prefill"].cost, programs["insert"].cost
  part = (
    seconds(prefill, chip),
    seconds(prefill.iteration(cost.CACHE_CHUNK), chip),
  )
  decode = decode_cost(programs["decode"], chip)
  return forecast.SamplerCosts(
    prefill_s=dict.fromkeys(c.rollout.prompt_buckets, part),
    insert_s=(
      seconds(insert, chip),
      seconds(insert.iteration(cost.PROMPT), chip),
      seconds(insert.iteration(cost.SLOT), chip),
    ),
    decode=dict.fromkeys(slot_counts, decode),
  )


def decode_cost(program: Compiled, chip: Chip) -> forecast.DecodeCost:
  """Returns what decoding costs: a call, a token, and a chunk of the cache."""
  token = program.cost.iteration(cost.TOKEN)
  return forecast.DecodeCost(
    seconds(program.cost, chip),
    seconds(token, chip),
    seconds(token.iteration(cost.CACHE_CHUNK), chip),
  )


def learner_costs(
  programs: Mapping[str, Compiled], chip: Chip
) -> forecast.LearnerCosts:
  """Returns the costs of an update, with those of a critic if there is one."""
  call_s = micro_batch_s = 0.0
  for name in ("update", "prepare", "critic", "estimate"):
    if name in programs:
      one = programs[name].cost
      call_s += seconds(one, chip)
      micro_batch_s += seconds(one.iteration(cost.MICRO_BATCH), chip)
  return forecast.LearnerCosts(call_s, micro_batch_s)


def foretell(
  programs: Mapping[str, Compiled],
  chip: Chip,
  c: TrainSettings,
  shapes: Shapes,
  slot_counts: tuple[int, ...],
  load: Load,
  lengths: Lengths,
) -> dict[str, Any]:
  """Returns the forecast of a step at a distribution of lengths.

  Args:
    programs: by name, all of which compiled.
    chip: the kind of device, with a clock.
    c: the run's configuration.
    shapes: what a call does.
    slot_counts: slots that decode is compiled for, descending.
    load: the step's requests.
    lengths: of completions.
  """
  rng = random.Random(_SEED)
  tokens = round(load.prompt_tokens)
  phases = [
    [
      forecast.Prompt(tokens, tuple(lengths.draw(samples, rng)))
      for _ in range(prompts)
    ]
    for prompts, samples in load.phases
  ]
  drawn = [
    n for phase in phases for prompt in phase for n in prompt.completions
  ]
  trained = [
    tokens + length
    for length in rng.sample(drawn, min(load.trained, len(drawn)))
  ]
  step = forecast.step(
    phases,
    trained,
    forecast.Rules(
      slot_counts,
      c.rollout.prompt_buckets,
      c.rollout.prefill_tokens,
      shapes.chips // shapes.tensor,
      c.rollout.decode_chunk,
      c.rollout.cache_chunk,
    ),
    sampler_costs(programs, chip, c, slot_counts),
    forecast.LearnerRules(
      c.learner.row_length,
      shapes.rows,
      c.learner.epochs,
      c.learner.row_sequences,
    ),
    learner_costs(programs, chip),
  )
  return {
    "step_s": step.step_s,
    "sample_s": step.sample_s,
    "prefill_s": sum(played.prefill_s for played in step.phases),
    "insert_s": sum(played.insert_s for played in step.phases),
    "decode_s": sum(played.decode_s for played in step.phases),
    "phase_s": [played.seconds for played in step.phases],
    "decode_calls": sum(played.calls for played in step.phases),
    "decode_steps": sum(played.steps for played in step.phases),
    "slots_busy": [played.busy for played in step.phases],
    "update_s": step.update_s,
    "rows": step.rows,
    "micro_batches": step.micro_batches,
    "mean_tokens": sum(drawn) / len(drawn),
    "longest_tokens": max(drawn),
  }
