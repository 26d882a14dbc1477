"""The sequences that wait for a slot, in the order in which they get one."""

import collections
import dataclasses
import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence

from azr_jax.rollout.sequence import Request, SequenceState


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
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
    group = Group(request, collections.deque(sequences))
    length = len(request.prompt.token_ids)
    bucket = next(b for b in self._buckets if b >= length)
    key = (request.priority, request.seed, next(self._arrivals))
    heapq.heappush(self._heaps.setdefault(bucket, []), (key, group))
    self.num_sequences += len(group.sequences)

  def next_bucket(self) -> int:
    """Returns the bucket of the next group; the queue must not be empty."""
    return min(self._heaps, key=lambda b: (self._heaps[b][0][0][0], -b))

  def peek(self, bucket: int) -> Group | None:
    """Returns the next group of a bucket, which stays; None: it has none."""
    return self._heaps[bucket][0][1] if bucket in self._heaps else None

  def of_bucket(self, bucket: int) -> Iterator[Group]:
    """Yields the groups of a bucket, in no order."""
    return (group for _, group in self._heaps.get(bucket, ()))

  def pop(self, bucket: int) -> Group:
    """Takes the next group of a bucket, which has one."""
    heap = self._heaps[bucket]
    group = heapq.heappop(heap)[1]
    if not heap:
      del self._heaps[bucket]
    self.num_sequences -= len(group.sequences)
    return group

  def drain(self) -> list[Group]:
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
