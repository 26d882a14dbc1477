"""Pages for sequences and prompts, and who gives theirs up where they run out.

First, pages that no sequence uses forget their tokens (`page_pool.py`). Then
sequences that wait for tools give up theirs, then prompts that were prefilled
ahead, then the sequences that began last. What was given up is prefilled again
later.

With `rollout.max_staleness` the update waits for the earliest step. So of each
of these the last step's give theirs up first, and sequences that decode take
none from prompts of earlier steps while others of their own can give theirs.
"""

import itertools
from collections.abc import Iterable

from azr_jax.rollout.engine import Engine
from azr_jax.rollout.page_pool import CachedTokens, PagePool
from azr_jax.rollout.prefill_scheduler import PromptGroup
from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.sequence_stages import Owner, Stages, on_device
from azr_jax.rollout.slots import SlotTable


class PageAllocator:
  """Allocates the pages of a scheduler's sequences."""

  def __init__(
    self, engine: Engine, pages: PagePool, stages: Stages, slots: SlotTable
  ):
    """Allocates nothing yet.

    Args:
      engine: the compiled functions.
      pages: which pages are free.
      stages: the scheduler's sequences.
      slots: their slots.
    """
    self._engine, self._pages = engine, pages
    self._stages, self._slots = stages, slots

  def allocate(
    self, cached: CachedTokens, tokens: int, is_urgent: bool = False
  ) -> bool:
    """Allocates pages for the first `tokens` tokens of a cache.

    If too few are free, it takes the pages of sequences that await a tool.

    Args:
      cached: gets the pages.
      tokens: how many tokens the cache must have room for.
      is_urgent: whether the last free pages may be taken. If not, a page stays
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
    """Returns how many pages must stay free, as `allocate` says.

    It counts no further than decides whether enough are free, because it is
    asked for each sequence that enters a slot.
    """
    missing = self._pages.missing(cached, tokens)
    spare = self._pages.num_free(cached.device) - missing
    running = self._stages.running
    if missing <= 0 or spare >= len(running):
      return 0
    growing = (
      1
      for s in running
      if s.cached is not None
      and s.cached.device == cached.device
      and self._pages.missing(s.cached, s.max_cached) > 0
    )
    return sum(itertools.islice(growing, max(0, spare + 1)))

  def allocate_call(
    self, sequence: SequenceState, cached: CachedTokens
  ) -> bool:
    """Allocates pages for the tokens of one decode call; returns success."""
    tokens = cached.count + self._engine.settings.decode_chunk
    return self.allocate(cached, min(tokens, sequence.max_cached))

  def allocate_running(self) -> None:
    """Allocates pages for the next decode call of every running sequence.

    If too few are free, the sequences of the last step that started last are
    preempted.
    """
    steps = self._engine.settings.decode_chunk
    waiting = _by_step(self._stages.running)
    while waiting:
      sequence = waiting.pop(0)
      cached = sequence.cached
      assert cached is not None
      tokens = min(cached.count + steps, sequence.max_cached)
      while not self.allocate(cached, tokens, is_urgent=True):
        decoding = on_device(self._stages.running, cached.device)
        # The only one goes on, or nothing would decode.
        step = _step(sequence) if len(decoding) > 1 else ()
        if self._reclaim(cached.device, 0, step):
          continue
        last = _by_step(decoding)[-1]
        self._slots.leave(last)
        self._preempt(last)
        if last is sequence:
          break
        waiting.remove(last)

  def drop(self, sequence: SequenceState) -> None:
    """Frees the pages of a sequence, if it has any."""
    if sequence.cached is not None:
      self._pages.release(sequence.cached)
      sequence.cached = None

  def _give_up(self, sequence: SequenceState) -> None:
    """Frees the pages of a sequence, which will be prefilled again.

    It finds those again whose room was not needed until then.
    """
    if sequence.cached is not None:
      self._pages.remember(sequence.cached, sequence.all_ids)
    self.drop(sequence)

  def free_some(self) -> bool:
    """Frees pages on devices where nothing decodes because too few are free.

    Returns:
      Whether any page was freed. On each device, the prompt or sequence of the
      first step that started first keeps its pages.
    """
    idle = [
      device
      for device in range(self._engine.devices)
      if not on_device(self._stages.running, device)
    ]
    return any(self._reclaim(device, keep=1) for device in idle)

  def _reclaim(
    self, device: int, keep: int, step: tuple[int, ...] = ()
  ) -> bool:
    """Frees the pages of the waiting prompt or sequence that started last.

    The last step's go first, and of these prompts. Whatever loses its pages is
    prefilled again later.

    Args:
      device: the device that needs free pages.
      keep: how many waiting prompts and sequences must keep their pages.
      step: those of earlier steps keep theirs, too; (): there are none.

    Returns:
      Whether one lost its pages.
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
    """Puts a sequence into the queue again, to be prefilled later."""
    self._give_up(sequence)
    self._stages.queue.add(sequence.request, [sequence])


def _step(owner: SequenceState | PromptGroup) -> tuple[int, ...]:
  """Returns the step of its policy; numbers of calls follow in priorities."""
  return owner.request.priority[:1]


def _by_step(owners: Iterable[Owner]) -> list[Owner]:
  """Returns those of the last step at the end, and else keeps their order."""
  return sorted(owners, key=_step)
