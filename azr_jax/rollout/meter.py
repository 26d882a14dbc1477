"""Counts what sampling does, from what the host knows without waiting.

The scheduler fetches the tokens of each call of the decode loop anyway. How
many iterations the call had, how many slots were live in them, and how long
their caches were, follows from these. A clock reads when programs were sent and
when their results were first seen to be there; nothing waits for the clock.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

# When something began and ended, by `time.monotonic`.
Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Counts:
  """What was sampled.

  Attributes:
    tokens: that the model wrote and completions hold.
    calls: of the decode loop.
    iterations: of the decode loop, in all calls.
    slot_steps: iterations of the decode loop, times its slots.
    live_slot_steps: those in which the slot's sequence got a token.
    decoded: tokens of the decode loop, those after the end of a response too.
    alone_s: seconds of the calls of the decode loop that ran alone: no other
      program was sent between the call before and this one.
    alone_steps: iterations of these calls.
    alone_entries: cache entries that their tokens attended to.
    prefilled: tokens that were prefilled.
    reused: tokens of prompts, and of sequences that were preempted, that were
      found in the cache instead.
  """

  tokens: int = 0
  calls: int = 0
  iterations: int = 0
  slot_steps: int = 0
  live_slot_steps: int = 0
  decoded: int = 0
  alone_s: float = 0.0
  alone_steps: int = 0
  alone_entries: int = 0
  prefilled: int = 0
  reused: int = 0

  def __add__(self, other: "Counts") -> "Counts":
    # `dataclasses.astuple` would copy each number deeply, in every call.
    return Counts(
      *(getattr(self, name) + getattr(other, name) for name in _COUNTS)
    )


_COUNTS = tuple(field.name for field in dataclasses.fields(Counts))


@dataclasses.dataclass
class Meter:
  """What a sampler has done since `take` was last called.

  Attributes:
    counts: what it sampled.
    busy: when its programs were on the device, or waited for others there.
    spans: when it was asked for completions, with what was done between them.
  """

  counts: Counts = Counts()
  busy: list[Interval] = dataclasses.field(default_factory=list)
  spans: list[Interval] = dataclasses.field(default_factory=list)

  @contextlib.contextmanager
  def spanning(self) -> Iterator[None]:
    """Notes when its block begins and ends among `spans`."""
    start = time.monotonic()
    try:
      with jax.profiler.TraceAnnotation("rollout"):
        yield
    finally:
      self.spans.append((start, time.monotonic()))

  def take(self) -> "Meter":
    """Returns what was done since the last call."""
    taken = dataclasses.replace(self)
    self.counts, self.busy, self.spans = Counts(), [], []
    return taken


class RequestMeter:
  """Counts the calls of one request into a sampler's meter."""

  def __init__(
    self, meter: Meter, now: Callable[[], float] = time.monotonic
  ) -> None:
    self._meter = meter
    self._now = now
    self._sent_at: float | None = None
    self._ready_at: float | None = None
    self._alone = True

  def record_dispatch(self) -> None:
    """Notes that a program other than the decode loop is about to be sent."""
    self._alone = False
    self.record_decode_dispatch()

  def record_prefill(self, tokens: int) -> None:
    """Notes that so many tokens are about to be prefilled."""
    self._meter.counts += Counts(prefilled=tokens)
    self.record_dispatch()

  def record_reuse(self, tokens: int) -> None:
    """Counts tokens that were found in the cache."""
    self._meter.counts += Counts(reused=tokens)

  def record_decode_dispatch(self) -> None:
    """Notes that a call of the decode loop is about to be sent."""
    if self._sent_at is None:
      self._sent_at = self._now()

  def check_ready(self, result: Any) -> None:
    """Looks whether the call of the decode loop has ended; does not wait.

    Args:
      result: an array that the call returned.
    """
    if self._ready_at is None and result.is_ready():
      self._ready_at = self._now()

  def fetched(
    self,
    num_generated: np.ndarray,
    iterations: np.ndarray,
    lengths: Sequence[int],
  ) -> None:
    """Counts a call whose tokens have been fetched.

    Args:
      num_generated: int [B], how many tokens each slot got.
      iterations: int [B], of the loop, in which it got them.
      lengths: B numbers of cache entries that each slot's sequence had before
        the call; those of slots that got no tokens do not matter.
    """
    end = self._ready_at or self._now()
    start = end if self._sent_at is None else self._sent_at
    steps = int(iterations.max(initial=0))
    # A slot that is done gets no more tokens, so the tokens of a slot are those
    # of the first iterations. Its n-th one attends to the entries of those
    # before, without drafts n - 1.
    new, live = num_generated.astype(np.int64), iterations.astype(np.int64)
    own = (new - 1) * live // 2
    entries = int(np.sum(live * np.asarray(lengths) + own))
    counts = Counts(
      calls=1,
      iterations=steps,
      slot_steps=steps * len(new),
      live_slot_steps=int(live.sum()),
      decoded=int(new.sum()),
    )
    if self._alone:
      counts += Counts(
        alone_s=end - start, alone_steps=steps, alone_entries=entries
      )
    self._meter.counts += counts
    self._meter.busy.append((start, end))
    self._sent_at = self._ready_at = None
    self._alone = True

  def ended(self, tokens: int) -> None:
    """Counts the tokens that the model wrote in a sequence that has ended."""
    self._meter.counts += Counts(tokens=tokens)
