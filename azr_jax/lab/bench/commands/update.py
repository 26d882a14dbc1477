"""Measures trained tokens per second.

With --baseline, runs alternate with another library that does the same work
with the same weights. The keys:

  tokens_per_s          trained tokens per second, without padding
  speedup               median ratio of the rate to the baseline's
  flops_roofline_fraction  minimum time of the update at the device's peak
                        FLOPs, divided by the measured time
  layers, remat         how the update runs the layers, and what it
                        recomputes; see `model.layers` and `model.remat`
  program_gib           peak memory of the compiled update
  peak_process_gib, peak_device_gib  peak memory of this process and the device
"""

import argparse
from typing import Any

from azr_jax.lab.bench import device, updating
from azr_jax.lab.bench.commands import decoder as decoder_lib
from azr_jax.lab.bench.workload import UpdateWorkload
from azr_jax.models import transformer


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder, baseline, update and workload."""
  decoder_lib.add_decoder_flags(parser)
  decoder_lib.add_baseline_flag(parser)
  add_workload_flags(parser)


def add_workload_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the update and its workload."""
  decoder_lib.add_update_flags(parser)
  add = parser.add_argument
  add("--ragged", action="store_true", help="draw random lengths")
  add("--sequences", type=int, default=8, help="number of sequences")
  add("--length", type=int, default=256, help="tokens of the longest sequence")


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Runs updates and returns rates and times, with the baseline's."""
  metrics: dict[str, Any] = {"machine": device.machine()}
  decoder = decoder_lib.Decoder(flags, flags.baseline)
  work = UpdateWorkload(flags.sequences, flags.length, flags.ragged)
  baseline = None
  if decoder.baseline is not None:
    baseline = decoder_lib.import_baseline().updater(
      decoder.baseline, work, decoder.source.config.vocab_size
    )
  metrics |= {
    "layers": transformer.UNROLLED
    if decoder.model.inlined
    else transformer.SCAN,
    "remat": decoder.model.remat,
  }
  return metrics | updating.report(
    runner(flags, decoder, work),
    decoder.source.config,
    work,
    baseline,
    flags.repeats,
  )


def runner(
  flags: argparse.Namespace,
  decoder: decoder_lib.Decoder,
  workload: UpdateWorkload,
) -> updating.UpdateRunner:
  """Builds and compiles the update, which donates the decoder's parameters."""
  return updating.UpdateRunner(
    decoder.params,
    decoder.model,
    decoder.mesh,
    decoder_lib.RULES,
    workload,
    flags.micro_rows,
    flags.chunk_tokens,
  )
