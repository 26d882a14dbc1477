"""Measures how long a device waits for the host between two calls.

The scheduler runs as it does in training, on an engine whose calls return at
once: what is left is the host's time. A gap begins when the tokens of a call
are there, and ends when the next program is sent.
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

# These texts are decoded: programs have the last characters of tags often.
_TEXT = pathlib.Path(__file__).parents[2] / "assets/programs_heldout.jsonl"
_TEXT_SIZE = 200_000


@dataclasses.dataclass(frozen=True)
class Gaps:
  """What the host took between calls of the decode loop.

  Attributes:
    calls: of the decode loop.
    mean_s: mean of the gaps.
    p99_s: 99 % of the gaps are no longer.
    delivery_s: mean time after a call was sent, in which the device decodes.
    iterations: of the decode loop.
    live_fraction: of the slots in these iterations.
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
    settings: of the sampler; what it decodes are pieces of programs.
    tokenizer: decodes them, where stop strings are looked for.
    prompts: number of prompts.
    samples: of each.
    prompt_tokens: of each prompt.
    lengths: of completions.
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
  """Notes when programs are sent.

  Attributes:
    sent_at: when the first program was sent since this was None.
    decoded_at: when a call of the decode loop was sent.
  """

  sent_at: float | None = None
  decoded_at: float | None = None

  def prefill(self, params: Any, pool: Any, batch: Any) -> Any:
    """Notes the time; there are no pages."""
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
    """Runs a call of the decode loop between two looks at the clock."""
    self._note_sent()
    result = super().decode(params, pool, slots, changes, stop_ids, min_active)
    self.decoded_at = time.perf_counter()
    return result

  def _note_sent(self) -> None:
    if self.sent_at is None:
      self.sent_at = time.perf_counter()
