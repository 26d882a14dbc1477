"""Forecasts a training step for several draws of completion lengths.

One long completion decides how long a step takes, so steps whose lengths follow
the same distribution differ. Each draw is simulated as a synchronous step, and
all of them one after another with steps sampled ahead.
"""

import dataclasses
import random
import statistics
from collections.abc import Sequence
from typing import Any

from azr_jax.lab.compile import forecast, sampler_forecast
from azr_jax.lab.compile.forecast import LearnerCosts, LearnerRules
from azr_jax.lab.compile.lengths import Lengths
from azr_jax.lab.compile.roofline import Load
from azr_jax.lab.compile.sampler_forecast import (
  PromptLoad,
  Rules,
  SamplerCosts,
)

# Steps that a forecast averages over.
DRAWS = 16
# Values of `rollout.max_staleness` that are forecast beside 0.
STALENESS = (1, 2)


@dataclasses.dataclass(frozen=True)
class Spread:
  """Mean, deviation and standard error of a quantity over steps.

  Attributes:
    deviation: the standard deviation of one step; 0 for a single step.
    error: the standard error of the mean.
  """

  mean: float
  deviation: float
  error: float


def spread(values: Sequence[float], window: int = 1) -> Spread:
  """Returns the mean of some values, with its deviation and error.

  Args:
    values: the values, in order.
    window: number of consecutive values that depend on one another. The error
      follows from means over windows, which count as independent.
  """
  last = len(values) - window + 1
  means = [
    statistics.fmean(values[first : first + window])
    for first in range(0, last, window)
  ]
  return Spread(
    statistics.fmean(values),
    _deviation(values),
    _deviation(means) / max(1, len(means)) ** 0.5,
  )


def _deviation(values: Sequence[float]) -> float:
  """Returns the standard deviation of some values; 0 of fewer than two."""
  return statistics.stdev(values) if len(values) > 1 else 0.0


@dataclasses.dataclass(frozen=True)
class DrawnStep:
  """The requests of a step, with drawn lengths.

  Attributes:
    phases: the prompts of each phase.
    stream: the first phase's prompts, with the later phases as follow-ups.
    sampled: tokens of each completion.
    trained: tokens of each trained sequence, prompt included.
  """

  phases: tuple[tuple[PromptLoad, ...], ...]
  stream: tuple[PromptLoad, ...]
  sampled: tuple[int, ...]
  trained: tuple[int, ...]


def draw(load: Load, lengths: Lengths, seed: int) -> DrawnStep:
  """Draws a step.

  Args:
    load: the step's requests.
    lengths: the distribution of completion lengths.
    seed: the same seed gives the same lengths.
  """
  rng = random.Random(seed)
  tokens = round(load.prompt_tokens)
  phases = tuple(
    tuple(
      PromptLoad(tokens, tuple(lengths.draw(samples, rng)))
      for _ in range(prompts)
    )
    for prompts, samples in load.phases
  )
  sampled = tuple(
    n for phase in phases for prompt in phase for n in prompt.completions
  )
  trained = tuple(
    tokens + length
    for length in rng.sample(sampled, min(load.trained, len(sampled)))
  )
  return DrawnStep(phases, _one_stream(phases), sampled, trained)


def _one_stream(
  phases: Sequence[Sequence[PromptLoad]],
) -> tuple[PromptLoad, ...]:
  """Returns the first phase's prompts, with later phases as follow-ups."""
  first, *later = phases
  follow: list[list[PromptLoad]] = [[] for _ in first]
  for phase in later:
    for index, prompt in enumerate(phase):
      follow[index % len(first)].append(prompt)
  return tuple(
    dataclasses.replace(prompt, follow_ups=tuple(then))
    for prompt, then in zip(first, follow, strict=True)
  )


