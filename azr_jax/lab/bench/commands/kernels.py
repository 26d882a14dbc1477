"""Measures errors and seconds of this machine's attention kernels.

Each kernel and plain XLA get the same random inputs, with the heads of --model;
the reference is plain XLA in float32. Run it once on an accelerator that is new
to you. The keys, for `training` (packed rows, forward and backward) and
`decoding` (one layer, to cached tokens; by tokens of a slot, above 1 with
drafts, which have at most as many slots as `rollout.speculation.max_slots`):

  kernel              which one a run would take here (or --attention); where
                      that is plain XLA (xla; of decoding, loop), there is
                      nothing to compare it with
  ..._error           norm of the difference from the reference, divided by the
                      reference's norm
  ..._worst           the largest one of a token and head, by its own norm and a
                      tenth of the mean one
  ..._plain           the same of plain XLA in --dtype
  wrong               arrays whose worst error is more than three times that of
                      plain XLA, and 1e-4
  seconds, plain_seconds, speedup  of one call, and their ratio
  rows, cached_tokens  slots, and the tokens of all of them
  bandwidth_fraction  bytes of the cached tokens over the device's bandwidth,
                      divided by the seconds
"""

import argparse
import random
from typing import Any

import jax
import numpy as np

from azr_jax.lab.bench import device, kernel_errors
from azr_jax.lab.compile import lengths as lengths_lib
from azr_jax.models import attention, load
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.settings import SpeculationSettings


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the heads, the packed rows and the cache."""
  add = parser.add_argument
  add("--model", default="random:qwen2.5-7b", help="whose heads attend")
  add("--cache_dir", default="~/.cache/azr_jax", help="downloaded models")
  add("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
  add("--attention", default="auto", choices=attention.NAMES)
  add("--rows", type=int, default=4, help="packed rows")
  add(
    "--row_length",
    type=int,
    default=2048,
    help="tokens of a packed row; plain XLA's memory grows with the square",
  )
  add("--sequences", type=int, default=6, help="sequences of a packed row")
  add("--slots", type=int, default=256, help="rows that decode")
  add("--page_size", type=int, default=512, help="as `rollout.page_size`")
  add(
    "--cached",
    default="lognormal:1024:1:8096",
    help="cached tokens of a slot: equal:TOKENS or lognormal:MEAN:SIGMA:MAX",
  )
  add("--tokens", type=int, nargs="+", default=[1, 4], help="of a slot at once")
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


def _segments(rows: int, row_length: int, sequences: int) -> np.ndarray:
  """Returns rows of sequences of random lengths, and padding at the end."""
  rng = np.random.default_rng(0)
  ends = rng.integers(1, row_length + 1, (rows, sequences))
  ends.sort(axis=1)
  # Every token belongs to as many sequences as have ended before it.
  tokens = np.arange(row_length)
  ended = (tokens[None, :, None] >= ends[:, None]).sum(-1)
  return np.where(ended < sequences, ended + 1, 0).astype(np.int32)
