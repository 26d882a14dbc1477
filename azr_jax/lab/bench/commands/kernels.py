"""Measures errors and seconds of this machine's attention kernels.

Each kernel and plain XLA get the same random inputs, with the heads of --model.
The reference is plain XLA in float32. Run this once on any accelerator that you
have not used before. The keys, for `training` (packed rows, forward and
backward) and `decoding` (one layer, to cached tokens; by tokens per slot, above
1 with drafts, where at most `rollout.speculation.max_slots` slots are used):

  kernel              the kernel that a run would use here (or --attention); if
                      that is plain XLA ("xla", or "loop" in decoding), there is
                      nothing to compare
  ..._error           norm of the difference from the reference, divided by the
                      reference's norm
  ..._worst           the largest error of a token and head, relative to its
                      norm plus a tenth of the mean norm
  ..._plain           the same for plain XLA in --dtype
  wrong               arrays whose worst error is more than three times that of
                      plain XLA, plus 1e-4
  seconds, plain_seconds, speedup  seconds of one call, and their ratio
  rows, cached_tokens  number of slots, and their total tokens
  bandwidth_fraction  bytes of the cached tokens over the device's bandwidth,
                      divided by the seconds
"""

import argparse
import random
from typing import Any

import jax
import numpy as np
from jaxtyping import Int32

from azr_jax.lab.bench import device, kernel_errors
from azr_jax.lab.compile import lengths as lengths_lib
from azr_jax.models import attention, load
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.settings import SpeculationSettings


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the heads, the packed rows and the cache."""
  add = parser.add_argument
  add("--model", default="random:qwen2.5-7b", help="model with these heads")
  add(
    "--cache_dir", default="~/.cache/azr_jax", help="folder of model downloads"
  )
  add("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
  add("--attention", default="auto", choices=attention.NAMES)
  add("--rows", type=int, default=4, help="number of packed rows")
  add(
    "--row_length",
    type=int,
    default=2048,
    help="tokens of a packed row; plain XLA's memory grows with the square",
  )
  add("--sequences", type=int, default=6, help="sequences per packed row")
  add("--slots", type=int, default=256, help="number of decoding rows")
  add("--page_size", type=int, default=512, help="see `rollout.page_size`")
  add(
    "--cached",
    default="lognormal:1024:1:8096",
    help="cached tokens per slot: equal:TOKENS or lognormal:MEAN:SIGMA:MAX",
  )
  add(
    "--tokens",
    type=int,
    nargs="+",
    default=[1, 4],
    help="new tokens per slot and call; above 1 with drafts",
  )
  add("--repeats", type=int, default=5, help="timed calls of each")


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Compares the kernels with plain XLA on the first device."""
  config = load.resolve(flags.model, flags.cache_dir).config
  mesh = mesh_lib.make_mesh(
    {"data": 1, "fsdp": 1, "tensor": 1}, jax.devices()[:1]
  )
  cached = lengths_lib.parse(flags.cached, config.max_positions).draw(
    flags.slots, random.Random(0)
  )
  machine, peak_rates = device.machine(), device.peak_rates()
  drafting = SpeculationSettings().max_slots
  return {
    "machine": machine,
    "peak_rates": peak_rates,
    "training": kernel_errors.training(
      mesh,
      config,
      flags.dtype,
      _segments(flags.rows, flags.row_length, flags.sequences),
      flags.attention,
      flags.repeats,
    ),
    "decoding": {
      str(tokens): kernel_errors.decoding(
        mesh,
        config,
        flags.dtype,
        cached if tokens == 1 else cached[:drafting],
        flags.page_size,
        tokens,
        peak_rates["bandwidth"],
        flags.repeats,
      )
      for tokens in flags.tokens
    },
  }


def _segments(
  rows: int, row_length: int, sequences: int
) -> Int32[np.ndarray, "B S"]:
  """Returns rows of sequences of random lengths, padded at the end."""
  rng = np.random.default_rng(0)
  ends = rng.integers(1, row_length + 1, (rows, sequences))
  ends.sort(axis=1)
  # A token belongs to sequence i if i sequences of its row ended before it.
  tokens = np.arange(row_length)
  ended = (tokens[None, :, None] >= ends[:, None]).sum(-1)
  return np.where(ended < sequences, ended + 1, 0).astype(np.int32)
