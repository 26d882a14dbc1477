"""Chooses the pending tokens of the next prefill call."""

import collections
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from azr_jax.rollout.page_pool import CachedTokens, PagePool
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.shapes import EngineShapes
from azr_jax.rollout.steps import PrefillBatch


class Pending(Protocol):
  """A prompt or sequence with uncached tokens."""

  @property
  def request(self) -> Request:
    """Its request."""
    ...

  @property
  def cached(self) -> CachedTokens | None:
    """The cached tokens."""
    ...

  @property
  def num_uncached(self) -> int:
    """Number of tokens to prefill before the next token can be sampled."""
    ...

  def next_tokens(self, count: int) -> tuple[int, ...]:
    """Returns the first uncached tokens."""
    ...


@dataclasses.dataclass(eq=False)
class PromptGroup:
  """Sequences that share one prefilled prompt.

  Attributes:
    request: the request of the prompt.
    waiting: sequences that have not started yet.
    cached: the prompt's cached tokens.
    num_reused: number of cached tokens that came from the prefix cache.
  """

  request: Request
  waiting: collections.deque[SequenceState]
  cached: CachedTokens
  num_reused: int = 0

  @property
  def token_ids(self) -> tuple[int, ...]:
    """The tokens shared by its sequences: all of the prompt but the last."""
    return tuple(self.request.prompt.token_ids[:-1])

  @property
  def num_uncached(self) -> int:
    """Number of tokens to prefill, not counting the last one."""
    return len(self.request.prompt.token_ids) - 1 - self.cached.count

  @property
  def has_begun(self) -> bool:
    """Whether the group holds any pages."""
    return bool(self.cached.pages)

  def reuse(self, pages: PagePool) -> None:
    """Starts from the known pages of the prompt's prefix, if any."""
    adapter = self.request.adapter
    self.cached = pages.share_known(self.cached.device, self.token_ids, adapter)
    self.num_reused = self.cached.count

  def release(self, pages: PagePool) -> None:
    """Releases the group's pages; it can start again later."""
    pages.release(self.cached)
    self.num_reused = 0

  def next_tokens(self, count: int) -> tuple[int, ...]:
    """Returns the first uncached tokens."""
    start = self.cached.count
    return tuple(self.request.prompt.token_ids[start : start + count])


def next_batch(
  shapes: EngineShapes,
  pages: PagePool,
  waiting: Iterable[Pending],
  allocate: Callable[[CachedTokens, int], bool],
) -> PrefillBatch | None:
  """Returns the batch of the next prefill call and marks its tokens as cached.

  An uncached prompt starts from the known pages of its prefix. The pages that
  this call fills become known.

  Args:
    shapes: the sizes of device calls.
    pages: the page pool, with its known pages.
    waiting: prompts and sequences, in order of precedence.
    allocate: allocates pages for the given total number of tokens; returns
      whether there were enough.

  Returns:
    The batch, or None if there are no pending tokens or no pages for them.
  """
  pending = [item for item in waiting if item.num_uncached]
  if not pending:
    return None
  chunk = _chunk(shapes, pages, pending)
  rows = shapes.prefill_rows(chunk) // shapes.devices
  batch = empty_batch(shapes, chunk)
  used, blocked = [0] * shapes.devices, set()
  prefilled = []
  for item in pending:
    assert item.cached is not None
    device = item.cached.device
    if device in blocked:
      continue
    if isinstance(item, PromptGroup) and not item.has_begun:
      item.reuse(pages)
    if not item.num_uncached or used[device] == rows:
      continue
    cached = item.cached
    count = min(chunk, item.num_uncached)
    if not allocate(cached, cached.count + count):
      # Pages that become free go to this item, not to those behind it.
      blocked.add(device)
      if isinstance(item, PromptGroup) and cached.count == item.num_reused:
        item.release(pages)
      continue
    row = device * rows + used[device]
    used[device] += 1
    batch.tokens[row, :count] = item.next_tokens(count)
    batch.starts[row] = cached.count
    batch.counts[row] = count
    batch.table[row, : len(cached.pages)] = cached.pages
    batch.adapter[row] = item.request.adapter.index
    cached.count += count
    prefilled.append(item)
  # Do this after all rows are set, because rows of one call do not see each
  # other's writes.
  for item in prefilled:
    if isinstance(item, PromptGroup):
      pages.remember(item.cached, item.token_ids, item.request.adapter)
  return batch if prefilled else None


def num_to_prefill(pages: PagePool, item: Pending) -> int:
  """Returns the number of an item's tokens that must be prefilled."""
  if isinstance(item, PromptGroup) and not item.has_begun:
    [known] = pages.num_known(
      [item.cached.device], item.token_ids, item.request.adapter
    )
    return item.num_uncached - known
  return item.num_uncached


def _chunk(
  shapes: EngineShapes, pages: PagePool, pending: Iterable[Pending]
) -> int:
  """Returns the chunk length of the call.

  It is the length that the widest item needs if a call of that length has room
  for all items, and otherwise the length that the first item needs.
  """
  wanted = [(item, num_to_prefill(pages, item)) for item in pending]
  wanted = [(item, tokens) for item, tokens in wanted if tokens]
  if not wanted:
    return shapes.prefill_chunks[0]
  widest = shapes.prefill_chunk(max(tokens for _, tokens in wanted))
  per_device = collections.Counter(
    item.cached.device for item, _ in wanted if item.cached is not None
  )
  if max(per_device.values()) * shapes.devices <= shapes.prefill_rows(widest):
    return widest
  return shapes.prefill_chunk(wanted[0][1])


def empty_batch(shapes: EngineShapes, chunk: int) -> PrefillBatch:
  """Returns an empty batch with rows of `chunk` tokens."""
  rows = shapes.prefill_rows(chunk)

  def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.int32)

  return PrefillBatch(
    tokens=zeros(rows, chunk),
    starts=zeros(rows),
    counts=zeros(rows),
    table=zeros(rows, shapes.max_pages_per_row),
    adapter=zeros(rows),
  )
