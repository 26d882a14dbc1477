"""Allocates pages, and decides who loses theirs when pages run out.

Pages are reclaimed in this order:
1. unused pages that still cache tokens (`page_pool.py`);
2. pages of sequences that wait for tools;
3. pages of prompts that were prefilled ahead of time;
4. pages of the sequences that started last.
Whatever loses its pages is prefilled again later.

With `rollout.max_staleness` the update waits for the earliest step. Within each
of these classes, the latest step in flight therefore loses its pages first, and
decoding sequences take no pages from prompts of earlier steps while sequences
of their own step still have pages to give.
"""

from collections.abc import Callable, Iterable

import numpy as np

from azr_jax.rollout.page_pool import CachedTokens, PagePool
from azr_jax.rollout.prefill_scheduler import PromptGroup
from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.sequence_stages import Owner, Stages, on_device
from azr_jax.rollout.slots import SlotTable


class PageAllocator:
  """Allocates the pages of a scheduler's sequences."""

  def __init__(
    self,
    pages: PagePool,
    stages: Stages,
    slots: SlotTable,
    decode_chunk: int,
    note: Callable[[SequenceState], None],
  ):
    """Creates the allocator; no pages are allocated yet.

    Args:
      pages: the page pool.
      stages: the scheduler's sequences.
      slots: the slots of these sequences.
      decode_chunk: N, the maximum number of tokens per slot and decode call.
      note: is called with a sequence before its pages are freed.
    """
    self._pages, self._decode_chunk = pages, decode_chunk
    self._note = note
    self._stages, self._slots = stages, slots

  def allocate(
    self, cached: CachedTokens, tokens: int, is_urgent: bool = False
  ) -> bool:
    """Allocates pages for the first `tokens` tokens of a cache.

    If too few are free, it takes pages of sequences that wait for a tool.

    Args:
      cached: the cache that gets the pages.
      tokens: number of tokens the cache must have room for.
      is_urgent: whether the last free pages may be used. If not, one page stays
        free for each decoding sequence that will need another.

    Returns:
      Whether there were enough pages.
    """
    while not self._pages.allocate(
      cached, tokens, 0 if is_urgent else self._reserve(cached, tokens)
    ):
      idle = on_device(self._stages.awaiting_tools, cached.device)
      if not idle:
        return False
      self._give_up(_by_step(idle)[-1])
    return True

  def _reserve(self, cached: CachedTokens, tokens: int) -> int:
    """Returns how many pages must stay free; 0 if there are plenty."""
    missing = self._pages.missing(cached, tokens)
    spare = self._pages.num_free(cached.device) - missing
    if missing <= 0 or spare >= self._slots.per_device:
      return 0
    return self._slots.num_growing(cached.device)

  def allocate_call(
    self, sequence: SequenceState, cached: CachedTokens
  ) -> bool:
    """Allocates pages for the tokens of one decode call; returns success."""
    tokens = cached.count + self._decode_chunk
    return self.allocate(cached, min(tokens, sequence.max_cached))

  def allocate_running(self) -> None:
    """Allocates pages for the next decode call of every running sequence.

    If too few are free, it preempts sequences of the last step, the youngest
    first.
    """
    growing = self._slots.growing(self._decode_chunk)
    running = self._stages.running
    for sequence, tokens in sorted(growing, key=lambda pair: _step(pair[0])):
      cached = sequence.cached
      while sequence in running and cached is not None:
        if self.allocate(cached, tokens, is_urgent=True):
          self._slots.update_pages(sequence)
          break
        decoding = self._slots.on_device(cached.device)
        # The only decoding sequence may take any page; otherwise nothing would
        # decode.
        step = _step(sequence) if len(decoding) > 1 else ()
        if not self._reclaim(cached.device, 0, step):
          last = _by_step(decoding)[-1]
          self._slots.leave(last)
          self._preempt(last)

  def drop(self, sequence: SequenceState) -> None:
    """Frees a sequence's pages, if it has any."""
    if sequence.cached is not None:
      self._note(sequence)
      self._pages.release(sequence.cached)
      sequence.cached = None

  def _give_up(self, sequence: SequenceState) -> None:
    """Frees a sequence's pages but keeps their tokens indexed.

    When it is prefilled again, it reuses the pages that were not taken.
    """
    if sequence.cached is not None:
      # Pages that are known for the same tokens may hold other experts.
      self._note(sequence)
      self._pages.remember(
        sequence.cached, sequence.all_ids, sequence.request.adapter
      )
    self.drop(sequence)

  def free_some(self) -> bool:
    """Frees pages on devices that cannot decode because they lack pages.

    Returns:
      Whether any page was freed. On each device, the oldest prompt or sequence
      of the first step keeps its pages.
    """
    idle = np.flatnonzero(self._slots.num_live == 0).tolist()
    return any(self._reclaim(device, keep=1) for device in idle)

  def _reclaim(
    self, device: int, keep: int, step: tuple[int, ...] = ()
  ) -> bool:
    """Frees the pages of the youngest waiting prompt or sequence.

    The last step loses pages first, and within a step prompts lose theirs
    before sequences. Whatever loses its pages is prefilled again later.

    Args:
      device: the device that needs free pages.
      keep: number of waiting prompts and sequences that must keep their pages.
      step: prompts and sequences of earlier steps keep their pages; () protects
        none.

    Returns:
      Whether any pages were freed.
    """
    stages = self._stages
    waiting = [
      *on_device(stages.resuming, device),
      *on_device(stages.groups, device),
    ]
    waiting = _by_step(one for one in waiting if _step(one) >= step)[keep:]
    if not waiting:
      return False
    last = waiting[-1]
    if isinstance(last, PromptGroup):
      stages.groups.remove(last)
      last.release(self._pages)
      stages.queue.add(last.request, last.waiting)
    else:
      stages.resuming.remove(last)
      self._preempt(last)
    return True

  def _preempt(self, sequence: SequenceState) -> None:
    """Frees a sequence's pages and puts it back into the queue."""
    self._give_up(sequence)
    self._stages.queue.add(sequence.request, [sequence])


def _step(owner: SequenceState | PromptGroup) -> tuple[int, ...]:
  """Returns the step of the owner's policy, the first part of its priority."""
  return owner.request.priority[:1]


def _by_step(owners: Iterable[Owner]) -> list[Owner]:
  """Returns the owners sorted by step, in a stable order."""
  return sorted(owners, key=_step)
