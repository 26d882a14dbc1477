"""The sequences of a scheduler by the stage of their life, and their queue."""

import collections
import dataclasses
import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from azr_jax.rollout.prefill_scheduler import PromptGroup
from azr_jax.rollout.sequence import Request, SequenceState


@dataclasses.dataclass(frozen=True, eq=False)
class QueuedGroup:
  """Sequences of one prompt, which is prefilled once for all of them."""

  request: Request
  sequences: collections.deque[SequenceState]


class WaitingQueue:
  """Groups by prompt bucket; within a priority, long prompts come first.

  Which group comes next depends on the groups that wait, not on when each of
  them came.
  """

  def __init__(self, buckets: Sequence[int]):
    """Makes an empty queue.

    Args:
      buckets: prompt lengths that are compiled, ascending.
    """
    self._buckets = tuple(buckets)
    self._heaps: dict[int, list[tuple]] = {}
    self._arrivals = itertools.count()
    self.num_sequences = 0

  def __bool__(self) -> bool:
    return bool(self._heaps)

  def add(self, request: Request, sequences: Iterable[SequenceState]) -> None:
    """Adds sequences of a prompt."""
    group = QueuedGroup(request, collections.deque(sequences))
    length = len(request.prompt.token_ids)
    bucket = next(b for b in self._buckets if b >= length)
    key = (request.priority, request.seed, next(self._arrivals))
    heapq.heappush(self._heaps.setdefault(bucket, []), (key, group))
    self.num_sequences += len(group.sequences)

  def next_bucket(self) -> int:
    """Returns the bucket of the next group; the queue must not be empty."""
    return min(self._heaps, key=lambda b: (self._heaps[b][0][0][0], -b))

  def peek(self, bucket: int) -> QueuedGroup | None:
    """Returns the next group of a bucket, which stays; None: it has none."""
    return self._heaps[bucket][0][1] if bucket in self._heaps else None

  def of_bucket(self, bucket: int) -> Iterator[QueuedGroup]:
    """Yields the groups of a bucket, in no order."""
    return (group for _, group in self._heaps.get(bucket, ()))

  def pop(self, bucket: int) -> QueuedGroup:
    """Takes the next group of a bucket, which has one."""
    heap = self._heaps[bucket]
    group = heapq.heappop(heap)[1]
    if not heap:
      del self._heaps[bucket]
    self.num_sequences -= len(group.sequences)
    return group

  def drain(self) -> list[QueuedGroup]:
    """Takes all groups."""
    groups = []
    while self:
      groups.append(self.pop(self.next_bucket()))
    return groups

  def remove(self, requests: set[Request]) -> None:
    """Removes the groups of some requests."""
    for bucket, heap in list(self._heaps.items()):
      kept = [entry for entry in heap if entry[1].request not in requests]
      heapq.heapify(kept)
      self._heaps[bucket] = kept
      if not kept:
        del self._heaps[bucket]
    self.num_sequences = sum(
      len(group.sequences) for heap in self._heaps.values() for _, group in heap
    )


# An owner of pages.
Owner = TypeVar("Owner", bound=SequenceState | PromptGroup)


class Stages:
  """Where each sequence is.

  Attributes:
    queue: those without a cache, by prompt.
    groups: prompts that are prefilled, with sequences that wait for slots.
    resuming: sequences with a cache that are prefilled, or wait for a slot.
    running: those that have slots, in the order in which they started.
    awaiting_tools: those whose tool has not answered.
    ended: those that ended without a slot, and were not taken yet.
  """

  def __init__(self, buckets: Sequence[int]):
    """Begins without sequences.

    Args:
      buckets: prompt lengths that are compiled, ascending.
    """
    self.queue = WaitingQueue(buckets)
    self.groups: list[PromptGroup] = []
    self.resuming: list[SequenceState] = []
    self.running: list[SequenceState] = []
    self.awaiting_tools: list[SequenceState] = []
    self.ended: list[SequenceState] = []

  @property
  def live(self) -> list[SequenceState]:
    """The sequences that have begun and not ended."""
    return [*self.running, *self.resuming, *self.awaiting_tools]

  @property
  def num_live(self) -> int:
    """How many sequences have begun and not ended."""
    return len(self.running) + len(self.resuming) + len(self.awaiting_tools)

  @property
  def num_waiting(self) -> int:
    """How many sequences wait for a slot and have no cache of their own."""
    return self.queue.num_sequences + sum(len(g.waiting) for g in self.groups)

  @property
  def num_sequences(self) -> int:
    """How many sequences have a slot, or may need one."""
    return self.num_live + self.num_waiting

  @property
  def has_waiting(self) -> bool:
    """Whether sequences wait for a slot."""
    return bool(self.queue or self.groups or self.resuming)

  @property
  def is_empty(self) -> bool:
    """Whether there is no sequence."""
    return not (self.num_live or self.num_waiting or self.ended)

  def loads(self) -> "collections.Counter[int]":
    """Returns how many sequences have, or will have, pages on each device."""
    found = collections.Counter(
      one.cached.device
      for one in self.live
      if one.cached is not None and one.cached.pages
    )
    for group in self.groups:
      found[group.cached.device] += len(group.waiting)
    return found

  def take_ended(self) -> list[SequenceState]:
    """Returns sequences that ended without a slot, each once."""
    ended, self.ended = self.ended, []
    return ended

  def forget(self, requests: set[Request]) -> None:
    """Drops the sequences of some requests; none of them has a slot."""
    self.queue.remove(requests)
    self.groups = [g for g in self.groups if g.request not in requests]
    for name in ("resuming", "awaiting_tools"):
      kept = [s for s in getattr(self, name) if s.request not in requests]
      setattr(self, name, kept)

  def drain(self) -> list[SequenceState]:
    """Takes all sequences that have not ended; they have no cache any more."""
    waiting = [s for group in self.queue.drain() for s in group.sequences]
    waiting += [s for group in self.groups for s in group.waiting]
    drained = [*self.live, *waiting]
    for sequence in drained:
      sequence.cached = None
    self.groups, self.resuming, self.awaiting_tools = [], [], []
    self.running = []
    return drained


def on_device(owners: Iterable[Owner], device: int) -> list[Owner]:
  """Returns the sequences or prompts that have pages on a device."""
  return [
    owner
    for owner in owners
    if owner.cached is not None
    and owner.cached.pages
    and owner.cached.device == device
  ]
