"""Measures a training step: sampling responses and one update on them.

The keys sample_s, update_s and step_s are the seconds of the fastest step.

With --lengths, sampling alone is simulated for steps of self-play with
completions of drawn lengths: --prompts proposals, --samples rollouts of each,
one solution of each. It is simulated in phases that wait for each other, as one
stream, and with the next step begun ahead, in turn. For each, `calls` of the
decode loop, its `iterations`, `live_fraction` of the slots in them, `seconds`;
and how many times fewer they are than in phases.
"""

import argparse
from typing import Any

from azr_jax.lab.bench import device, rollout_steps
from azr_jax.lab.bench.commands import decoder as decoder_lib
from azr_jax.lab.bench.commands import sampler as sampler_command
from azr_jax.lab.bench.commands import update as update_command
from azr_jax.lab.bench.workload import UpdateWorkload
from azr_jax.lab.compile import lengths as lengths_lib


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder, the sampler and the update."""
  decoder_lib.add_decoder_flags(parser)
  decoder_lib.add_sampling_flags(parser)
  decoder_lib.add_update_flags(parser)
  parser.add_argument(
    "--lengths",
    help="of completions: equal:TOKENS, lognormal:MEAN:SIGMA:MAX or run:FOLDER",
  )
  parser.add_argument(
    "--steps",
    type=int,
    default=3,
    help="steps of each schedule, with --lengths",
  )


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Runs steps and returns the seconds of the fastest one."""
  decoder = decoder_lib.Decoder(flags)
  if flags.lengths:
    return _measure_schedules(flags, decoder)
  sequences = UpdateWorkload(
    flags.prompts * flags.samples,
    flags.prompt_tokens + flags.new_tokens,
    flags.ragged,
  )
  sampler = sampler_command.runner(flags, decoder)
  updater = update_command.runner(flags, decoder, sequences)
  sampler.run()
  updater.run()
  times = [(sampler.run(), updater.run()) for _ in range(flags.repeats)]
  fastest = min(times, key=sum)
  return {
    "machine": device.machine(),
    "sample_s": fastest[0],
    "update_s": fastest[1],
    "step_s": sum(fastest),
  }


def _measure_schedules(
  flags: argparse.Namespace, decoder: decoder_lib.Decoder
) -> dict[str, Any]:
  """Simulates steps in each schedule, `repeats` times in turn."""
  work = rollout_steps.Workload(
    flags.prompts,
    flags.samples,
    1.0,
    flags.prompt_tokens,
    lengths_lib.parse(flags.lengths, flags.new_tokens),
    flags.steps,
  )
  runner = sampler_command.runner(flags, decoder)
  found: dict[str, dict[str, float]] = {}
  for _ in range(flags.repeats):
    for schedule in rollout_steps.SCHEDULES:
      simulated = rollout_steps.simulate(
        runner.sampler, runner.tokenizer, decoder.params, work, schedule
      )
      best = found.setdefault(schedule, simulated)
      best["seconds"] = min(best["seconds"], simulated["seconds"])
  phases = found[rollout_steps.PHASES]
  ratios = {
    schedule: {
      f"times_fewer_{name}": phases[name] / found[schedule][name]
      for name in ("calls", "iterations", "seconds")
    }
    for schedule in found
  }
  return {
    "machine": device.machine(),
    **{schedule: found[schedule] | ratios[schedule] for schedule in found},
  }
