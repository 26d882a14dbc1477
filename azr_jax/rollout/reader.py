"""Chooses which waiting tokens the device reads next."""

import collections
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from azr_jax.rollout.engine import Engine
from azr_jax.rollout.page_pool import CachedTokens
from azr_jax.rollout.read import Reading
from azr_jax.rollout.sequence import Request, SequenceState


class Unread(Protocol):
  """A prompt or a sequence of which not all tokens are cached."""

  @property
  def cached(self) -> CachedTokens | None:
    """Its cached tokens."""
    ...

  @property
  def unread(self) -> int:
    """How many tokens must be read before its first or next one is sampled."""
    ...

  def next_tokens(self, count: int) -> tuple[int, ...]:
    """Returns the first tokens that are not cached."""
    ...


@dataclasses.dataclass(eq=False)
class PromptGroup:
  """Sequences of a prompt that is read once for all of them.

  Attributes:
    request: the prompt.
    waiting: its sequences that have not begun.
    cached: the prompt's tokens that are cached.
  """

  request: Request
  waiting: collections.deque[SequenceState]
  cached: CachedTokens

  @property
  def unread(self) -> int:
    """How many tokens are to be read: all but the last one."""
    return len(self.request.prompt.token_ids) - 1 - self.cached.count

  def next_tokens(self, count: int) -> tuple[int, ...]:
    """Returns the first tokens that are not cached."""
    start = self.cached.count
    return tuple(self.request.prompt.token_ids[start : start + count])


def next_parts(
  engine: Engine,
  waiting: Iterable[Unread],
  grow: Callable[[CachedTokens, int], bool],
) -> Reading | None:
  """Returns what one call reads, and counts it as cached.

  The call is as wide as the first one needs; others fill the rest of its rows.

  Args:
    engine: the compiled functions.
    waiting: prompts and sequences, the first ones first.
    grow: takes pages for cached tokens, so that there is room for so many.

  Returns:
    The tokens; None if there are none, or no pages for them.
  """
  unread = [one for one in waiting if one.unread]
  if not unread:
    return None
  width = engine.read_width(unread[0].unread)
  rows = engine.read_rows(width) // engine.devices
  reading = no_reading(engine, width)
  used, blocked = [0] * engine.devices, set()
  for one in unread:
    cached = one.cached
    assert cached is not None
    count = min(width, one.unread)
    device = cached.device
    if device in blocked or used[device] == rows:
      continue
    if not grow(cached, cached.count + count):
      # Pages that come free are for this one, not for those behind it.
      blocked.add(device)
      continue
    row = device * rows + used[device]
    used[device] += 1
    reading.tokens[row, :count] = one.next_tokens(count)
    reading.starts[row] = cached.count
    reading.counts[row] = count
    reading.table[row, : len(cached.pages)] = cached.pages
    cached.count += count
  return reading if any(used) else None


def no_reading(engine: Engine, width: int) -> Reading:
  """Returns the rows of a call of some width, without tokens."""
  rows = engine.read_rows(width)

  def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.int32)

  return Reading(
    tokens=zeros(rows, width),
    starts=zeros(rows),
    counts=zeros(rows),
    table=zeros(rows, engine.pages_of_row),
  )
