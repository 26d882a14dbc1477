"""Admission: which prompts leave the queue, and who gets a free slot."""

import collections
import heapq
from collections.abc import Sequence

import numpy as np

from azr_jax.rollout.meter import RequestMeter
from azr_jax.rollout.page_pool import CachedTokens, PagePool
from azr_jax.rollout.preemption import PageAllocator
from azr_jax.rollout.prefill_scheduler import PromptGroup, num_to_prefill
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.sequence_stages import QueuedGroup, Stages
from azr_jax.rollout.shapes import EngineShapes
from azr_jax.rollout.slots import SlotTable


class Admission:
  """Takes prompts from the queue and puts prefilled sequences into slots."""

  def __init__(
    self,
    shapes: EngineShapes,
    pages: PagePool,
    stages: Stages,
    slots: SlotTable,
    allocator: PageAllocator,
    meter: RequestMeter,
  ):
    """Creates the admission control; nothing is admitted yet.

    Args:
      shapes: the sizes of device calls.
      pages: shares and releases pages.
      stages: the scheduler's sequences.
      slots: the slots of these sequences.
      allocator: allocates pages.
      meter: counts tokens that need no prefill.
    """
    self._shapes, self._pages = shapes, pages
    self._stages, self._slots = stages, slots
    self._allocator, self._meter = allocator, meter

  @property
  def has_takers(self) -> bool:
    """Whether some device has a free slot that a waiting sequence may take."""
    stages = self._stages
    is_free = self._slots.num_live < self._slots.per_device
    free = {*np.flatnonzero(is_free).tolist()}
    if stages.queue or any(len(group.waiting) > 1 for group in stages.groups):
      return bool(free)
    waiting = {group.cached.device for group in stages.groups}
    waiting |= {s.cached.device for s in stages.resuming if s.cached}
    return not free.isdisjoint(waiting)

  def resize_slots(self) -> None:
    """Changes to the smallest number of slots that suffices on every device.

    Queued prompts are counted on the devices with the fewest sequences.
    """
    stages, counts = self._stages, self._shapes.slot_counts
    needed = stages.num_sequences
    if len(counts) > 1 and needed <= counts[1]:
      loads = self._loads()
      heapq.heapify(loads)
      for count in sorted(self._unplaced(), reverse=True):
        heapq.heapreplace(loads, loads[0] + count)
      needed = max(loads) * self._shapes.devices
    self._slots.resize(needed)

  def _unplaced(self) -> list[int]:
    """Returns the sizes of groups that have pages on no device."""
    awaiting = self._stages.awaiting_tools
    return [
      *(len(group.sequences) for group in self._stages.queue.groups()),
      *(1 for one in awaiting if one.cached is None or not one.cached.pages),
    ]

  def prepare_groups(self) -> None:
    """Takes prompts from the queue for devices where no prompt waits for slots.

    If the queue is empty, such a device receives half of a prompt's samples
    that wait for slots on another device.
    """
    stages, devices = self._stages, range(self._shapes.devices)
    served = {group.cached.device for group in stages.groups}
    idle = [device for device in devices if device not in served]
    if not idle:
      return
    if stages.queue:
      self._take_prompts(idle)
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

  def _take_prompts(self, idle: list[int]) -> None:
    """Takes prompts of one bucket, as many as one prefill call holds.

    If the prefix cache holds most of a prompt's tokens, its row is shorter, so
    a call holds more prompts.

    Args:
      idle: the devices to take prompts for.
    """
    stages, shapes = self._stages, self._shapes
    bucket, widest = stages.queue.next_bucket(), 0
    taken: list[PromptGroup] = []
    loads = self._loads()
    while (first := stages.queue.peek(bucket)) is not None:
      group = self._for_device(first, idle, loads)
      widest = max(widest, self._chunk(group, bucket))
      fraction = len(idle) / shapes.devices
      rows = round(fraction * shapes.prefill_rows(widest))
      if taken and (
        len(taken) >= rows or self._waits(group, taken, bucket, rows)
      ):
        return
      stages.queue.pop(bucket)
      taken.append(group)
      stages.groups.append(group)
      loads[group.cached.device] += len(group.waiting)

  def _loads(self) -> list[int]:
    """Returns how many sequences have or will get pages on each device."""
    loads = self._slots.num_live.tolist()
    for one in (*self._stages.resuming, *self._stages.awaiting_tools):
      if one.cached is not None and one.cached.pages:
        loads[one.cached.device] += 1
    for group in self._stages.groups:
      loads[group.cached.device] += len(group.waiting)
    return loads

  def _for_device(
    self, group: QueuedGroup, idle: list[int], loads: Sequence[int]
  ) -> PromptGroup:
    """Assigns a group to an idle device with the fewest sequences.

    Ties go to the device whose prefix cache holds most of the group's tokens.

    Args:
      group: a prompt with its sequences.
      idle: the devices to choose from.
      loads: number of sequences on each device.
    """
    fewest = min(loads[device] for device in idle)
    devices = [device for device in idle if loads[device] == fewest]
    request = group.request
    known = self._pages.num_known(
      devices, request.prompt.token_ids[:-1], request.adapter
    )
    device = devices[known.index(max(known))]
    return PromptGroup(group.request, group.sequences, CachedTokens(device))

  def _chunk(self, group: PromptGroup, bucket: int) -> int:
    """Returns the chunk length that a prompt needs, at most its bucket's."""
    tokens = num_to_prefill(self._pages, group)
    if tokens < group.num_uncached:
      return self._shapes.prefill_chunk(tokens)
    return min(bucket, self._shapes.prefill_tokens)

  def _waits(
    self, group: PromptGroup, taken: list[PromptGroup], bucket: int, rows: int
  ) -> bool:
    """Returns whether a prompt should wait for the next prefill call.

    A prompt waits if one of the taken prompts prefills tokens that it can then
    share, unless waiting adds a prefill call: an empty row costs as much as a
    full one.

    Args:
      group: the prompt.
      taken: the prompts of the next call.
      bucket: the bucket of all these prompts.
      rows: the rows of the next call.
    """
    if not self._pages.keeps_prefixes:
      return False
    C = self._pages.page_tokens
    device, token_ids = group.cached.device, group.token_ids
    shared = max(
      (
        _num_shared(group.request, other.request, C)
        for other in taken
        if other.cached.device == device
      ),
      default=0,
    )
    [known] = self._pages.num_known([device], token_ids, group.request.adapter)
    if shared <= known:
      return False
    rows_then = self._shapes.prefill_rows(
      self._shapes.prefill_chunk(len(token_ids) - shared)
    )
    others = sum(
      _num_shared(group.request, other.request, C) >= shared
      for other in self._stages.queue.of_bucket(bucket)
    )
    fewer = max(0, others - (rows - len(taken)))
    return rows_then > rows and -(-others // rows_then) <= -(
      -fewer // rows_then
    )

  def fill_slots(self) -> bool:
    """Fills free slots; returns whether any sequence made progress."""
    stages = self._stages
    free, has_run = self._slots.free(), False
    for sequence in list(stages.resuming):
      assert sequence.cached is not None
      slots = free[sequence.cached.device]
      if not slots:
        continue
      slot = slots.pop()  # Stays reserved if the sequence cannot enter yet.
      if sequence.num_uncached:
        continue
      if self._allocator.allocate_call(sequence, sequence.cached):
        stages.resuming.remove(sequence)
        self._slots.enter(slot, sequence)
        has_run = True
      else:
        slots.clear()  # This sequence gets the next free pages.
    for group in stages.groups:
      has_run = self._start_group(group, free) or has_run
    stages.groups = [group for group in stages.groups if group.waiting]
    return has_run

  def _start_group(self, group: PromptGroup, free: list[list[int]]) -> bool:
    """Starts sequences of a prompt while slots and pages are free."""
    slots, began = free[group.cached.device], False
    while group.num_uncached == 0 and group.waiting and slots:
      sequence = group.waiting[0]
      if not self._share_prompt(group, sequence):
        break
      began = True
      if group.num_reused:
        self._meter.record_reuse(group.num_reused)
        group.num_reused = 0
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
    """Gives a sequence its prompt's cache; returns whether there were pages."""
    prompt = group.cached
    # When the last sequence reuses its own cache, the prompt's pages are
    # released. They could then be overwritten before their copies are made.
    is_last = len(group.waiting) == 1
    changes = self._slots.changes
    may_reuse = sequence.num_tokens and not (
      is_last and changes.is_copied(prompt.device, prompt.pages)
    )
    if may_reuse and self._reuse_own(prompt, sequence):
      return True
    if is_last:
      # The last sequence takes the prompt's own pages and needs no copy.
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
    if cached.count < prompt.count and not sequence.num_tokens:
      number = len(prompt.pages) - 1
      changes.copy(sequence, prompt.pages[number], cached.pages[number])
      cached.count = prompt.count
    return True

  def _reuse_own(self, prompt: CachedTokens, sequence: SequenceState) -> bool:
    """Gives a preempted sequence its own tokens that are still cached.

    Args:
      prompt: the prompt's cache.
      sequence: a sequence with tokens and without a cache.

    Returns:
      Whether more than the prompt was cached and there were pages to continue.
    """
    own = self._pages.share_known(
      prompt.device, sequence.all_ids[:-1], sequence.request.adapter
    )
    if own.count > prompt.count and self._allocator.allocate_call(
      sequence, own
    ):
      self._meter.record_reuse(own.count - prompt.count)
      sequence.cached = own
      return True
    self._pages.release(own)
    return False


def _num_shared(one: Request, other: Request, page: int) -> int:
  """Returns how many tokens two prompts can share, in full pages of `page`."""
  if one.adapter != other.adapter:
    return 0
  ids, others = (x.prompt.token_ids[:-1] for x in (one, other))
  limit = min(len(ids), len(others))
  shared = 0
  while shared + page <= limit and (
    ids[shared : shared + page] == others[shared : shared + page]
  ):
    shared += page
  return shared
