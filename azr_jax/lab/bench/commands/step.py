"""Measures a training step: sampling responses and one update on them.

The keys sample_s, update_s and step_s are the seconds of the fastest step.
"""

import argparse
from typing import Any

from azr_jax.lab.bench import device
from azr_jax.lab.bench.commands import decoder as decoder_lib
from azr_jax.lab.bench.commands import sampler as sampler_command
from azr_jax.lab.bench.commands import update as update_command
from azr_jax.lab.bench.workload import UpdateWorkload


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder, the sampler and the update."""
  decoder_lib.add_decoder_flags(parser)
  decoder_lib.add_sampling_flags(parser)
  decoder_lib.add_update_flags(parser)


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Runs steps and returns the seconds of the fastest one."""
  decoder = decoder_lib.Decoder(flags)
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
