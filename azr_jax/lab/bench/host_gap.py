"""Measures how long a device waits for the host between two calls.

The scheduler runs as it does in training, on an engine whose calls return at
once: what is left is the host's time. A gap begins when the tokens of a call
are there, and ends when the next program is sent.
"""

import dataclasses
import pathlib
import random
import time
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from azr_jax import types
from azr_jax.lab.compile.lengths import Lengths
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout import decode_state
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.meter import Meter
from azr_jax.rollout.response_end import ResponseEnds
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.stream import SampleKey, Stream
from azr_jax.rollout.weights import Weights

# These texts are decoded: programs have the last characters of tags often.
_TEXT = pathlib.Path(__file__).parents[2] / "assets/programs_heldout.jsonl"
_TEXT_SIZE = 200_000
# They are annotated as Any, because they hold arrays of the host here.
_Slots: Any = decode_state.Slots
_Output: Any = decode_state.DecodeOutput


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
  engine = _Engine(settings, np.asarray(tokenizer.encode(text)), lengths)
  meter = Meter()
  ends = ResponseEnds(tokenizer, settings)
  stream = Stream(cast(Engine, engine), tokenizer, ends, meter, Weights({}))
  words = np.zeros(2, np.uint32)
  for number in range(prompts):
    ids = (number + 3,) * prompt_tokens
    stream.submit(types.Prompt("", ids), samples, SampleKey(words, number))
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


class _Ready(np.ndarray):
  """An array that is there, as `RequestMeter` asks."""

  def is_ready(self) -> bool:
    return True


class _Engine:
  """What the scheduler uses of an engine, without a device.

  A slot decodes a piece of a text. A sequence that enters a slot has a length
  by chance.

  Attributes:
    sent_at: when the first program was sent since this was None.
    decoded_at: when a call of the decode loop was sent.
  """

  prefill_chunk = Engine.prefill_chunk

  def __init__(
    self, settings: SamplerSettings, text: np.ndarray, lengths: Lengths
  ):
    self.settings, self.devices = settings, 1
    self.slot_counts = (settings.slots,)
    self.max_pages_per_row = settings.pages_for(settings.longest)
    self.prefill_chunks = settings.prefill_chunks
    self.num_pages = settings.slots * self.max_pages_per_row
    self.sent_at: float | None = None
    self.decoded_at: float | None = None
    self._rng = np.random.default_rng(0)
    self._text, self._lengths = text, lengths

  def prefill_rows(self, chunk: int) -> int:
    return max(1, self.settings.prefill_tokens // chunk)

  def init_pool(self) -> None:
    """There are no pages."""

  def init_slots(self, slots: int) -> decode_state.Slots:
    zeros = np.zeros(slots, np.int64)
    done = np.ones(slots, bool)
    return _Slots(*[zeros] * 4, done, np.ones(slots), zeros)

  def prefill(self, params: Any, pool: Any, batch: Any) -> Any:
    self._note_sent()
    return pool

  def decode(
    self,
    params: Any,
    pool: Any,
    slots: decode_state.Slots,
    changes: decode_state.Changes,
    stop_ids: Sequence[int],
    min_active: int,
  ) -> tuple[Any, decode_state.Slots, decode_state.DecodeOutput]:
    self._note_sent()
    enters = changes.enters
    num_tokens = np.where(enters, changes.num_tokens, slots.num_tokens)
    longest = slots.max_new_tokens.copy()
    for slot in np.flatnonzero(enters):
      # A sequence that was preempted has the length that it had.
      seed = int(changes.seeds[slot, 0]) << 32 | int(changes.seeds[slot, 1])
      drawn = self._lengths.draw(1, random.Random(seed))[0]
      longest[slot] = min(drawn, changes.max_new_tokens[slot])
    done = (slots.done & ~enters) | changes.stops
    left = np.where(done, 0, longest - num_tokens)
    # The loop ends when no more slots than `min_active` have tokens left.
    most = np.sort(left)[::-1][min(min_active, len(left) - 1)]
    steps = int(min(self.settings.decode_chunk, most))
    generated = np.minimum(left, steps)
    shape = (len(left), self.settings.decode_chunk)
    starts = self._rng.integers(0, len(self._text) - shape[1], len(left))
    tokens = self._text[starts[:, None] + np.arange(shape[1])]
    ended = np.flatnonzero((left == generated) & (generated > 0))
    tokens[ended, generated[ended] - 1] = stop_ids[0]
    slots = slots.replace(
      num_tokens=num_tokens + generated,
      max_new_tokens=longest,
      done=done | (left == generated),
    )
    output = _Output(
      tokens,
      np.zeros(shape, np.float32),
      generated,
      slots.done.view(_Ready),
      generated,
    )
    self.decoded_at = time.perf_counter()
    return pool, slots, output

  def _note_sent(self) -> None:
    if self.sent_at is None:
      self.sent_at = time.perf_counter()
