"""Compares `forward_backward` and `optim_step` with the update of `train`.

Both train the same model on the same sequences, in turn. The keys:

  verbs_s, update_s     median seconds of both
  ratio                 median of verbs_s / update_s
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp

from azr_jax.lab.bench import device
from azr_jax.lab.bench import verbs as verbs_lib
from azr_jax.lab.bench.commands import decoder as decoder_lib
from azr_jax.lab.bench.commands import update
from azr_jax.lab.bench.workload import UpdateWorkload


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder, update and workload."""
  decoder_lib.add_decoder_flags(parser)
  update.add_workload_flags(parser)


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Runs both and returns their times."""
  machine = device.machine()
  decoder = decoder_lib.Decoder(flags)
  work = UpdateWorkload(flags.sequences, flags.length, flags.ragged)
  runner = verbs_lib.VerbsRunner(
    jax.tree.map(jnp.copy, decoder.params),
    decoder.model,
    decoder.mesh,
    decoder_lib.RULES,
    work,
    micro_rows=flags.micro_rows,
    chunk_tokens=flags.chunk_tokens,
    sequences_per_row=flags.sequences_per_row,
  )
  found = verbs_lib.report(
    runner, update.runner(flags, decoder, work), work, flags.repeats
  )
  return {"machine": machine, "remat": decoder.model.remat} | found
