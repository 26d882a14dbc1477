"""The sequences that wait for a slot, in the order in which they get one."""

import collections
import dataclasses
import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence

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

  def pop(self, size_of: Callable[[int], int]) -> tuple[int, list[Group]]:
    """Takes the next groups, which have one bucket.

    Args:
      size_of: bucket -> the largest number of groups to take.

    Returns:
      The bucket, and its groups in order.
    """
    bucket = min(self._heaps, key=lambda b: (self._heaps[b][0][0][0], -b))
    heap = self._heaps[bucket]
    groups = [
      heapq.heappop(heap)[1] for _ in range(min(size_of(bucket), len(heap)))
    ]
    if not heap:
      del self._heaps[bucket]
    self.num_sequences -= sum(len(group.sequences) for group in groups)
    return bucket, groups

  def drain(self) -> list[Group]:
    """Takes all groups."""
    groups = []
    while self:
      groups += self.pop(lambda bucket: 1)[1]
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
