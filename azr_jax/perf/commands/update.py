"""Measures trained tokens per second.

With --peer both sides do the same work on the same weights, in turn. Keys:

  tokens_per_s          trained tokens per second, without padding
  of_peer               median ratio of our rate to the peer's; above 1, ours
                        is faster
  flops_roofline_share  the time that the update needs at least at the device's
                        matrix rate, divided by the measured time
  program_gib           memory that the compiled update holds at once
  peak_process_gib, peak_device_gib  peak memory of this process and the device
"""

import argparse
from typing import Any

from azr_jax.perf import device, updating
from azr_jax.perf.commands import decoder as decoder_lib
from azr_jax.perf.workload import UpdateWorkload


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder, the peer, the update and the workload."""
  decoder_lib.add_decoder_flags(parser)
  decoder_lib.add_peer_flag(parser)
  decoder_lib.add_update_flags(parser)
  add = parser.add_argument
  add("--ragged", action="store_true", help="draw the lengths at random")
  add("--sequences", type=int, default=8, help="number of sequences")
  add("--length", type=int, default=256, help="tokens of the longest sequence")


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Updates on the workload, in turn with the peer; returns rates and times."""
  metrics: dict[str, Any] = {"machine": device.machine()}
  decoder = decoder_lib.Decoder(flags, flags.peer)
  work = UpdateWorkload(flags.sequences, flags.length, flags.ragged)
  peer = None
  if decoder.peer is not None:
    peer = decoder_lib.import_peer().updater(
      decoder.peer, work, decoder.source.config.vocab_size
    )
  return metrics | updating.report(
    runner(flags, decoder, work),
    decoder.source.config,
    work,
    peer,
    flags.repeats,
  )


def runner(
  flags: argparse.Namespace,
  decoder: decoder_lib.Decoder,
  workload: UpdateWorkload,
) -> updating.Runner:
  """Returns the compiled update; it uses up the decoder's parameters."""
  return updating.Runner(
    decoder.params,
    decoder.model,
    decoder.mesh,
    decoder_lib.RULES,
    workload,
    flags.micro_rows,
    flags.chunk_tokens,
  )
