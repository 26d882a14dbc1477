"""The costs of a step's device calls, taken from compiled programs.

They add up the compiler's cycles at the chip's clock, kernels and exposed
collectives at data-sheet rates, and an assumed latency per collective.
"""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.lab.compile import (
  cost,
  forecast,
  program_report,
  sampler_forecast,
  sampling_programs,
)
from azr_jax.lab.compile.compiled import Compiled
from azr_jax.lab.compile.cost import Cost
from azr_jax.lab.compile.lengths import Lengths
from azr_jax.lab.compile.roofline import Load
from azr_jax.lab.compile.roofline_floors import Shapes
from azr_jax.lab.compile.sampler_forecast import (
  DecodeCost,
  PromptLoad,
  Rules,
  SamplerCosts,
)
from azr_jax.parallel.chips import Chip
from azr_jax.rollout import settings as rollout_settings
from azr_jax.trainer.settings import TrainSettings

# Assumed, not measured: seconds until the first byte of a collective arrives.
COLLECTIVE_LATENCY_S = 3e-6
# Seed of the drawn lengths, so that a forecast is reproducible.
_SEED = 0
# Steps simulated when sampling ahead. The first steps fill the slots and the
# last has no successor, so only those in between are timed.
_AHEAD_STEPS, _FIRST_TIMED, _LAST_TIMED = 5, 2, 3


def seconds(total: Cost, chip: Chip) -> float:
  """Returns the seconds of a cost, without loops of unknown length.

  Args:
    total: the cost.
    chip: a chip whose clock is known.
  """
  outside_loops = Cost()
  outside_loops.add(total)
  outside_loops.loops = []
  report = program_report.time_report(outside_loops, chip, {})
  return report["total_seconds"] + COLLECTIVE_LATENCY_S * sum(
    outside_loops.collectives.values()
  )


def sampler_costs(
  programs: Mapping[str, Compiled],
  chip: Chip,
  c: TrainSettings,
  slot_counts: tuple[int, ...],
) -> SamplerCosts:
  """Returns the costs of sampling, assuming fewer slots cost as much as all.

  Args:
    programs: compiled programs by name.
    chip: the device type.
    c: a training configuration.
    slot_counts: slot counts that decode is compiled for.
  """
  prefill_s = {}
  for chunk in c.rollout.prefill_chunks:
    total = programs[sampling_programs.prefill_name(c.rollout, chunk)].cost
    page_s = seconds(total.iteration(cost.PAGE), chip)
    prefill_s[chunk] = (seconds(total, chip), page_s)
  decode = decode_cost(programs["decode"], chip)
  return SamplerCosts(prefill_s, dict.fromkeys(slot_counts, decode))


def decode_cost(program: Compiled, chip: Chip) -> DecodeCost:
  """Returns the cost of a decode call, of a token, and of a cache page."""
  token = program.cost.iteration(cost.TOKEN)
  return DecodeCost(
    seconds(program.cost, chip),
    seconds(token, chip),
    seconds(token.iteration(cost.PAGE), chip),
  )


def learner_costs(
  programs: Mapping[str, Compiled], chip: Chip
) -> forecast.LearnerCosts:
  """Returns the costs of an update and of handing its parameters to sampling.

  They include a critic's costs if the run has one.

  Args:
    programs: compiled programs by name.
    chip: the device type.
  """

  def costs(names: Sequence[str]) -> tuple[float, float]:
    call_s = micro_batch_s = 0.0
    for name in names:
      if name in programs:
        total = programs[name].cost
        call_s += seconds(total, chip)
        micro_batch_s += seconds(total.iteration(cost.MICRO_BATCH), chip)
    return call_s, micro_batch_s

  call_s, micro_batch_s = costs(("update", "critic"))
  score_call_s, score_micro_batch_s = costs(("prepare", "estimate"))
  critic_step_s = 0.0
  if "critic" in programs:
    step = programs["critic"].cost.iteration(cost.OPTIMIZER_STEP)
    critic_step_s = seconds(step, chip)
  return forecast.LearnerCosts(
    call_s,
    micro_batch_s,
    params_s=seconds(programs["weights"].cost, chip),
    score_call_s=score_call_s,
    score_micro_batch_s=score_micro_batch_s,
    critic_step_s=critic_step_s,
  )


