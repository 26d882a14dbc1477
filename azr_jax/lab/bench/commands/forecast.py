"""Forecasts the seconds of a training step, and measures them.

The device calls of prefill, decode and update are measured one by one. From
these costs and the scheduler's rules, a step is forecast
(`lab/compile/forecast.py`), and then measured with completions of the same
lengths. The keys:

  costs     seconds of the device calls
  LENGTHS   forecast and measured seconds of sampling, of the update and of
            both, and `ratio`, the forecast step divided by the measured one
"""

import argparse
import dataclasses
import random
from typing import Any

from azr_jax.lab.bench import device, measured_costs
from azr_jax.lab.bench.commands import decoder as decoder_lib
from azr_jax.lab.bench.commands import sampler as sampler_command
from azr_jax.lab.bench.commands import update as update_command
from azr_jax.lab.bench.workload import UpdateWorkload
from azr_jax.lab.compile import forecast
from azr_jax.lab.compile import lengths as lengths_lib
from azr_jax.lab.compile.sampler_forecast import PromptLoad


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder, sampler and update, and the lengths."""
  decoder_lib.add_decoder_flags(parser)
  decoder_lib.add_sampling_flags(parser)
  decoder_lib.add_update_flags(parser)
  parser.add_argument(
    "--lengths",
    nargs="+",
    default=["equal:64", "lognormal:48:0.8:128"],
    help="completion lengths: equal:TOKENS, lognormal:MEAN:SIGMA:MAX or "
    "run:FOLDER",
  )
  parser.set_defaults(prompts=24)


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Measures costs, then forecasts and measures a step per distribution."""
  drawn = {
    name: lengths_lib.parse(name, flags.new_tokens).draw(
      flags.prompts, random.Random(0)
    )
    for name in flags.lengths
  }
  machine = device.machine()
  decoder = decoder_lib.Decoder(flags)
  sampler = sampler_command.runner(flags, decoder)
  # The update is compiled for completions of the maximum length, which fit any
  # distribution of lengths.
  most = UpdateWorkload(
    flags.prompts * flags.samples,
    flags.prompt_tokens + flags.new_tokens,
    ragged=False,
  )
  updater = update_command.runner(flags, decoder, most)
  costs = sampler.costs(flags.repeats)
  learner_costs = measured_costs.learner_costs(updater, flags.repeats)
  rules = forecast.LearnerRules(most.length, flags.micro_rows)
  metrics: dict[str, Any] = {
    "machine": machine,
    "costs": _plain(dataclasses.asdict(costs))
    | dataclasses.asdict(learner_costs),
  }
  for name, counts in drawn.items():
    trained = [flags.prompt_tokens + count for count in counts] * flags.samples
    predicted = forecast.step(
      [
        PromptLoad(flags.prompt_tokens, (count,) * flags.samples)
        for count in counts
      ],
      [tokens + 1 for tokens in trained],
      sampler.rules(),
      costs,
      rules,
      learner_costs,
    )
    updater.load(trained)
    runs = [(sampler.run(counts), updater.run()) for _ in range(flags.repeats)]
    sample_s, update_s = (min(seconds) for seconds in zip(*runs, strict=True))
    metrics[name] = {
      "forecast_sample_s": predicted.sampled.seconds,
      "sample_s": sample_s,
      "forecast_update_s": predicted.update_s,
      "update_s": update_s,
      "forecast_step_s": predicted.step_s,
      "step_s": sample_s + update_s,
      "ratio": predicted.step_s / (sample_s + update_s),
      "slots_busy": predicted.sampled.busy,
      "decode_calls": predicted.sampled.calls,
      "micro_batches": predicted.micro_batches,
    }
  return metrics


def _plain(value: Any) -> Any:
  """Returns a dict with text keys, and lists of rounded numbers."""
  if isinstance(value, dict):
    return {str(name): _plain(inner) for name, inner in value.items()}
  if isinstance(value, tuple):
    return [float(f"{number:.4g}") for number in value]
  return value
