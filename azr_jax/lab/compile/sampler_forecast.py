"""Predicts the seconds of sampling by simulating the scheduler's rules.

They are those of `rollout/scheduler.py` and `rollout/decode.py`; what each
device call costs is an argument, from a compiler's estimates or from
measurements. Nothing is drawn or measured here.

Left out: the time of graders that sampling does not hide, tool calls, pages
that run out, and tokens that prompts share. Prompts count as different ones, so
where `rollout.prefix_cache` finds tokens, prefill takes less than is predicted.
"""

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from azr_jax.models import cached_attention

# A slot is refilled once this fraction of the slots is free.
_REFILL_PARTS = 8


@dataclasses.dataclass(frozen=True)
class Rules:
  """What the scheduler decides by.

  Attributes:
    slot_counts: slots that decode is compiled for, descending.
    buckets: prompt lengths, ascending.
    prefill_chunks: tokens that one call prefills of a row, ascending.
    prefill_tokens: tokens that one call prefills of all rows.
    devices: over which rows and slots are split.
    decode_chunk: tokens of a slot per call of decode.
    page_size: tokens of a page, which attention reads at a time.
    platform: of the devices, cpu, gpu or tpu.
    lists_pages: whether decoding reads live pages only.
  """

  slot_counts: tuple[int, ...]
  buckets: tuple[int, ...]
  prefill_chunks: tuple[int, ...]
  prefill_tokens: int
  devices: int
  decode_chunk: int
  page_size: int
  platform: str
  lists_pages: bool = False

  def bucket(self, tokens: int) -> int:
    """Returns the bucket of a prompt."""
    return next(b for b in self.buckets if b >= tokens)

  def prefill_chunk(self, tokens: int) -> int:
    """Returns the smallest chunk that holds so many tokens, or the largest."""
    fitting = (chunk for chunk in self.prefill_chunks if chunk >= tokens)
    return next(fitting, self.prefill_chunks[-1])

  def rows(self, chunk: int) -> int:
    """Returns how many rows are prefilled at a time."""
    rows = max(1, self.prefill_tokens // chunk)
    return rows + -rows % self.devices

  def pages_read(self, lengths: Sequence[int], slots: int) -> float:
    """Returns how many pages attention reads, one after another.

    A page counts as one of every row, where live pages alone are read; devices
    count as equally busy there. Otherwise rows of similar length are read
    together, so a block takes as many pages as its longest row has.

    Args:
      lengths: cached tokens of the live slots.
      slots: all slots.
    """
    if self.lists_pages:
      return sum(math.ceil(n / self.page_size) for n in lengths) / slots
    rows = slots // self.devices
    block = cached_attention.block_rows(rows, self.platform) * self.devices
    longest = sorted(lengths, reverse=True)[::block]
    return sum(math.ceil(length / self.page_size) for length in longest)


@dataclasses.dataclass(frozen=True)
class DecodeCost:
  """Seconds of decoding with a number of slots.

  Attributes:
    call_s: of a call, without its tokens.
    token_s: of one token of all slots, without what grows with the cache.
    page_s: of each page that a block of slots reads, per token.
  """

  call_s: float
  token_s: float
  page_s: float


@dataclasses.dataclass(frozen=True)
class SamplerCosts:
  """Seconds of the sampler's device calls.

  Attributes:
    prefill_s: chunk -> seconds of a call, and of each page before its tokens.
    decode: number of slots -> what decoding costs.
    compact_s: number of slots that are kept -> seconds.
    request_s: seconds to begin and end a request.
  """

  prefill_s: Mapping[int, tuple[float, float]]
  decode: Mapping[int, DecodeCost]
  compact_s: Mapping[int, float] = dataclasses.field(default_factory=dict)
  request_s: float = 0.0


@dataclasses.dataclass
class SimulatedSampling:
  """What a stream did.

  Attributes:
    prefill_s: seconds of prefill.
    compact_s: seconds of changing the number of slots.
    decode_s: seconds of decoding.
    host_s: seconds in which the device waited for the host.
    calls: calls of decode.
    steps: tokens of a slot over all calls.
    slot_steps: the same, times the slots of each call.
    tokens: tokens of all completions.
  """

  prefill_s: float = 0.0
  compact_s: float = 0.0
  decode_s: float = 0.0
  host_s: float = 0.0
  calls: int = 0
  steps: int = 0
  slot_steps: int = 0
  tokens: int = 0

  @property
  def seconds(self) -> float:
    """Seconds of sampling."""
    return self.prefill_s + self.compact_s + self.decode_s + self.host_s

  @property
  def busy(self) -> float:
    """Fraction of the slots that had a live sequence, over the tokens."""
    return self.tokens / self.slot_steps if self.slot_steps else 0.0


@dataclasses.dataclass(frozen=True)
class Prompt:
  """A prompt and what is sampled for it.

  Attributes:
    tokens: its length.
    completions: tokens of each of its completions, at least 1.
    follow_ups: prompts that are submitted when its completions have ended.
  """

  tokens: int
  completions: tuple[int, ...]
  follow_ups: "tuple[Prompt, ...]" = ()


@dataclasses.dataclass(eq=False)
class _Group:
  """A prompt that is prefilled for all of its sequences, or for those left.

  Attributes:
    prompt: the prompt.
    step: the training step that it is of.
    waiting: sequences without a slot.
    unfinished: sequences that have not ended.
    num_uncached: tokens of the prompt to prefill.
  """

  prompt: Prompt
  step: int
  waiting: "collections.deque[_Sequence]"
  unfinished: int = 0
  num_uncached: int = 0


@dataclasses.dataclass(eq=False)
class _Sequence:
  """A sequence that has not ended.

  Attributes:
    group: its prompt.
    num_generated: tokens that it has.
    remaining: tokens that it has yet to write.
    num_uncached: tokens to prefill before it writes on.
  """

  group: _Group
  remaining: int
  num_generated: int = 0
  num_uncached: int = 0

  @property
  def cached(self) -> int:
    """Tokens in the cache while it decodes."""
    return self.group.prompt.tokens + self.num_generated - 1


def sample(
  prompts: Sequence[Prompt], rules: Rules, costs: SamplerCosts
) -> SimulatedSampling:
  """Simulates a stream that ends with its last sequence.

  Args:
    prompts: what is sampled, none longer than the largest bucket.
    rules: of the scheduler.
    costs: of its device calls.
  """
  return sample_steps([prompts], 0, rules, costs)


def sample_steps(
  steps: Sequence[Sequence[Prompt]],
  max_staleness: int,
  rules: Rules,
  costs: SamplerCosts,
) -> SimulatedSampling:
  """Simulates the sampling of several training steps.

  The prompts of the next `max_staleness` steps are submitted with those of the
  oldest; where that one ends, all others are prefilled again, because the
  parameters change.

  Args:
    steps: the prompts of each step, none longer than the largest bucket.
    max_staleness: steps that are sampled ahead.
    rules: of the scheduler.
    costs: of its device calls.
  """
  simulator = _Simulator(rules, costs)
  simulator.simulated.host_s += costs.request_s * len(steps)
  submitted = 0
  for oldest in range(len(steps)):
    simulator.drop_caches()
    while submitted <= min(oldest + max_staleness, len(steps) - 1):
      simulator.submit(steps[submitted], submitted)
      submitted += 1
    while simulator.unfinished[oldest]:
      simulator.admit()
      simulator.decode()
  return simulator.simulated


class _Simulator:
  """The scheduler's state, without tokens."""

  def __init__(self, rules: Rules, costs: SamplerCosts):
    self._rules, self._costs = rules, costs
    self._slots = rules.slot_counts[0]
    self._live: list[_Sequence] = []
    self._resuming: list[_Sequence] = []
    self._groups: list[_Group] = []
    self._queue: list[_Group] = []
    self.simulated = SimulatedSampling()
    # Sequences of each step that have not ended.
    self.unfinished: dict[int, int] = collections.defaultdict(int)

  def submit(self, prompts: Iterable[Prompt], step: int) -> None:
    """Adds prompts of a step to the queue."""
    for prompt in prompts:
      group = _Group(prompt, step, collections.deque(), len(prompt.completions))
      group.waiting.extend(_Sequence(group, n) for n in prompt.completions)
      group.num_uncached = prompt.tokens - 1
      self.unfinished[step] += len(prompt.completions)
      self._queue.append(group)

  def drop_caches(self) -> None:
    """Puts all sequences in the queue again, to be prefilled."""
    waiting = [s for group in self._groups for s in group.waiting]
    sequences = [*self._live, *self._resuming, *waiting]
    self._live, self._resuming, self._groups = [], [], []
    by_group: dict[_Group, list[_Sequence]] = collections.defaultdict(list)
    for sequence in sequences:
      sequence.num_uncached = sequence.num_generated
      by_group[sequence.group].append(sequence)
    for group, grouped in by_group.items():
      group.waiting = collections.deque(grouped)
      group.num_uncached = group.prompt.tokens - 1
      self._queue.append(group)
    self._slots = self._rules.slot_counts[0]

  @property
  def _has_waiting(self) -> bool:
    return bool(self._queue or self._groups or self._resuming)

  @property
  def _num_sequences(self) -> int:
    waiting = sum(len(g.waiting) for g in (*self._queue, *self._groups))
    return len(self._live) + len(self._resuming) + waiting

  def admit(self) -> None:
    """Prefills waiting tokens and fills free slots."""
    self._resize()
    progress = True
    while progress:
      progress = self._fill_slots()
      self._prepare_groups()
      progress = self._prefill() or progress
      progress = self._fill_slots() or progress
      if len(self._live) > self._slots // 2:
        break
    self._resize()

  def _resize(self) -> None:
    """Makes as many slots as there are sequences, in steps of the counts."""
    counts, needed = self._rules.slot_counts, self._num_sequences
    for slots in reversed(counts):
      if self._slots < slots and self._slots < needed:
        self._change_slots(slots)
    for slots in counts:
      if needed <= slots < self._slots:
        self._change_slots(slots)

  def _change_slots(self, slots: int) -> None:
    self._slots = slots
    self.simulated.compact_s += self._costs.compact_s.get(slots, 0.0)

  def _prepare_groups(self) -> None:
    """Takes the next prompts of a bucket from the queue."""
    if self._groups or not self._queue:
      return
    by_bucket: dict[int, list[_Group]] = collections.defaultdict(list)
    for group in sorted(self._queue, key=lambda group: group.step):
      by_bucket[self._rules.bucket(group.prompt.tokens)].append(group)
    bucket = min(by_bucket, key=lambda b: (by_bucket[b][0].step, -b))
    chunk = min(bucket, self._rules.prefill_tokens)
    self._groups = by_bucket[bucket][: self._rules.rows(chunk)]
    self._queue = [group for group in self._queue if group not in self._groups]

  def _prefill(self) -> bool:
    """Prefills the next pending tokens, in one call."""
    waiting = (*self._resuming, *self._groups)
    pending = [one for one in waiting if one.num_uncached]
    if not pending:
      return False
    rules = self._rules
    chunk = rules.prefill_chunk(max(one.num_uncached for one in pending))
    if len(pending) > rules.rows(chunk):
      chunk = rules.prefill_chunk(pending[0].num_uncached)
    call_s, page_s = self._costs.prefill_s[chunk]
    before = 0
    for one in pending[: rules.rows(chunk)]:
      group = one.group if isinstance(one, _Sequence) else one
      total = group.prompt.tokens - 1
      if isinstance(one, _Sequence):
        total += one.num_generated
      before = max(before, total - one.num_uncached)
      one.num_uncached -= min(chunk, one.num_uncached)
    pages = math.ceil(before / rules.page_size)
    self.simulated.prefill_s += call_s + pages * page_s
    return True

  def _fill_slots(self) -> bool:
    """Fills free slots; returns whether a sequence went on."""
    free, has_run = self._slots - len(self._live), False
    for sequence in list(self._resuming[:free]):
      free -= 1
      if not sequence.num_uncached:
        self._resuming.remove(sequence)
        self._live.append(sequence)
        has_run = True
    for group in self._groups:
      while not group.num_uncached and group.waiting and free:
        sequence = group.waiting.popleft()
        free -= 1
        has_run = True
        (self._resuming if sequence.num_uncached else self._live).append(
          sequence
        )
    self._groups = [group for group in self._groups if group.waiting]
    return has_run

  def decode(self) -> None:
    """Simulates one call of the decode loop."""
    min_active = 0
    if self._has_waiting:
      min_active = len(self._live) - max(1, self._slots // _REFILL_PARTS)
    lengths = sorted((s.remaining for s in self._live), reverse=True)
    # The loop ends when no more than `min_active` slots have tokens left.
    steps = min(self._rules.decode_chunk, lengths[max(0, min_active)])
    cached = [sequence.cached for sequence in self._live]
    pages = self._rules.pages_read(cached, self._slots)
    cost, simulated = self._costs.decode[self._slots], self.simulated
    simulated.decode_s += cost.call_s + steps * (
      cost.token_s + pages * cost.page_s
    )
    simulated.calls += 1
    simulated.steps += steps
    simulated.slot_steps += steps * self._slots
    for sequence in self._live:
      new_tokens = min(steps, sequence.remaining)
      sequence.num_generated += new_tokens
      sequence.remaining -= new_tokens
      simulated.tokens += new_tokens
    ended = [sequence for sequence in self._live if not sequence.remaining]
    self._live = [sequence for sequence in self._live if sequence.remaining]
    for sequence in ended:
      group = sequence.group
      group.unfinished -= 1
      if not group.unfinished:
        self.submit(group.prompt.follow_ups, group.step)
      self.unfinished[group.step] -= 1
