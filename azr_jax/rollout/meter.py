"""Measures sampling from what the host already knows, without waiting.

The scheduler fetches the tokens of each decode call anyway. They determine how
many iterations the call ran, how many slots were live and how long their caches
were. The meter also records when programs were sent and when their results were
first seen ready; it never waits for them.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

# (start, end) by the meter's clock.
Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Counts:
  """Totals over a period of sampling.

  Attributes:
    tokens: tokens that the model wrote in completions.
    calls: decode calls.
    iterations: iterations of the decode loop, over all calls.
    slot_steps: iterations times slots.
    live_slot_steps: slot steps in which the slot's sequence got a token.
    decoded: decoded tokens, including those past the end of a response.
    alone_s: seconds of the decode calls that ran alone, with no other program
      sent since the previous call.
    alone_steps: iterations of the calls that ran alone.
    alone_entries: cache entries that the tokens of these calls attended to.
    prefilled: prefilled tokens.
    reused: tokens of prompts and of preempted sequences found in the prefix
      cache instead.
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
    # `dataclasses.astuple` would deep-copy every number in every call.
    return Counts(
      *(getattr(self, name) + getattr(other, name) for name in _COUNTS)
    )


_COUNTS = tuple(field.name for field in dataclasses.fields(Counts))


@dataclasses.dataclass
class Meter:
  """A sampler's activity since the last `take`.

  Attributes:
    counts: totals of what was sampled.
    busy: when its programs were on the device or queued there.
    spans: when it was working on requests, host work included.
    now: the clock of all times, in seconds.
  """

  counts: Counts = Counts()
  busy: list[Interval] = dataclasses.field(default_factory=list)
  spans: list[Interval] = dataclasses.field(default_factory=list)
  now: Callable[[], float] = dataclasses.field(
    default=time.monotonic, compare=False, repr=False
  )

  @contextlib.contextmanager
  def spanning(self) -> Iterator[None]:
    """Adds the start and end of the `with` block to `spans`."""
    start = self.now()
    try:
      with jax.profiler.TraceAnnotation("rollout"):
        yield
    finally:
      self.spans.append((start, self.now()))

  def take(self) -> "Meter":
    """Returns the activity since the last call and resets it."""
    taken = dataclasses.replace(self)
    self.counts, self.busy, self.spans = Counts(), [], []
    return taken


class RequestMeter:
  """Records the calls of one request in a sampler's meter."""

  def __init__(self, meter: Meter) -> None:
    self._meter = meter
    self._sent_at: float | None = None
    self._ready_at: float | None = None
    self._alone = True

  def record_dispatch(self) -> None:
    """Records that a program other than the decode loop is about to be sent."""
    self._alone = False
    self.record_decode_dispatch()

  def record_prefill(self, tokens: int) -> None:
    """Records that tokens are about to be prefilled."""
    self._meter.counts += Counts(prefilled=tokens)
    self.record_dispatch()

  def record_reuse(self, tokens: int) -> None:
    """Counts tokens found in the prefix cache."""
    self._meter.counts += Counts(reused=tokens)

  def record_decode_dispatch(self) -> None:
    """Records that a decode call is about to be sent."""
    if self._sent_at is None:
      self._sent_at = self._meter.now()

  def check_ready(self, result: Any) -> None:
    """Checks without waiting whether the decode call has finished.

    Args:
      result: an array that the call returned.
    """
    if self._ready_at is None and result.is_ready():
      self._ready_at = self._meter.now()

  def fetched(
    self,
    num_generated: Int[np.ndarray, " B"],
    iterations: Int[np.ndarray, " B"],
    lengths: Int[np.ndarray, " B"],
  ) -> None:
    """Counts a call whose tokens have been fetched.

    Args:
      num_generated: the number of tokens each slot got.
      iterations: the number of iterations in which it got them.
      lengths: the cache length of each slot before the call; ignored
        for slots that got no tokens.
    """
    end = self._ready_at or self._meter.now()
    start = end if self._sent_at is None else self._sent_at
    steps = int(iterations.max(initial=0))
    # A slot that is done gets no more tokens, so it got its tokens in the first
    # iterations. Its n-th iteration also attends to this call's earlier tokens,
    # of which there are n - 1 without drafts.
    new, live = num_generated.astype(np.int64), iterations.astype(np.int64)
    own = (new - 1) * live // 2
    entries = int(np.sum(live * lengths + own))
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
    """Counts the tokens that the model wrote in a finished sequence."""
    self._meter.counts += Counts(tokens=tokens)
