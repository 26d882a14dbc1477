"""Measures sampled tokens per second.

With --baseline, runs alternate with another library that does the same work
with the same weights. The keys:

  tokens_per_s           requested tokens per second, prefill included
  speedup                median ratio of the rate to the baseline's
  decode_roofline_fraction  minimum time of decoding at the device's bandwidth,
                         divided by the measured time
  peak_process_gib, peak_device_gib  peak memory of this process and the device
"""

import argparse
from typing import Any

from azr_jax.lab.bench import device, sampling
from azr_jax.lab.bench.commands import decoder as decoder_lib
from azr_jax.lab.bench.workload import SamplerWorkload
from azr_jax.rollout.settings import SamplerSettings


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder, the baseline and the workload."""
  decoder_lib.add_decoder_flags(parser)
  decoder_lib.add_baseline_flag(parser)
  decoder_lib.add_sampling_flags(parser)


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Samples the workload and returns rates and times, with the baseline's."""
  metrics: dict[str, Any] = {"machine": device.machine()}
  decoder = decoder_lib.Decoder(flags, flags.baseline)
  work = workload(flags)
  baseline = None
  if decoder.baseline is not None:
    baseline = decoder_lib.import_baseline().sampler(
      decoder.baseline, work, decoder.source.config.vocab_size
    )
  built = runner(flags, decoder)
  return metrics | sampling.report(
    built,
    decoder.source.config,
    work,
    built.dtypes,
    baseline,
    flags.repeats,
  )


def workload(flags: argparse.Namespace) -> SamplerWorkload:
  """Returns the workload that the flags describe."""
  return SamplerWorkload(
    prompts=flags.prompts,
    samples=flags.samples,
    prompt_tokens=flags.prompt_tokens,
    new_tokens=flags.new_tokens,
    slots=flags.slots,
    ragged=flags.ragged,
    top_p=flags.top_p,
  )


def runner(
  flags: argparse.Namespace, decoder: decoder_lib.Decoder
) -> sampling.SamplerRunner:
  """Builds and compiles the sampler."""
  work = workload(flags)
  settings = SamplerSettings(
    slots=work.slots,
    prompt_buckets=(work.prompt_tokens,),
    max_tokens=work.new_tokens,
    prefill_tokens=flags.prefill_tokens,
    decode_chunk=flags.decode_chunk,
    max_staleness=1 if getattr(flags, "lengths", None) else 0,
    page_size=flags.page_size,
    layers=flags.layers,
    quantization=flags.quantization,
    kv_cache_dtype=flags.kv_cache_dtype,
    stop_strings=(),
    top_p=work.top_p,
  )
  return sampling.SamplerRunner(
    decoder.source,
    decoder.params,
    decoder.model,
    decoder.mesh,
    decoder_lib.RULES,
    work,
    settings,
  )
