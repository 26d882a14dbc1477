"""Measures decoding alone: all slots are busy, and nothing is prefilled."""

import time
from typing import Any

import jax
import numpy as np

from azr_jax.lab.bench import device, measured_costs
from azr_jax.models.config import ModelConfig
from azr_jax.models.operations import SamplingDtypes, decode_bytes
from azr_jax.rollout.engine import Engine
from azr_jax.types import Params


def call_seconds(
  engine: Engine, params: Params, repeats: int
) -> tuple[float, float]:
  """Measures a call of the decode loop.

  Each slot has as many cached tokens as the largest prompt bucket, all zero,
  because values do not change the time.

  Args:
    engine: the engine, with its slots, lengths and tokens per call.
    params: parameters from `engine.compute_params`.
    repeats: timed calls.

  Returns:
    The seconds of the fastest call, and of compilation.
  """
  shapes, slots = engine.shapes, engine.shapes.slot_counts[0]
  changes = measured_costs.busy_slots(
    engine, slots, shapes.prompt_buckets[-1], shapes.decode_chunk
  )
  pool, state = engine.init_pool(), engine.init_slots(slots)
  inputs = changes, np.zeros(0, np.int32), np.int32(0)
  start = time.perf_counter()
  decode = engine.decode.lower(params, pool, state, *inputs).compile()
  compile_s = time.perf_counter() - start
  seconds = []
  for _ in range(repeats + 1):  # The first call is slower.
    start = time.perf_counter()
    pool, state, output = decode(params, pool, state, *inputs)
    num_generated = jax.device_get(output.num_generated)
    assert int(num_generated.sum()) == slots * shapes.decode_chunk
    seconds.append(time.perf_counter() - start)
  return min(seconds[1:]), compile_s


def min_bytes(
  config: ModelConfig,
  dtypes: SamplingDtypes,
  slots: int,
  cached_tokens: int,
  new_tokens: int,
) -> float:
  """Returns the minimum number of bytes that decoding equal slots reads.

  Args:
    config: the decoder's config.
    dtypes: dtypes of weights and cache.
    slots: sequences decoded together.
    cached_tokens: tokens of each at the start.
    new_tokens: tokens to decode of each.
  """
  entries = new_tokens * cached_tokens + new_tokens * (new_tokens - 1) / 2
  return decode_bytes(config, dtypes, new_tokens, slots * entries)


def report(
  engine: Engine, params: Params, dtypes: SamplingDtypes, repeats: int
) -> dict[str, Any]:
  """Measures an engine's decoding, and compares it with the bandwidth.

  Args:
    params: parameters from `engine.compute_params`.
    dtypes: the dtypes that decoding reads.
    repeats: timed calls.
  """
  shapes, slots = engine.shapes, engine.shapes.slot_counts[0]
  seconds, compile_s = call_seconds(engine, params, repeats)
  peak_rates = device.peak_rates()
  tokens = shapes.decode_chunk
  read = min_bytes(
    engine.model.config, dtypes, slots, shapes.prompt_buckets[-1], tokens
  )
  return {
    "token_s": seconds / tokens,
    "tokens_per_s": slots * tokens / seconds,
    "compile_s": compile_s,
    "reads_live_pages": engine.lists_pages,
    "peak_rates": peak_rates,
    "decode_roofline_fraction": read / peak_rates["bandwidth"] / seconds,
  }