def forecast_steps(
  load: Load,
  lengths: Lengths,
  rules: Rules,
  costs: SamplerCosts,
  learner_rules: LearnerRules,
  learner_costs: LearnerCosts,
  draws: int = DRAWS,
) -> dict[str, Any]:
  """Forecasts steps, synchronous and with the next ones sampled ahead.

  Args:
    load: a step's requests.
    lengths: the distribution of completion lengths.
    rules: the scheduler's settings.
    costs: the costs of the sampler's device calls.
    learner_rules: the learner's settings.
    learner_costs: the costs of the learner's device calls.
    draws: number of steps to average over, each with its own lengths.

  Returns:
    Times as `Spread`, `ahead_...` by `rollout.max_staleness`; parts of them and
    counts as means over the steps.
  """
  steps = [
    draw(load, lengths, seed) for seed in range(draws + _around(STALENESS[-1]))
  ]
  drawn = steps[:draws]
  found = [
    forecast.step(
      one.stream, one.trained, rules, costs, learner_rules, learner_costs
    )
    for one in drawn
  ]
  phases_s = [step.sampled.seconds for step in found]
  if len(load.phases) > 1:
    phases_s = [_phases_s(one, rules, costs) for one in drawn]
  learned_s = [step.step_s - step.sampled.seconds for step in found]
  ahead_s = {
    staleness: ahead(
      [one.stream for one in steps[: draws + _around(staleness)]],
      staleness,
      rules,
      costs,
    )
    for staleness in STALENESS
  }
  learned_mean_s = statistics.fmean(learned_s)
  times = {
    "step_s": [step.step_s for step in found],
    "sample_s": [step.sampled.seconds for step in found],
    "phases_sample_s": phases_s,
    "update_s": [step.update_s for step in found],
  }
  means = _parts(found) | {
    "mean_tokens": [statistics.fmean(one.sampled) for one in drawn],
    "longest_tokens": [max(one.sampled) for one in drawn],
  }
  return {
    "draws": draws,
    **{name: _plain(values) for name, values in times.items()},
    "ahead_step_s": {
      str(staleness): _plain(
        [one + learned_mean_s for one in values], staleness + 1
      )
      for staleness, values in ahead_s.items()
    },
    "ahead_sample_s": {
      str(staleness): _plain(values, staleness + 1)
      for staleness, values in ahead_s.items()
    },
    **{name: statistics.fmean(values) for name, values in means.items()},
    "decode_by_slots": _by_slots([step.sampled for step in found]),
  }


def _by_slots(
  found: Sequence[sampler_forecast.SimulatedSampling],
) -> dict[str, dict[str, float]]:
  """Returns the mean work of a step for each number of slots, descending."""
  counts = sorted({n for one in found for n in one.decoded}, reverse=True)
  by_slots = {}
  for slots in counts:
    works = [one.decoded[slots] for one in found if slots in one.decoded]
    steps = sum(work.steps for work in works)
    by_slots[str(slots)] = {
      "calls": sum(work.calls for work in works) / len(found),
      "steps": steps / len(found),
      "live_slots": sum(work.tokens for work in works) / steps,
    }
  return by_slots


def _parts(found: Sequence[forecast.SimulatedStep]) -> dict[str, list[float]]:
  """Returns times and counts that make up each step."""
  return {
    "prefill_s": [step.sampled.prefill_s for step in found],
    "decode_s": [step.sampled.decode_s for step in found],
    "host_s": [step.sampled.host_s for step in found],
    "decode_calls": [step.sampled.calls for step in found],
    "decode_steps": [step.sampled.steps for step in found],
    "slots_busy": [step.sampled.busy for step in found],
    "params_s": [step.params_s for step in found],
    "rows": [step.rows for step in found],
    "micro_batches": [step.micro_batches for step in found],
  }


def _plain(values: Sequence[float], window: int = 1) -> dict[str, float]:
  """Returns the spread of some values, for JSON."""
  return dataclasses.asdict(spread(values, window))


def _phases_s(step: DrawnStep, rules: Rules, costs: SamplerCosts) -> float:
  """Returns the seconds of sampling one phase after another."""
  return sum(
    sampler_forecast.sample(phase, rules, costs).seconds
    for phase in step.phases
  )


def _around(staleness: int) -> int:
  """Returns the number of untimed steps before and after those timed.

  The first ones fill the slots, and the last ones lack successors.
  """
  return 2 * staleness + 1


def ahead(
  steps: Sequence[Sequence[PromptLoad]],
  staleness: int,
  rules: Rules,
  costs: SamplerCosts,
) -> list[float]:
  """Returns the sampling seconds of each timed step when sampling ahead.

  Args:
    steps: the prompts of consecutive steps: `staleness + 1` untimed ones, the
      timed ones, and `staleness` untimed ones.
    staleness: number of steps that are sampled ahead.
    rules: the scheduler's settings.
    costs: the costs of the sampler's device calls.
  """
  ends = sampler_forecast.sample_steps(steps, staleness, rules, costs).step_ends
  return [
    ends[index] - ends[index - 1]
    for index in range(staleness + 1, len(steps) - staleness)
  ]
