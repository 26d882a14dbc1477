"""Measures decoded tokens per second against slots and cached tokens.

All slots are busy, and prefill is not measured. Draws both curves to --out. The
keys tokens_per_s_by_... have the same numbers.
"""

import argparse
import pathlib
from typing import Any

import jax

from azr_jax.lab.bench import decoding, device
from azr_jax.lab.bench.commands import decoder as decoder_lib
from azr_jax.rollout.build import build_engine
from azr_jax.rollout.settings import SamplerSettings


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder, the sampler and the two curves."""
  decoder_lib.add_decoder_flags(parser)
  decoder_lib.add_sampling_flags(parser)
  add = parser.add_argument
  add("--out", default="sampler_rate.png", help="file to write the plot to")
  add("--sweep_slots", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
  add(
    "--sweep_lengths",
    type=int,
    nargs="+",
    default=[128, 256, 512, 1024, 2048, 4096],
  )


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Measures the decode rate along both axes and draws the plot."""
  # Imported here, because matplotlib is an optional dependency.
  from azr_jax.lab.bench import sweep

  decoder = decoder_lib.Decoder(flags)

  def decode_rate(slots: int, cached_tokens: int) -> float:
    settings = SamplerSettings(
      slots=slots,
      prompt_buckets=(cached_tokens,),
      max_tokens=flags.decode_chunk,
      prefill_tokens=flags.prefill_tokens,
      decode_chunk=flags.decode_chunk,
      page_size=flags.page_size,
      stop_strings=(),
      top_p=flags.top_p,
    )
    engine = build_engine(
      decoder.model, decoder.mesh, decoder_lib.RULES, settings
    )
    params = engine.compute_params(decoder.params)
    seconds, _ = decoding.call_seconds(engine, params, flags.repeats)
    return slots * flags.decode_chunk / seconds

  rates = sweep.sweep(
    decode_rate,
    flags.sweep_slots,
    flags.sweep_lengths,
    at_slots=flags.slots,
    at_length=flags.prompt_tokens,
  )
  machine = device.machine()
  sweep.plot(
    rates,
    f"{flags.model}, {flags.dtype}, {jax.devices()[0].device_kind}",
    pathlib.Path(flags.out),
  )
  return {
    "machine": machine,
    "model": flags.model,
    "dtype": flags.dtype,
    f"tokens_per_s_by_slots_at_{flags.prompt_tokens}_cached": rates["slots"],
    f"tokens_per_s_by_cached_at_{flags.slots}_slots": rates["length"],
  }
