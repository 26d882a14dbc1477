"""Measures how long a device waits for the host between two calls.

The scheduler runs as in training, on an engine whose calls return immediately,
so only the host's time is left. A gap starts when the tokens of a call arrive,
and ends when the next program is sent.
"""

import dataclasses
import pathlib
import random
import time
from typing import Any, cast

import numpy as np

from azr_jax import types
from azr_jax.lab.compile.lengths import Lengths
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.host_engine import LengthEngine
from azr_jax.rollout.meter import Meter
from azr_jax.rollout.response_end import ResponseEnds
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.stream import SampleKey, Stream
from azr_jax.rollout.weights import Weights

# Text to decode. Programs often contain the last characters of answer tags.
_TEXT = pathlib.Path(__file__).parents[2] / "assets/programs_heldout.jsonl"
_TEXT_SIZE = 200_000


@dataclasses.dataclass(frozen=True)
class Gaps:
  """Host time between calls of the decode loop.

  Attributes:
    calls: number of calls of the decode loop.
    mean_s: mean gap, in seconds.
    p99_s: 99th percentile of the gaps, in seconds.
    delivery_s: mean host time after sending a call, while the device decodes.
    iterations: iterations of the decode loop.
    live_fraction: fraction of slots that were live in these iterations.
  """

  calls: int
  mean_s: float
  p99_s: float
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
) -> Gaps:
  """Samples once on an engine without a device.

  Args:
    settings: the sampler's settings. It decodes to pieces of programs.
    tokenizer: decodes the pieces, in which stop strings are searched.
    prompts: number of prompts.
    samples: samples per prompt.
    prompt_tokens: tokens of each prompt.
    lengths: the distribution of completion lengths.
  """
  text = _TEXT.read_text("utf-8")[:_TEXT_SIZE]

  def length(seed: int, sample: int) -> int:
    return lengths.draw(1, random.Random(seed << 32 | sample))[0]

  engine = _TimedEngine(settings, length, np.asarray(tokenizer.encode(text)))
  meter = Meter()
  ends = ResponseEnds(tokenizer, settings)
  stream = Stream(cast(Engine, engine), tokenizer, ends, meter, Weights({}))
  key_data = np.zeros(2, np.uint32)
  for number in range(prompts):
    ids = (number + 3,) * prompt_tokens
    stream.submit(types.Prompt("", ids), samples, SampleKey(key_data, number))
  gaps, delivered, ready = [], [], None
  while not stream.is_empty:
    engine.sent_at = engine.decoded_at = None
    is_sent = stream.send()
    end = time.perf_counter()
    if ready is not None and engine.sent_at is not None:
      gaps.append(engine.sent_at - ready)
    if engine.decoded_at is not None:
      delivered.append(end - engine.decoded_at)
    ready = time.perf_counter()
    if is_sent:
      stream.fetch()
  counts = meter.take().counts
  return Gaps(
    counts.calls,
    float(np.mean(gaps)),
    float(np.quantile(gaps, 0.99)),
    float(np.mean(delivered)),
    counts.iterations,
    counts.live_slot_steps / counts.slot_steps,
  )


class _TimedEngine(LengthEngine):
  """Records when programs are sent.

  Attributes:
    sent_at: time of the first program since this was set to None.
    decoded_at: time of the last call of the decode loop.
  """

  sent_at: float | None = None
  decoded_at: float | None = None

  def prefill(self, params: Any, pool: Any, batch: Any) -> Any:
    """Records the time; there are no pages."""
    self._note_sent()
    return super().prefill(params, pool, batch)

  def decode(
    self,
    params: Any,
    pool: Any,
    slots: Any,
    changes: Any,
    stop_ids: np.ndarray,
    min_active: int,
  ) -> tuple[Any, Any, Any]:
    """Runs a call of the decode loop and records times before and after it."""
    self._note_sent()
    result = super().decode(params, pool, slots, changes, stop_ids, min_active)
    self.decoded_at = time.perf_counter()
    return result

  def _note_sent(self) -> None:
    if self.sent_at is None:
      self.sent_at = time.perf_counter()
