"""The costs of a step's device calls, measured on this machine.

Each call is timed on its own, with all-zero inputs, because values do not
change the time. The fastest of several runs counts: other load on the machine
can only slow a call down.
"""

from typing import Any

import jax
import numpy as np

from azr_jax.lab.bench import updating
from azr_jax.lab.bench.device import fastest
from azr_jax.lab.compile import forecast, sampler_forecast
from azr_jax.lab.compile.sampler_forecast import (
  DecodeCost,
  HostCosts,
  SamplerCosts,
)
from azr_jax.models import cached_attention
from azr_jax.rollout import decode_state, prefill_scheduler
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.slots import no_changes
from azr_jax.types import Params


def sampler_costs(engine: Engine, params: Params, repeats: int) -> SamplerCosts:
  """Measures the sampler's device calls.

  Args:
    engine: the engine; its programs are compiled here if needed.
    params: parameters from `engine.compute_params`.
    repeats: runs of each call.
  """
  calls, shapes = _Calls(engine, params, repeats), engine.shapes
  return SamplerCosts(
    prefill_s={chunk: calls.prefill(chunk) for chunk in shapes.prefill_chunks},
    decode={slots: calls.decode(slots) for slots in shapes.slot_counts},
    compact_s={slots: calls.compact(slots) for slots in shapes.slot_counts[1:]},
    request_s=fastest(engine.init_pool, repeats),
    # The decode calls include sending and fetching.
    host=HostCosts(slot_s=sampler_forecast.HOST_SLOT_S),
  )


class _Calls:
  """Times the calls of an engine, all on the same pages."""

  def __init__(self, engine: Engine, params: Params, repeats: int):
    self._engine, self._params, self._repeats = engine, params, repeats
    self._pool = engine.init_pool()

  def prefill(self, chunk: int) -> tuple[float, float]:
    """Returns the seconds of a call, and of each earlier page it reads."""
    shapes = self._engine.shapes
    batch = prefill_scheduler.empty_batch(shapes, chunk)
    batch.counts[:] = chunk

    def seconds(pages: int) -> float:
      starts = np.full_like(batch.starts, pages * shapes.page_size)

      def run() -> Any:
        self._pool = self._engine.prefill(
          self._params, self._pool, batch.replace(starts=starts)
        )
        return self._pool

      return fastest(run, self._repeats)

    first_s = seconds(0)
    pages = (shapes.longest - chunk) // shapes.page_size
    if pages < 1:
      return first_s, 0.0
    return first_s, max(0.0, seconds(pages) - first_s) / pages

  def decode(self, slots: int) -> DecodeCost:
    """Returns the seconds of a call, of a token, and of a page per token.

    Comparing calls with few and many tokens gives the fixed cost of a call.
    Comparing short and long caches gives the cost of a page.
    """
    shapes = self._engine.shapes
    steps, few_steps = shapes.decode_chunk, max(1, shapes.decode_chunk // 4)
    max_pages = (shapes.longest - steps) // shapes.page_size
    rows = slots // shapes.devices
    platform = self._engine.mesh.devices.flat[0].platform
    blocks = rows // cached_attention.block_rows(rows, platform)

    def seconds(tokens: int, pages: int) -> float:
      changes = busy_slots(
        self._engine, slots, pages * shapes.page_size, tokens
      )
      state = self._engine.init_slots(slots)

      def run() -> Any:
        nonlocal state
        self._pool, state, output = self._engine.decode(
          self._params,
          self._pool,
          state,
          changes,
          np.zeros(0, np.int32),
          np.int32(0),
        )
        return jax.device_get(output)

      return fastest(run, self._repeats)

    short_s = seconds(steps, 1)
    page_s = 0.0
    if max_pages > 1:
      longer_s = max(0.0, seconds(steps, max_pages) - short_s)
      page_s = longer_s / (max_pages - 1) / steps / blocks
    token_s = short_s / steps - blocks * page_s
    if steps > few_steps:
      token_s = (short_s - seconds(few_steps, 1)) / (
        steps - few_steps
      ) - blocks * page_s
    call_s = max(0.0, short_s - steps * (token_s + blocks * page_s))
    return DecodeCost(call_s, max(0.0, token_s), page_s)

  def compact(self, slots: int) -> float:
    """Returns the seconds to compact the next larger slot count to `slots`."""
    counts = self._engine.shapes.slot_counts
    state = self._engine.init_slots(counts[counts.index(slots) - 1])
    devices = self._engine.shapes.devices
    kept = np.tile(np.arange(slots // devices, dtype=np.int32), devices)
    return fastest(lambda: self._engine.compact(state, kept), self._repeats)


def busy_slots(
  engine: Engine, slots: int, length: int, tokens: int
) -> decode_state.Changes:
  """Returns the changes that fill all slots with sequences.

  Args:
    engine: the engine that has the slots.
    slots: number of slots.
    length: cached tokens of each slot.
    tokens: new tokens of each slot.
  """
  devices, max_pages = engine.shapes.devices, engine.shapes.max_pages_per_row
  per_device = slots // devices
  # Slots have separate pages, as long as there are enough.
  pages = np.arange(per_device * max_pages) % engine.num_pages
  table = np.tile(pages.reshape(per_device, -1), (devices, 1))
  nothing = no_changes(slots, devices, max_pages)
  return nothing.replace(
    enters=np.ones(slots, bool),
    length=np.full(slots, length, np.int32),
    max_new_tokens=np.full(slots, tokens, np.int32),
    table=table.astype(np.int32),
  )


def learner_costs(
  runner: updating.UpdateRunner, repeats: int
) -> forecast.LearnerCosts:
  """Measures an update with one micro-batch and with as many as it can hold.

  Args:
    runner: the update, with room for at least one micro-batch.
    repeats: runs of each.
  """
  one_s = min(runner.run(1) for _ in range(repeats + 1))
  count = runner.micro_batches
  if count == 1:
    return forecast.LearnerCosts(0.0, one_s)
  all_s = min(runner.run(count) for _ in range(repeats))
  each_s = (all_s - one_s) / (count - 1)
  return forecast.LearnerCosts(max(0.0, one_s - each_s), each_s)
