"""Picks the pending tokens of the next call of prefill."""

import collections
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from azr_jax.rollout.engine import Engine
from azr_jax.rollout.page_pool import CachedTokens
from azr_jax.rollout.prefill import PrefillBatch
from azr_jax.rollout.sequence import Request, SequenceState


class Pending(Protocol):
  """A prompt or a sequence of which not all tokens are cached."""

  @property
  def cached(self) -> CachedTokens | None:
    """Its cached tokens."""
    ...

  @property
  def num_uncached(self) -> int:
    """Tokens to prefill before its first or next one can be sampled."""
    ...

  def next_tokens(self, count: int) -> tuple[int, ...]:
    """Returns the first tokens that are not cached."""
    ...


@dataclasses.dataclass(eq=False)
class PromptGroup:
  """Sequences that share one prefilled prompt.

  Attributes:
    request: the prompt.
    waiting: its sequences that have not begun.
    cached: the prompt's tokens that are cached.
  """

  request: Request
  waiting: collections.deque[SequenceState]
  cached: CachedTokens

  @property
  def num_uncached(self) -> int:
    """Tokens to prefill: all but the last one."""
    return len(self.request.prompt.token_ids) - 1 - self.cached.count

  def next_tokens(self, count: int) -> tuple[int, ...]:
    """Returns the first tokens that are not cached."""
    start = self.cached.count
    return tuple(self.request.prompt.token_ids[start : start + count])


def next_batch(
  engine: Engine,
  waiting: Iterable[Pending],
  allocate: Callable[[CachedTokens, int], bool],
) -> PrefillBatch | None:
  """Returns the batch of the next call, and counts its tokens as cached.

  The call is as wide as the first one needs; others fill the rest of its rows.

  Args:
    engine: the compiled functions.
    waiting: prompts and sequences, the first ones first.
    allocate: takes pages for cached tokens, so that there is room for so many.

  Returns:
    The tokens; None if there are none, or no pages for them.
  """
  pending = [item for item in waiting if item.num_uncached]
  if not pending:
    return None
  chunk = engine.prefill_chunk(pending[0].num_uncached)
  rows = engine.prefill_rows(chunk) // engine.devices
  batch = empty_batch(engine, chunk)
  used, blocked = [0] * engine.devices, set()
  for item in pending:
    cached = item.cached
    assert cached is not None
    count = min(chunk, item.num_uncached)
    device = cached.device
    if device in blocked or used[device] == rows:
      continue
    if not allocate(cached, cached.count + count):
      # Pages that become free are for this one, not for those behind it.
      blocked.add(device)
      continue
    row = device * rows + used[device]
    used[device] += 1
    batch.tokens[row, :count] = item.next_tokens(count)
    batch.starts[row] = cached.count
    batch.counts[row] = count
    batch.table[row, : len(cached.pages)] = cached.pages
    cached.count += count
  return batch if any(used) else None


def empty_batch(engine: Engine, chunk: int) -> PrefillBatch:
  """Returns the rows of a call with such chunks, without tokens."""
  rows = engine.prefill_rows(chunk)

  def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.int32)

  return PrefillBatch(
    tokens=zeros(rows, chunk),
    starts=zeros(rows),
    counts=zeros(rows),
    table=zeros(rows, engine.max_pages_per_row),
  )
