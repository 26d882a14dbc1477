"""The costs of a step's device calls, measured on this machine.

Each call is timed by itself, with inputs of which all values are zero, because
values do not change the time. The fastest of several runs counts: other load on
the machine only slows a call down.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from azr_jax.perf import forecast, updating
from azr_jax.rollout.decode import DecodeState
from azr_jax.rollout.engine import Engine
from azr_jax.types import Params


def fastest(run: Callable[[], Any], repeats: int) -> float:
  """Returns the seconds of the fastest run; a first one is not counted."""
  jax.block_until_ready(run())
  seconds = []
  for _ in range(repeats):
    start = time.perf_counter()
    jax.block_until_ready(run())
    seconds.append(time.perf_counter() - start)
  return min(seconds)


def sampler_costs(
  engine: Engine, params: Params, repeats: int
) -> forecast.SamplerCosts:
  """Measures the sampler's device calls.

  Args:
    engine: whose programs are compiled here, if they are not yet.
    params: what `engine.compute_params` returned.
    repeats: runs of each call.
  """
  buckets = engine.settings.prompt_buckets
  decode = {
    slots: _decode_cost(engine, params, slots, repeats)
    for slots in engine.slot_counts
  }
  return forecast.SamplerCosts(
    prefill_s={b: _prefill_cost(engine, params, b, repeats) for b in buckets},
    insert_s=_insert_cost(engine, buckets[-1], repeats),
    decode=decode,
    compact_s=_compact_costs(engine, repeats),
    request_s=fastest(engine.init_decode_state, repeats),
  )


def _prefill_cost(
  engine: Engine, params: Params, bucket: int, repeats: int
) -> tuple[float, float]:
  """Returns the seconds of a call and of each chunk of the cache before it."""
  rows = engine.prefill_batch_size(bucket)
  size = engine.prefill_chunk_size(bucket)
  tokens = np.zeros((rows, size), np.int32)
  lengths = np.full(rows, bucket, np.int32)

  def seconds(start: int) -> float:
    def run() -> Any:
      state = engine.init_prefill_state(rows, bucket)
      return engine.prefill(params, state, tokens, np.int32(start), lengths)

    return fastest(run, repeats)

  first_s = seconds(0)
  last = bucket - size
  chunks = -(-last // engine.settings.cache_chunk)
  each_s = max(0.0, seconds(last) - first_s) / chunks if chunks else 0.0
  return first_s, each_s


def _insert_cost(
  engine: Engine, bucket: int, repeats: int
) -> tuple[float, float, float]:
  """Returns the seconds of a call, of each prompt, and of each slot."""
  rows = engine.prefill_batch_size(bucket)
  slots = engine.slot_counts[0]
  prompts = engine.init_prefill_state(rows, bucket)

  def seconds(num_prompts: int, num_slots: int) -> float:
    counts = np.zeros(rows, np.int32)
    counts[:num_prompts] = num_slots // num_prompts
    state = engine.init_decode_state()

    def run() -> Any:
      nonlocal state
      state = engine.insert(
        state,
        prompts,
        counts,
        np.arange(slots, dtype=np.int32),
        np.ones(slots, np.int32),
        np.zeros((slots, 2), np.int32),
        np.zeros((slots, 2), np.uint32),
      )
      return state

    return fastest(run, repeats)

  one_s, most = seconds(1, 1), min(rows, slots)
  slot_s = (seconds(1, slots) - one_s) / (slots - 1) if slots > 1 else 0.0
  slot_s = max(0.0, slot_s)
  prompt_s = 0.0
  if most > 1:
    prompt_s = (seconds(most, most) - one_s) / (most - 1) - slot_s
  prompt_s = max(0.0, prompt_s)
  return max(0.0, one_s - prompt_s - slot_s), prompt_s, slot_s


def _decode_cost(
  engine: Engine, params: Params, slots: int, repeats: int
) -> forecast.DecodeCost:
  """Returns the seconds of a call, of a token, and of a chunk per token.

  Calls of few and of many tokens tell what a call costs by itself, and short
  and long caches what a chunk costs.
  """
  settings = engine.settings
  steps, few = settings.decode_chunk, max(1, settings.decode_chunk // 4)
  longest = settings.prompt_buckets[-1] + settings.max_tokens
  most = max(1, longest // settings.cache_chunk)
  state = _of_slots(engine, slots)

  def seconds(tokens: int, chunks: int) -> float:
    def run() -> Any:
      nonlocal state
      state = state.replace(
        cache=state.cache.replace(
          length=jnp.full(slots, chunks * settings.cache_chunk, jnp.int32)
        ),
        max_new_tokens=state.num_tokens + tokens,
        done=jnp.zeros(slots, bool),
      )
      state, output = engine.decode(
        params, state, np.zeros(0, np.int32), np.zeros(slots, bool), np.int32(0)
      )
      return jax.device_get(output)

    return fastest(run, repeats)

  short_s = seconds(steps, 1)
  chunk_s = 0.0
  if most > 1:
    chunk_s = max(0.0, seconds(steps, most) - short_s) / (most - 1) / steps
  token_s = short_s / steps - chunk_s
  if steps > few:
    token_s = (short_s - seconds(few, 1)) / (steps - few) - chunk_s
  call_s = max(0.0, short_s - steps * (token_s + chunk_s))
  return forecast.DecodeCost(call_s, max(0.0, token_s), chunk_s)


def _of_slots(engine: Engine, slots: int) -> DecodeState:
  """Returns an empty state, compacted to a number of slots."""
  state = engine.init_decode_state()
  for count in engine.slot_counts[1:]:
    if count >= slots:
      state = engine.compact(state, np.arange(count, dtype=np.int32))
  return state


def _compact_costs(engine: Engine, repeats: int) -> dict[int, float]:
  """Returns the seconds of a compaction by the slots that are kept."""
  counts = engine.slot_counts
  found = {}
  for before, after in zip(counts, counts[1:], strict=False):
    state = _of_slots(engine, before)
    kept = np.arange(after, dtype=np.int32)

    def run(state: DecodeState = state, kept: np.ndarray = kept) -> Any:
      return engine.compact(state, kept)

    found[after] = fastest(run, repeats)
  return found


def learner_costs(
  runner: updating.Runner, repeats: int
) -> forecast.LearnerCosts:
  """Measures an update, with one micro-batch and with all that it has room for.

  Args:
    runner: with room for at least one micro-batch.
    repeats: runs of each.
  """
  one_s = min(runner.run(1) for _ in range(repeats + 1))
  count = runner.micro_batches
  if count == 1:
    return forecast.LearnerCosts(0.0, one_s)
  all_s = min(runner.run(count) for _ in range(repeats))
  each_s = (all_s - one_s) / (count - 1)
  return forecast.LearnerCosts(max(0.0, one_s - each_s), each_s)
