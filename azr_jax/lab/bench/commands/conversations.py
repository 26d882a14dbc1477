"""Measures how much of the scripts' time a rollout of conversations hides.

A conversation consists of responses with scripts in between, which return
immediately or sleep. The keys:

  slowdown     seconds with sleeping scripts, divided by seconds with instant
                 ones
  slots_decoding, awaiting  fractions of the slots that decode and that wait for
                 a script, over the device calls
  device_idle_s  seconds in which all conversations waited for scripts
  slept_s        total sleep of all scripts
"""

import argparse
from typing import Any

from azr_jax.executor import Executor
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.lab.bench import conversations, device
from azr_jax.lab.bench.commands import decoder as decoder_lib
from azr_jax.rollout.settings import SamplerSettings

MEMORY_MB = 512


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder, the slots, the workload and the scripts."""
  decoder_lib.add_decoder_flags(parser)
  decoder_lib.add_slot_flags(parser)
  add = parser.add_argument
  add("--conversations", type=int, default=64, help="number of conversations")
  add("--calls", type=int, default=3, help="scripts per conversation")
  add(
    "--response_tokens",
    type=int,
    default=64,
    help="tokens of the longest response",
  )
  add(
    "--output_tokens", type=int, default=16, help="tokens of each tool output"
  )
  add("--sleep_s", type=float, default=0.5, help="seconds each script sleeps")
  add("--workers", type=int, default=64, help="scripts that run concurrently")
  add("--timeout_s", type=float, default=30.0, help="time limit of a script, s")
  # One slot per conversation, because it keeps its slot while its script runs.
  parser.set_defaults(slots=64, prompt_tokens=64)


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Alternates rollouts with instant and with sleeping scripts."""
  work = conversations.ConversationWorkload(
    flags.conversations,
    flags.prompt_tokens,
    flags.calls,
    flags.response_tokens,
    flags.output_tokens,
  )
  settings = SamplerSettings(
    slots=flags.slots,
    prompt_buckets=(flags.prompt_tokens,),
    max_tokens=work.max_tokens,
    prefill_tokens=flags.prefill_tokens,
    decode_chunk=flags.decode_chunk,
    page_size=flags.page_size,
    extend_chunk=flags.output_tokens,
    stop_strings=(),
  )
  # Raises for values out of range before the model is loaded.
  limits = ExecutorSettings(
    workers=flags.workers, timeout_s=flags.timeout_s, memory_mb=MEMORY_MB
  )
  machine = device.machine()
  decoder = decoder_lib.Decoder(flags)
  runner = conversations.ConversationRunner(
    decoder.source,
    decoder.params,
    decoder.model,
    decoder.mesh,
    decoder_lib.RULES,
    work,
    settings,
  )
  with Executor(
    limits.workers, timeout_s=limits.timeout_s, memory_mb=limits.memory_mb
  ) as executor:
    return {"machine": machine} | conversations.report(
      runner, executor, flags.sleep_s, flags.repeats
    )
