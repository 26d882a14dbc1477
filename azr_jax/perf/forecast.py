"""Foretells a training step's seconds by playing the sampler's rules.

The rules are those of `rollout/scheduler.py`, `rollout/decode.py` and
`learner/packing.py`; what each device call costs is an argument, from a
compiler's estimates or from measurements. Nothing is drawn or measured here.

Left out: the time of graders that sampling does not hide, and tool calls.
"""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence

from azr_jax.learner import packing

# A slot is refilled once this share of the slots is free.
_REFILL_PARTS = 8


@dataclasses.dataclass(frozen=True)
class Rules:
  """What the scheduler decides by.

  Attributes:
    slot_counts: slots that decode is compiled for, descending.
    buckets: prompt lengths that prefill is compiled for, ascending.
    prefill_tokens: tokens of a prefill call.
    prefill_multiple: the prompts of a prefill call are a multiple of it.
    decode_chunk: tokens of a slot per call of decode.
    cache_chunk: cache entries that attention reads at a time.
  """

  slot_counts: tuple[int, ...]
  buckets: tuple[int, ...]
  prefill_tokens: int
  prefill_multiple: int
  decode_chunk: int
  cache_chunk: int

  def batch_size(self, bucket: int) -> int:
    """Returns how many prompts of a bucket are prefilled together."""
    prompts = max(1, self.prefill_tokens // bucket)
    return prompts + -prompts % self.prefill_multiple


@dataclasses.dataclass(frozen=True)
class DecodeCost:
  """Seconds of decoding with a number of slots.

  Attributes:
    call_s: of a call, without its tokens.
    token_s: of one token of all slots, without what grows with the cache.
    chunk_s: of each chunk of the longest live slot, per token.
  """

  call_s: float
  token_s: float
  chunk_s: float


@dataclasses.dataclass(frozen=True)
class SamplerCosts:
  """Seconds of the sampler's device calls.

  Attributes:
    prefill_s: bucket -> seconds of a call, and of each cache chunk before it.
    insert_s: seconds of a call, of each prompt in it, and of each slot.
    decode: number of slots -> what decoding costs.
    compact_s: number of slots that are kept -> seconds.
    host_s: seconds of the host between two calls of decode, in which the device
      waits.
    request_s: seconds to begin and end a request.
  """

  prefill_s: Mapping[int, tuple[float, float]]
  insert_s: tuple[float, float, float]
  decode: Mapping[int, DecodeCost]
  compact_s: Mapping[int, float] = dataclasses.field(default_factory=dict)
  host_s: float = 0.0
  request_s: float = 0.0


@dataclasses.dataclass
class Played:
  """What a request did.

  Attributes:
    prefill_s: seconds of prefill.
    insert_s: seconds of inserting prompts into slots, and of compaction.
    decode_s: seconds of decoding.
    host_s: seconds in which the device waited for the host.
    calls: calls of decode.
    steps: tokens of a slot over all calls.
    slot_steps: the same, times the slots of each call.
    tokens: tokens of all completions.
  """

  prefill_s: float = 0.0
  insert_s: float = 0.0
  decode_s: float = 0.0
  host_s: float = 0.0
  calls: int = 0
  steps: int = 0
  slot_steps: int = 0
  tokens: int = 0

  @property
  def seconds(self) -> float:
    """Seconds of the request."""
    return self.prefill_s + self.insert_s + self.decode_s + self.host_s

  @property
  def busy(self) -> float:
    """Share of the slots that had a live sequence, over the tokens."""
    return self.tokens / self.slot_steps if self.slot_steps else 0.0


@dataclasses.dataclass(frozen=True)
class Prompt:
  """A prompt and what is sampled for it.

  Attributes:
    tokens: its length.
    completions: tokens of each of its completions, at least 1.
  """

  tokens: int
  completions: tuple[int, ...]


@dataclasses.dataclass
class _Slot:
  """A live sequence.

  Attributes:
    held: entries of its cache.
    left: tokens that it has yet to write.
  """

  held: int
  left: int


@dataclasses.dataclass
class _Batch:
  """Prompts that are prefilled together.

  Attributes:
    bucket: their padded length.
    longest: tokens of the longest of them.
    waiting: sequences without a slot: index of the prompt, its tokens, those of
      the completion.
    prefilled: tokens of each that were prefilled.
  """

  bucket: int
  longest: int
  waiting: collections.deque[tuple[int, int, int]]
  prefilled: int = 0


def sample(
  prompts: Sequence[Prompt], rules: Rules, costs: SamplerCosts
) -> Played:
  """Plays one request to the sampler.

  Args:
    prompts: what is sampled, none longer than the largest bucket.
    rules: of the scheduler.
    costs: of its device calls.
  """
  return _Player(prompts, rules, costs).play()


class _Player:
  """The scheduler's state, without tokens."""

  def __init__(
    self, prompts: Sequence[Prompt], rules: Rules, costs: SamplerCosts
  ):
    self._rules, self._costs = rules, costs
    self._slots = rules.slot_counts[0]
    self._live: list[_Slot] = []
    self._batch: _Batch | None = None
    self._queue: collections.deque[_Batch] = collections.deque()
    self._played = Played(host_s=costs.request_s)
    by_bucket: dict[int, list[Prompt]] = {b: [] for b in rules.buckets}
    for prompt in prompts:
      by_bucket[next(b for b in rules.buckets if b >= prompt.tokens)].append(
        prompt
      )
    for bucket in reversed(rules.buckets):
      size = rules.batch_size(bucket)
      for first in range(0, len(by_bucket[bucket]), size):
        together = by_bucket[bucket][first : first + size]
        waiting = collections.deque(
          (index, prompt.tokens, length)
          for index, prompt in enumerate(together)
          for length in prompt.completions
        )
        longest = max(prompt.tokens for prompt in together)
        self._queue.append(_Batch(bucket, longest, waiting))

  def play(self) -> Played:
    """Plays until all sequences have ended."""
    while self._admit():
      self._decode()
    return self._played

  @property
  def _has_waiting(self) -> bool:
    return self._batch is not None or bool(self._queue)

  def _admit(self) -> bool:
    """Prefills and inserts; returns whether a sequence is live."""
    while self._has_waiting:
      if self._batch is None:
        self._batch = self._queue.popleft()
      batch = self._batch
      self._prefill(batch)
      if batch.prefilled >= batch.longest:
        if len(self._live) == self._slots:
          break
        self._insert(batch)
      if len(self._live) > self._slots // 2:
        break
    if self._live and not self._has_waiting:
      for slots in self._rules.slot_counts:
        if len(self._live) <= slots < self._slots:
          self._slots = slots
          self._played.insert_s += self._costs.compact_s.get(slots, 0.0)
    return bool(self._live)

  def _prefill(self, batch: _Batch) -> None:
    """Prefills the next part of a batch, unless it is complete."""
    if batch.prefilled >= batch.longest:
      return
    size = min(batch.bucket, self._rules.prefill_tokens)
    start = min(batch.prefilled, batch.bucket - size)
    call_s, chunk_s = self._costs.prefill_s[batch.bucket]
    chunks = math.ceil(start / self._rules.cache_chunk)
    self._played.prefill_s += call_s + chunks * chunk_s
    batch.prefilled = start + size

  def _insert(self, batch: _Batch) -> None:
    """Moves waiting sequences of a batch into the free slots."""
    count = min(self._slots - len(self._live), len(batch.waiting))
    moved = [batch.waiting.popleft() for _ in range(count)]
    self._live += [_Slot(held, left) for _, held, left in moved]
    call_s, prompt_s, slot_s = self._costs.insert_s
    prompts = len({index for index, _, _ in moved})
    self._played.insert_s += call_s + prompts * prompt_s + count * slot_s
    if not batch.waiting:
      self._batch = None

  def _decode(self) -> None:
    """Plays one call of the decode loop."""
    min_active = 0
    if self._has_waiting:
      min_active = self._slots - max(1, self._slots // _REFILL_PARTS)
    min_active = max(0, min(min_active, len(self._live) - 1))
    lengths = sorted((slot.left for slot in self._live), reverse=True)
    # The loop ends when no more than `min_active` slots have tokens left.
    steps = min(self._rules.decode_chunk, lengths[min_active])
    longest = max(slot.held for slot in self._live)
    chunks = math.ceil(longest / self._rules.cache_chunk)
    cost = self._costs.decode[self._slots]
    played = self._played
    played.decode_s += cost.call_s + steps * (
      cost.token_s + chunks * cost.chunk_s
    )
    played.host_s += self._costs.host_s
    played.calls += 1
    played.steps += steps
    played.slot_steps += steps * self._slots
    for slot in self._live:
      written = min(steps, slot.left)
      slot.held += written
      slot.left -= written
      played.tokens += written
    self._live = [slot for slot in self._live if slot.left]


@dataclasses.dataclass(frozen=True)
class LearnerCosts:
  """Seconds of learning from a batch.

  Attributes:
    call_s: of an update, without its micro-batches: the optimizer's step.
    micro_batch_s: of each micro-batch.
    params_s: to hand new parameters to the sampler.
  """

  call_s: float
  micro_batch_s: float
  params_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class LearnerRules:
  """What the learner does with a batch.

  Attributes:
    row_length: tokens of a row.
    micro_rows: rows of a micro-batch, padded to the mesh.
    epochs: updates on each batch.
    row_sequences: sequences of a row at most.
  """

  row_length: int
  micro_rows: int
  epochs: int = 1
  row_sequences: int = packing.ROW_SEQUENCES


@dataclasses.dataclass(frozen=True)
class Step:
  """A training step that was played.

  Attributes:
    phases: requests to the sampler, one after another.
    rows: packed rows that were trained on.
    micro_batches: micro-batches of each update.
    update_s: seconds of learning.
  """

  phases: tuple[Played, ...]
  rows: int
  micro_batches: int
  update_s: float

  @property
  def sample_s(self) -> float:
    """Seconds of sampling."""
    return sum(played.seconds for played in self.phases)

  @property
  def step_s(self) -> float:
    """Seconds of the step."""
    return self.sample_s + self.update_s


def step(
  phases: Sequence[Sequence[Prompt]],
  trained: Sequence[int],
  rules: Rules,
  costs: SamplerCosts,
  learner_rules: LearnerRules,
  learner_costs: LearnerCosts,
) -> Step:
  """Plays a training step.

  Args:
    phases: the requests of the step, each of which waits for the one before.
    trained: tokens of each sequence that is trained on, prompt included.
    rules: of the scheduler.
    costs: of the sampler's device calls.
    learner_rules: of the learner.
    learner_costs: of its device calls.
  """
  played = tuple(sample(prompts, rules, costs) for prompts in phases)
  # A row holds inputs and targets, one less than the ids of a sequence.
  lengths = [tokens - 1 for tokens in trained]
  packed = packing.assign_rows(
    lengths, learner_rules.row_length, learner_rules.row_sequences
  )
  rows = len(packed)
  micro_batches = math.ceil(rows / learner_rules.micro_rows)
  once = learner_costs.call_s + micro_batches * learner_costs.micro_batch_s
  update_s = learner_rules.epochs * once + learner_costs.params_s
  return Step(played, rows, micro_batches, update_s)
