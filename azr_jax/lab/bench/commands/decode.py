"""Measures seconds per decoded token, with all slots busy and no prefill.

The keys:

  token_s                seconds for one token in every slot
  decode_roofline_fraction  minimum time at the device's bandwidth, divided by
                         the measured time
  reads_live_pages       whether attention's kernel reads only live pages
"""

import argparse
from typing import Any

from azr_jax.lab.bench import decoding, device
from azr_jax.lab.bench.commands import decoder as decoder_lib
from azr_jax.rollout.build import build_engine
from azr_jax.rollout.settings import PROJECTIONS, XLA, SamplerSettings


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder, of the slots and of the projection."""
  decoder_lib.add_decoder_flags(parser)
  decoder_lib.add_slot_flags(parser)
  parser.add_argument(
    "--projection",
    choices=PROJECTIONS,
    default=XLA,
    help="as the setting rollout.projection",
  )


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Decodes and returns the seconds of a token."""
  machine = device.machine()
  decoder = decoder_lib.Decoder(flags)
  settings = SamplerSettings(
    slots=flags.slots,
    prompt_buckets=(flags.prompt_tokens,),
    max_tokens=flags.decode_chunk,
    prefill_tokens=flags.prefill_tokens,
    decode_chunk=flags.decode_chunk,
    page_size=flags.page_size,
    projection=flags.projection,
    stop_strings=(),
  )
  engine = build_engine(
    decoder.model, decoder.mesh, decoder_lib.RULES, settings
  )
  params = engine.compute_params(decoder.params)
  del decoder.params  # Of large models, only one copy fits beside the cache.
  return {"machine": machine} | decoding.report(
    engine, params, settings.dtypes(flags.dtype), flags.repeats
  )
