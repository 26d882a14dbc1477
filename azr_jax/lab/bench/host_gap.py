"""Measures how long a device waits for the host between two calls.

The scheduler runs as in training, on an engine whose calls return immediately,
so only the host's time is left. A gap starts when the tokens of a call arrive,
and ends when the next program is sent. Prefill calls may follow before the next
call of the decode loop. Times are CPU seconds of this process, which other
programs on the machine hardly change.
"""

import dataclasses
import pathlib
import random
import time
from typing import Any, cast

import numpy as np
from jaxtyping import Int

from azr_jax import types
from azr_jax.lab.compile.lengths import Lengths
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.build import shapes_of
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.host_engine import LengthEngine
from azr_jax.rollout.meter import Meter
from azr_jax.rollout.response_end import ResponseEnds
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.shapes import slot_counts
from azr_jax.rollout.stream import SampleKey, Stream
from azr_jax.rollout.weights import Weights

# Text to decode. Programs often contain the last characters of answer tags.
_TEXT = pathlib.Path(__file__).parents[2] / "assets/programs_heldout.jsonl"
_TEXT_SIZE = 200_000


@dataclasses.dataclass(frozen=True)
class Gaps:
  """Host time of calls of the decode loop, in seconds.

  Attributes:
    calls: number of calls of the decode loop.
    mean_s: mean gap.
    p99_s: 99th percentile of the gaps.
    host_s: mean host time from a call's tokens to the next decode call.
    turnover_s: mean of these times after calls that ended every sequence in a
      slot, when all slots turn over; 0 if there were none.
    delivery_s: mean host time after sending a call, while the device decodes.
    iterations: iterations of the decode loop.
    live_fraction: fraction of slots that were live in these iterations.
  """

  calls: int
  mean_s: float
  p99_s: float
  host_s: float
  turnover_s: float
  delivery_s: float
  iterations: int
  live_fraction: float


def measure(
  settings: SamplerSettings,
  tokenizer: Tokenizer,
  prompts: int,
  samples: int,
  prompt_tokens: int,
  lengths: Lengths,
  devices: int = 1,
) -> Gaps:
  """Samples once on an engine without a device.

  Args:
    settings: the sampler's settings. It decodes to pieces of programs.
    tokenizer: decodes the pieces, in which stop strings are searched.
    prompts: number of prompts.
    samples: samples per prompt.
    prompt_tokens: tokens of each prompt.
    lengths: the distribution of completion lengths.
    devices: number of devices that slots are split over.
  """
  text = _TEXT.read_text("utf-8")[:_TEXT_SIZE]

  def length(seed: int, sample: int) -> int:
    return lengths.draw(1, random.Random(seed << 32 | sample))[0]

  ids = np.asarray(tokenizer.encode(text))
  counts = slot_counts(settings.slots, devices, "tpu")
  shapes = shapes_of(settings, devices, counts)
  engine = _TimedEngine(shapes, length, ids)
  meter = Meter()
  stream = Stream(
    cast(Engine, engine),
    tokenizer,
    ResponseEnds(tokenizer, settings.stop_strings, settings.stop_after),
    meter,
    Weights({}),
    settings.max_tokens,
  )
  key_data = np.zeros(2, np.uint32)
  for number in range(prompts):
    ids = (number + 3,) * prompt_tokens
    stream.submit(types.Prompt("", ids), samples, SampleKey(key_data, number))
  gaps, hosts, turnovers, delivered = _play(engine, stream)
  counts = meter.take().counts
  return Gaps(
    counts.calls,
    float(np.mean(gaps)),
    float(np.quantile(gaps, 0.99)),
    float(np.mean(hosts)),
    float(np.mean(turnovers)) if turnovers else 0.0,
    float(np.mean(delivered)),
    counts.iterations,
    counts.live_slot_steps / counts.slot_steps,
  )


def _play(
  engine: "_TimedEngine", stream: Stream
) -> tuple[list[float], list[float], list[float], list[float]]:
  """Runs a stream to its end.

  Returns:
    Four lists of seconds: gaps; host times from a call's tokens to the next
    decode call; the same host times, only after calls that ended every
    sequence; and times of delivery.
  """
  gaps, hosts, turnovers, delivered = [], [], [], []
  ready, all_ended = None, False
  while not stream.is_empty:
    engine.sent_at = engine.decoded_at = None
    engine.prefill_s = 0.0
    is_sent = stream.send()
    end = time.process_time()
    if ready is not None and engine.sent_at is not None:
      gaps.append(engine.sent_at - ready)
    if engine.decoded_at is not None:
      delivered.append(end - engine.decoded_at)
      if ready is not None:
        hosts.append(engine.decode_at - ready - engine.prefill_s)
        turnovers += hosts[-1:] if all_ended else []
    ready, all_ended = time.process_time(), engine.all_ended
    if is_sent:
      stream.fetch()
  return gaps, hosts, turnovers, delivered


class _TimedEngine(LengthEngine):
  """Records when programs are sent.

  Attributes:
    sent_at: time of the first program since this was set to None.
    decode_at: time at which the last call of the decode loop was sent.
    decoded_at: time at which it returned.
    prefill_s: seconds in prefill calls since this was set to 0.
    all_ended: whether the last call of the decode loop filled and ended every
      slot.
  """

  sent_at: float | None = None
  decode_at: float = 0.0
  decoded_at: float | None = None
  prefill_s: float = 0.0
  all_ended: bool = False

  def prefill(self, params: Any, pool: Any, batch: Any) -> Any:
    """Records the time; there are no pages."""
    start = self._note_sent()
    pool = super().prefill(params, pool, batch)
    self.prefill_s += time.process_time() - start
    return pool

  def decode(
    self,
    params: Any,
    pool: Any,
    slots: Any,
    changes: Any,
    stop_ids: Int[np.ndarray, " I"],
    min_live: int,
  ) -> tuple[Any, Any, Any]:
    """Runs a call of the decode loop and records times before and after it."""
    self.decode_at = self._note_sent()
    result = super().decode(params, pool, slots, changes, stop_ids, min_live)
    _, _, output = result
    self.all_ended = bool(np.all(output.done & (output.num_generated > 0)))
    self.decoded_at = time.process_time()
    return result

  def _note_sent(self) -> float:
    now = time.process_time()
    if self.sent_at is None:
      self.sent_at = now
    return now
