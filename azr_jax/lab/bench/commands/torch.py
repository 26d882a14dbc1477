"""Times the work of `update` or `decode` under torch.compile.

Weights are random, in float32 for updates, which compute in bfloat16. The keys:

  step_s, token_s  seconds of the median update, or per token of all slots
  compile_s        extra seconds of the first run
  recomputes       whether the backward pass recomputes each layer, because
                   memory is too small to keep activations
"""

import argparse
import contextlib
import dataclasses
import statistics
from typing import Any

from azr_jax.lab.bench import device
from azr_jax.models import load


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the decoder, the update and the slots."""
  add = parser.add_argument
  add("work", choices=("update", "decode"))
  add("--model", default="random:qwen2.5-1.5b", help="model with this shape")
  add(
    "--cache_dir", default="~/.cache/azr_jax", help="folder of model downloads"
  )
  add("--num_layers", type=int, default=0, help="layers; 0: all")
  add("--sequences", type=int, default=16, help="number of sequences")
  add("--length", type=int, default=1024, help="tokens of each sequence")
  add("--chunk_tokens", type=int, default=2048, help="as in `update`")
  add("--slots", type=int, default=64, help="sequences decoded together")
  add("--prompt_tokens", type=int, default=512, help="cached tokens per slot")
  add("--decode_chunk", type=int, default=128, help="new tokens per slot")
  add("--repeats", type=int, default=5, help="timed runs")


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Runs PyTorch and returns the seconds."""
  # Imported here, because torch is an optional dependency.
  import torch

  from azr_jax.lab.bench import torch_decoder

  machine = device.machine()
  config = load.config_of(flags.model, flags.cache_dir)
  if flags.num_layers:
    config = dataclasses.replace(config, num_layers=flags.num_layers)

  def times(recomputes: bool) -> list[float]:
    if flags.work == "decode":
      decoder = torch_decoder.make(config, torch.bfloat16)
      sizes = flags.slots, flags.prompt_tokens, flags.decode_chunk
      run = torch_decoder.generator(decoder, *sizes)
    else:
      decoder = torch_decoder.make(config, torch.float32)
      sizes = flags.sequences, flags.length, flags.chunk_tokens
      run = torch_decoder.updater(decoder, *sizes, recomputes=recomputes)
    return [run() for _ in range(flags.repeats + 2)]

  seconds: list[float] = []
  with contextlib.suppress(torch.cuda.OutOfMemoryError):
    seconds = times(recomputes=False)
  recomputes = not seconds
  if recomputes:
    torch.cuda.empty_cache()
    seconds = times(recomputes)
  first, _, *rest = seconds
  found: dict[str, Any] = {"machine": machine, "torch": torch.__version__}
  if torch.cuda.is_available():
    found["device"] = torch.cuda.get_device_name()
    found["peak_device_gib"] = torch.cuda.max_memory_allocated() / 2**30
  if flags.work == "decode":
    return found | {"token_s": min(rest) / flags.decode_chunk}
  median = statistics.median(rest)
  return found | {
    "step_s": median,
    "compile_s": max(0.0, first - median),
    "recomputes": recomputes,
  }
