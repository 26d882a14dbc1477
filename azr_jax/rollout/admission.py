"""Who gets a free slot next: prompts from the queue, and their sequences."""

import collections

from azr_jax.rollout.engine import Engine
from azr_jax.rollout.page_pool import CachedTokens, PagePool
from azr_jax.rollout.preemption import PageAllocator
from azr_jax.rollout.prefill_scheduler import PromptGroup
from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.slots import SlotTable
from azr_jax.rollout.stages import Stages


class Admission:
  """Takes prompts from the queue, and gives slots to what is prefilled."""

  def __init__(
    self,
    engine: Engine,
    pages: PagePool,
    stages: Stages,
    slots: SlotTable,
    allocator: PageAllocator,
  ):
    """Admits nothing yet.

    Args:
      engine: the compiled functions.
      pages: shares and releases pages.
      stages: the scheduler's sequences.
      slots: their slots.
      allocator: takes free pages.
    """
    self._engine, self._pages = engine, pages
    self._stages, self._slots = stages, slots
    self._allocator = allocator

  def prepare_groups(self) -> None:
    """Takes prompts from the queue for devices on which none waits for slots.

    When the queue is empty, such a device takes half of the samples of a prompt
    that waits for slots of another.
    """
    stages, devices = self._stages, range(self._engine.devices)
    served = {group.cached.device for group in stages.groups}
    idle = [device for device in devices if device not in served]
    if not idle:
      return
    if stages.queue:
      fraction = len(idle) / len(devices)
      _, groups = stages.queue.pop(
        lambda bucket: round(fraction * self._engine.prefill_batch_size(bucket))
      )
      for group in groups:
        device = min(idle, key=stages.load)
        stages.groups.append(
          PromptGroup(group.request, group.sequences, CachedTokens(device))
        )
      return
    free = self._slots.free()
    for device in idle:
      largest = max(stages.groups, key=lambda g: len(g.waiting), default=None)
      if largest is not None and len(largest.waiting) > 1 and free[device]:
        count = len(largest.waiting) // 2
        moved = collections.deque(largest.waiting.pop() for _ in range(count))
        stages.groups.append(
          PromptGroup(largest.request, moved, CachedTokens(device))
        )

  def fill_slots(self) -> bool:
    """Fills free slots; returns whether a sequence progressed."""
    stages = self._stages
    free, has_run = self._slots.free(), False
    for sequence in list(stages.resuming):
      assert sequence.cached is not None
      slots = free[sequence.cached.device]
      if not slots:
        continue
      slot = slots.pop()  # It stays reserved if the sequence cannot enter yet.
      if sequence.num_uncached:
        continue
      if self._allocator.allocate_call(sequence, sequence.cached):
        stages.resuming.remove(sequence)
        self._slots.enter(slot, sequence)
        has_run = True
      else:
        slots.clear()  # Pages that become free are for this one.
    for group in stages.groups:
      has_run = self._start_group(group, free) or has_run
    stages.groups = [group for group in stages.groups if group.waiting]
    return has_run

  def _start_group(self, group: PromptGroup, free: list[list[int]]) -> bool:
    """Starts sequences of a prompt, as far as slots and pages are free."""
    slots, began = free[group.cached.device], False
    while group.num_uncached == 0 and group.waiting and slots:
      sequence = group.waiting[0]
      if not self._share_prompt(group, sequence):
        break
      began = True
      group.waiting.popleft()
      slot = slots.pop()
      if sequence.num_uncached:
        self._stages.resuming.append(sequence)
      else:
        self._slots.enter(slot, sequence)
    if not group.waiting:
      self._pages.release(group.cached)
    return began

  def _share_prompt(self, group: PromptGroup, sequence: SequenceState) -> bool:
    """Gives a sequence its prompt's cache; returns whether there are pages."""
    prompt = group.cached
    if len(group.waiting) == 1:
      # The last one needs no copy; what it does not take is released.
      cached = CachedTokens(prompt.device, list(prompt.pages), prompt.count)
      if not self._allocator.allocate_call(sequence, cached):
        return False
      prompt.pages = []
      sequence.cached = cached
      return True
    cached = self._pages.share(prompt)
    if not self._allocator.allocate_call(sequence, cached):
      self._pages.release(cached)
      return False
    sequence.cached = cached
    if cached.count < prompt.count and not sequence.token_ids:
      number = len(prompt.pages) - 1
      self._slots.changes.copy(
        sequence, prompt.pages[number], cached.pages[number]
      )
      cached.count = prompt.count
    return True