def forecast_step(
  programs: Mapping[str, Compiled],
  chip: Chip,
  c: TrainSettings,
  shapes: Shapes,
  slot_counts: tuple[int, ...],
  load: Load,
  lengths: Lengths,
) -> dict[str, Any]:
  """Returns the forecast of a step for a distribution of lengths.

  Args:
    programs: programs by name, all of which compiled.
    chip: a chip whose clock is known.
    c: a training configuration.
    shapes: the sizes of a call.
    slot_counts: slot counts that decode is compiled for, descending.
    load: the step's requests.
    lengths: the distribution of completion lengths.
  """
  rng = random.Random(_SEED)
  tokens = round(load.prompt_tokens)
  phases = [
    [
      PromptLoad(tokens, tuple(lengths.draw(samples, rng)))
      for _ in range(prompts)
    ]
    for prompts, samples in load.phases
  ]
  sampled = [
    n for phase in phases for prompt in phase for n in prompt.completions
  ]
  trained = [
    tokens + length
    for length in rng.sample(sampled, min(load.trained, len(sampled)))
  ]
  rules = Rules(
    c.rollout,
    slot_counts,
    shapes.chips // shapes.tensor,
    "tpu",
    c.rollout.attention != rollout_settings.LOOP,
  )
  costs = sampler_costs(programs, chip, c, slot_counts)
  stream = _one_stream(phases)
  step = forecast.step(
    stream,
    trained,
    rules,
    costs,
    forecast.LearnerRules(
      c.learner.row_length,
      shapes.rows,
      c.learner.epochs,
      c.learner.max_sequences_per_row,
      c.critic.num_minibatches,
    ),
    learner_costs(programs, chip),
  )
  phases_s = step.sampled.seconds
  if len(phases) > 1:
    phases_s = sum(
      sampler_forecast.sample(phase, rules, costs).seconds for phase in phases
    )
  ahead_s = _ahead_s(stream, rules, costs)
  return {
    "step_s": step.step_s,
    "ahead_step_s": ahead_s + step.update_s + step.params_s,
    "sample_s": step.sampled.seconds,
    "phases_sample_s": phases_s,
    "ahead_sample_s": ahead_s,
    "prefill_s": step.sampled.prefill_s,
    "decode_s": step.sampled.decode_s,
    "decode_calls": step.sampled.calls,
    "decode_steps": step.sampled.steps,
    "slots_busy": step.sampled.busy,
    "update_s": step.update_s,
    "params_s": step.params_s,
    "rows": step.rows,
    "micro_batches": step.micro_batches,
    "mean_tokens": sum(sampled) / len(sampled),
    "longest_tokens": max(sampled),
  }


def _one_stream(phases: Sequence[Sequence[PromptLoad]]) -> list[PromptLoad]:
  """Returns the first phase's prompts, with later phases as follow-ups."""
  first, *later = phases
  follow: list[list[PromptLoad]] = [[] for _ in first]
  for phase in later:
    for index, prompt in enumerate(phase):
      follow[index % len(first)].append(prompt)
  return [
    dataclasses.replace(prompt, follow_ups=tuple(then))
    for prompt, then in zip(first, follow, strict=True)
  ]


def _ahead_s(
  step: Sequence[PromptLoad], rules: Rules, costs: SamplerCosts
) -> float:
  """Returns the sampling seconds of a step if the next is sampled ahead."""
  steps = [step] * _AHEAD_STEPS
  ends = sampler_forecast.sample_steps(steps, 1, rules, costs).step_ends
  seconds = ends[_LAST_TIMED] - ends[_FIRST_TIMED - 1]
  return seconds / (_LAST_TIMED - _FIRST_TIMED + 1)
