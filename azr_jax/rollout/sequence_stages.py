"""The stages of a scheduler's sequences, and the queue of waiting prompts."""

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
  """Sequences that share a prompt, which is prefilled once for all of them."""

  request: Request
  sequences: collections.deque[SequenceState]


class WaitingQueue:
  """A priority queue of groups, by prompt bucket.

  Within a priority, long prompts come first. The order depends only on the
  groups in the queue, not on when they arrived.
  """

  def __init__(self, buckets: Sequence[int]):
    """Creates an empty queue.

    Args:
      buckets: the compiled prompt lengths, ascending.
    """
    self._buckets = tuple(buckets)
    self._heaps: dict[int, list[tuple]] = {}
    self._arrivals = itertools.count()
    self.num_sequences = 0

  def __bool__(self) -> bool:
    return bool(self._heaps)

  def add(self, request: Request, sequences: Iterable[SequenceState]) -> None:
    """Adds sequences of one prompt."""
    group = QueuedGroup(request, collections.deque(sequences))
    length = len(request.prompt.token_ids)
    bucket = next(b for b in self._buckets if b >= length)
    key = (request.priority, request.prompt_number, next(self._arrivals))
    heapq.heappush(self._heaps.setdefault(bucket, []), (key, group))
    self.num_sequences += len(group.sequences)

  def next_bucket(self) -> int:
    """Returns the bucket of the next group; the queue must not be empty."""
    return min(self._heaps, key=lambda b: (self._heaps[b][0][0][0], -b))

  def peek(self, bucket: int) -> QueuedGroup | None:
    """Returns a bucket's next group without removing it; None if empty."""
    return self._heaps[bucket][0][1] if bucket in self._heaps else None

  def of_bucket(self, bucket: int) -> Iterator[QueuedGroup]:
    """Yields the groups of a bucket, in no particular order."""
    return (group for _, group in self._heaps.get(bucket, ()))

  def groups(self) -> Iterator[QueuedGroup]:
    """Yields all groups, in no particular order."""
    return itertools.chain.from_iterable(map(self.of_bucket, self._heaps))

  def pop(self, bucket: int) -> QueuedGroup:
    """Removes and returns a bucket's next group; there must be one."""
    heap = self._heaps[bucket]
    group = heapq.heappop(heap)[1]
    if not heap:
      del self._heaps[bucket]
    self.num_sequences -= len(group.sequences)
    return group

  def drain(self) -> list[QueuedGroup]:
    """Removes and returns all groups."""
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


# A holder of pages.
Owner = TypeVar("Owner", bound=SequenceState | PromptGroup)


class Stages:
  """The sequences of a scheduler, by stage.

  Attributes:
    queue: sequences without cached tokens, by prompt.
    groups: prompts in prefill, whose sequences wait for slots.
    resuming: sequences with pages that are in prefill or wait for a slot.
    running: sequences in slots, in the order in which they started, with their
      slots.
    awaiting_tools: sequences whose tool has not answered yet.
    ended: sequences that ended outside a slot and have not been taken yet.
  """

  def __init__(self, buckets: Sequence[int]):
    """Starts without sequences.

    Args:
      buckets: the compiled prompt lengths, ascending.
    """
    self.queue = WaitingQueue(buckets)
    self.groups: list[PromptGroup] = []
    self.resuming: list[SequenceState] = []
    self.running: dict[SequenceState, int] = {}
    self.awaiting_tools: list[SequenceState] = []
    self.ended: list[SequenceState] = []

  @property
  def live(self) -> list[SequenceState]:
    """The sequences that have started and not ended."""
    return [*self.running, *self.resuming, *self.awaiting_tools]

  @property
  def num_live(self) -> int:
    """Number of sequences that have started and not ended."""
    return len(self.running) + len(self.resuming) + len(self.awaiting_tools)

  @property
  def num_waiting(self) -> int:
    """Number of waiting sequences that have no pages of their own."""
    return self.queue.num_sequences + sum(len(g.waiting) for g in self.groups)

  @property
  def num_sequences(self) -> int:
    """Number of sequences that have or may need a slot."""
    return self.num_live + self.num_waiting

  @property
  def has_waiting(self) -> bool:
    """Whether any sequence waits for a slot."""
    return bool(self.queue or self.groups or self.resuming)

  @property
  def is_empty(self) -> bool:
    """Whether there are no sequences left."""
    return not (self.num_live or self.num_waiting or self.ended)

  def take_ended(self) -> list[SequenceState]:
    """Removes and returns the sequences that ended outside a slot."""
    ended, self.ended = self.ended, []
    return ended

  def forget(self, requests: set[Request]) -> None:
    """Drops the sequences of some requests; none may be in a slot."""
    self.queue.remove(requests)
    self.groups = [g for g in self.groups if g.request not in requests]
    for name in ("resuming", "awaiting_tools"):
      kept = [s for s in getattr(self, name) if s.request not in requests]
      setattr(self, name, kept)

  def drain(self) -> list[SequenceState]:
    """Removes and returns all unfinished sequences, without their caches."""
    waiting = [s for group in self.queue.drain() for s in group.sequences]
    waiting += [s for group in self.groups for s in group.waiting]
    drained = [*self.live, *waiting]
    for sequence in drained:
      sequence.cached = None
    self.groups, self.resuming, self.awaiting_tools = [], [], []
    self.running = {}
    return drained


def on_device(owners: Iterable[Owner], device: int) -> list[Owner]:
  """Returns the sequences or prompts with pages on a device."""
  return [
    owner
    for owner in owners
    if owner.cached is not None
    and owner.cached.pages
    and owner.cached.device == device
  ]
