"""Predicts sampling time: the real scheduler runs, and device calls cost time.

The stream and scheduler are those of `rollout/`, on an engine that has no
device and adds up the cost of each call. The costs are an argument: they come
from a compiler's estimates or from measurements. Nothing is sampled or
measured here.

The host's work between two calls and the exchange of verdicts between hosts
cost time too, because the device waits for them.

Not modeled: grading time that sampling does not hide, tool calls, running out
of pages, and shared prompt tokens. All prompts count as different, so where
`rollout.prefix_cache` has hits, prefill is faster than predicted.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Int

from azr_jax import types
from azr_jax.models import cached_attention
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.host_engine import LengthEngine
from azr_jax.rollout.meter import Meter
from azr_jax.rollout.response_end import ResponseEnds
from azr_jax.rollout.shapes import EngineShapes
from azr_jax.rollout.stream import SampleKey, Stream
from azr_jax.rollout.weights import Weights

# The token that all prompts consist of, and the end-of-sequence token.
_TOKEN, _END = 0, 1
# Host seconds of a decode call per slot: `benchmark host` takes 1.9 ms at 1,024
# and 15.7 ms at 8,192 slots.
HOST_SLOT_S = 2e-6


@dataclasses.dataclass(frozen=True)
class Rules:
  """The settings that determine the schedule and the number of pages read.

  Attributes:
    shapes: the sizes of device calls. The forecast overrides `longest`.
    platform: cpu, gpu or tpu.
    lists_pages: whether decoding reads live pages only.
  """

  shapes: EngineShapes
  platform: str
  lists_pages: bool = False

  def pages_read(self, lengths: Int[np.ndarray, " live"], slots: int) -> float:
    """Returns how many pages attention reads sequentially per token.

    If only live pages are read, this is the mean number of pages per slot, as
    if all devices were equally busy. Otherwise rows of similar length are read
    in blocks, and a block takes as long as its longest row.

    Args:
      lengths: cached tokens of each live slot.
      slots: total number of slots.
    """
    pages = -(-lengths // self.shapes.page_size)
    if self.lists_pages:
      return float(pages.sum()) / slots
    devices = self.shapes.devices
    block = cached_attention.block_rows(slots // devices, self.platform)
    return float(np.sort(pages)[::-1][:: block * devices].sum())


@dataclasses.dataclass(frozen=True)
class DecodeCost:
  """Seconds of decoding with a given number of slots.

  Attributes:
    call_s: fixed seconds of a call, without its tokens.
    token_s: seconds per token of all slots, without reading the cache.
    page_s: seconds per token for each page that a block of slots reads.
  """

  call_s: float
  token_s: float
  page_s: float


@dataclasses.dataclass(frozen=True)
class HostCosts:
  """Seconds per decode call in which the device waits for the host.

  Attributes:
    call_s: seconds per call.
    slot_s: seconds per slot of a call.
    exchange_s: seconds of a verdict exchange between hosts, after each call in
      which a completion ends.
  """

  call_s: float = 0.0
  slot_s: float = 0.0
  exchange_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class SamplerCosts:
  """Seconds of the sampler's device calls, and of the host between them.

  Attributes:
    prefill_s: chunk -> seconds of a call, and of each earlier page it reads.
    decode: number of slots -> cost of decoding.
    compact_s: number of slots after compaction -> seconds.
    request_s: seconds to start and finish a request.
    host: the host's seconds.
  """

  prefill_s: Mapping[int, tuple[float, float]]
  decode: Mapping[int, DecodeCost]
  compact_s: Mapping[int, float] = dataclasses.field(default_factory=dict)
  request_s: float = 0.0
  host: HostCosts = HostCosts()


@dataclasses.dataclass
class DecodeWork:
  """Decode calls with the same number of slots.

  Attributes:
    calls: number of calls.
    steps: decode iterations over all calls.
    tokens: generated tokens.
  """

  calls: int = 0
  steps: int = 0
  tokens: int = 0


@dataclasses.dataclass
class SimulatedSampling:
  """Simulated time and work of a stream.

  Attributes:
    prefill_s: seconds of prefill.
    compact_s: seconds of changing the number of slots.
    decode_s: seconds of decoding.
    host_s: seconds in which the device waited for the host.
    decoded: number of slots -> the calls with as many.
    step_ends: sampling time at which each training step was complete, seconds.
  """

  prefill_s: float = 0.0
  compact_s: float = 0.0
  decode_s: float = 0.0
  host_s: float = 0.0
  decoded: dict[int, DecodeWork] = dataclasses.field(default_factory=dict)
  step_ends: list[float] = dataclasses.field(default_factory=list)

  @property
  def seconds(self) -> float:
    """Total seconds of sampling."""
    return self.prefill_s + self.compact_s + self.decode_s + self.host_s

  @property
  def calls(self) -> int:
    """Number of decode calls."""
    return sum(work.calls for work in self.decoded.values())

  @property
  def steps(self) -> int:
    """Decode iterations over all calls."""
    return sum(work.steps for work in self.decoded.values())

  @property
  def slot_steps(self) -> int:
    """Decode iterations times slots, over all calls."""
    return sum(slots * work.steps for slots, work in self.decoded.items())

  @property
  def tokens(self) -> int:
    """Tokens of all completions."""
    return sum(work.tokens for work in self.decoded.values())

  @property
  def busy(self) -> float:
    """Fraction of slot iterations that produced a token."""
    return self.tokens / self.slot_steps if self.slot_steps else 0.0


@dataclasses.dataclass(frozen=True)
class PromptLoad:
  """A prompt and the lengths of its completions.

  Attributes:
    tokens: length of the prompt.
    completions: length of each completion, at least 1.
    follow_ups: prompts that are submitted once its completions have ended.
  """

  tokens: int
  completions: tuple[int, ...]
  follow_ups: "tuple[PromptLoad, ...]" = ()


class _CostEngine(LengthEngine):
  """An engine that adds up the cost of each call."""

  def __init__(
    self,
    rules: Rules,
    costs: SamplerCosts,
    length: Callable[[int, int], int],
  ):
    super().__init__(rules.shapes, length)
    self._rules, self._costs = rules, costs
    self.simulated = SimulatedSampling()

  def compact(self, slots: Any, kept: Int[np.ndarray, " kept"]) -> Any:
    """Changes the number of slots."""
    if len(kept) != len(slots.done):
      self.simulated.compact_s += self._costs.compact_s.get(len(kept), 0.0)
    return super().compact(slots, kept)

  def prefill(self, params: Any, pool: Any, batch: Any) -> Any:
    """Runs a prefill call."""
    call_s, page_s = self._costs.prefill_s[batch.tokens.shape[1]]
    pages = self.shapes.pages_for(int(batch.starts.max()))
    self.simulated.prefill_s += call_s + pages * page_s
    return super().prefill(params, pool, batch)

  def decode(
    self,
    params: Any,
    pool: Any,
    slots: Any,
    changes: Any,
    stop_ids: Int[np.ndarray, " I"],
    min_live: int,
  ) -> tuple[Any, Any, Any]:
    """Runs a call of the decode loop."""
    pool, slots, output = super().decode(
      params, pool, slots, changes, stop_ids, min_live
    )
    generated: Any = output.num_generated
    # Decode returns before all slots are done, so live slots got new tokens.
    cached = (slots.length - generated)[generated > 0]
    count, steps = len(generated), int(generated.max())
    cost, done = self._costs.decode[count], self.simulated
    pages = self._rules.pages_read(cached, count)
    done.decode_s += cost.call_s + steps * (cost.token_s + pages * cost.page_s)
    host = self._costs.host
    done.host_s += host.call_s + count * host.slot_s
    if (slots.done & (generated > 0)).any():
      done.host_s += host.exchange_s
    work = done.decoded.setdefault(count, DecodeWork())
    work.calls += 1
    work.steps += steps
    work.tokens += int(generated.sum())
    return pool, slots, output


class _Tokenizer:
  """Decodes nothing: the engine alone decides where completions end."""

  eos_ids = (_END,)

  def decode(self, ids: Sequence[int]) -> str:
    """Returns an empty text."""
    return ""

  def token_id(self, text: str) -> None:
    """Returns None: no text is a token."""


def sample(
  prompts: Sequence[PromptLoad], rules: Rules, costs: SamplerCosts
) -> SimulatedSampling:
  """Simulates a stream until its last sequence ends.

  Args:
    prompts: the prompts, none longer than the largest bucket.
    rules: the scheduler's settings.
    costs: the costs of device calls.
  """
  return sample_steps([prompts], 0, rules, costs)


def sample_steps(
  steps: Sequence[Sequence[PromptLoad]],
  max_staleness: int,
  rules: Rules,
  costs: SamplerCosts,
) -> SimulatedSampling:
  """Simulates the sampling of several training steps.

  The prompts of the next `max_staleness` steps are submitted together with the
  oldest step's. When the oldest step ends, all other sequences are prefilled
  again, because the parameters change.

  Args:
    steps: the prompts of each step, none longer than the largest bucket.
    max_staleness: number of steps that are sampled ahead.
    rules: the scheduler's settings.
    costs: the costs of device calls.
  """
  run = _Run(rules, costs, max(map(_longest, itertools.chain(*steps))))
  simulated = run.engine.simulated
  simulated.host_s += costs.request_s * len(steps)
  submitted = 0
  for oldest in range(len(steps)):
    run.stream.suspend()
    while submitted <= min(oldest + max_staleness, len(steps) - 1):
      for prompt in steps[submitted]:
        run.submit(prompt, submitted)
      submitted += 1
    while run.unfinished[oldest]:
      run.go_round()
    simulated.step_ends.append(simulated.seconds)
  return simulated


class _Run:
  """A stream on a simulated engine.

  Attributes:
    engine: adds up the simulated work.
    stream: samples on the engine.
    unfinished: step -> number of its completions that have not ended.
  """

  def __init__(self, rules: Rules, costs: SamplerCosts, longest: int):
    """Opens the stream.

    Args:
      rules: the scheduler's settings.
      costs: the costs of device calls.
      longest: tokens of the longest completion.
    """
    shapes = rules.shapes
    shapes = dataclasses.replace(
      shapes, longest=shapes.prompt_buckets[-1] + longest - 1
    )
    self._completions: list[tuple[int, ...]] = []
    self.engine = _CostEngine(
      dataclasses.replace(rules, shapes=shapes),
      costs,
      lambda number, sample: self._completions[number][sample],
    )
    tokenizer: Any = _Tokenizer()
    self.stream = Stream(
      cast(Engine, self.engine),
      tokenizer,
      ResponseEnds(tokenizer),
      Meter(),
      Weights({}),
      longest,
      shares_prefixes=False,
    )
    self.unfinished: dict[int, int] = collections.defaultdict(int)
    self._follow_ups: list[tuple[PromptLoad, int]] = []

  def submit(self, prompt: PromptLoad, step: int) -> None:
    """Submits a prompt of a step."""
    number, left = len(self._completions), len(prompt.completions)
    self._completions.append(prompt.completions)
    self.unfinished[step] += left

    def end(_: Any) -> None:
      nonlocal left
      left -= 1
      self.unfinished[step] -= 1
      if not left:
        self._follow_ups += [(one, step) for one in prompt.follow_ups]

    _, futures = self.stream.submit(
      types.Prompt("", (_TOKEN,) * prompt.tokens),
      left,
      SampleKey(np.zeros(2, np.uint32), number),
      priority=(step,),
    )
    for future in futures:
      future.add_done_callback(end)

  def go_round(self) -> None:
    """Runs one decode call and submits the prompts that follow."""
    is_sent = self.stream.send()
    follow_ups, self._follow_ups = self._follow_ups, []
    for prompt, step in follow_ups:
      self.submit(prompt, step)
    if is_sent:
      self.stream.fetch()


def _longest(prompt: PromptLoad) -> int:
  """Returns the length of the longest completion, follow-ups included."""
  return max(*prompt.completions, 1, *map(_longest, prompt.follow_ups))
