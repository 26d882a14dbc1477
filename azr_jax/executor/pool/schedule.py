"""A pool's scheduling structures; none of them is ever scanned as a whole.

| structure | operation whose cost does not grow with the number of zygotes |
| --- | --- |
| `FreeSlots` | finding the least busy zygote of a hash seed |
| `RunQueue` | finding the oldest run whose hash seed has a free zygote |
| `Deadlines` | finding overdue keys (changing a deadline is logarithmic) |
"""

import collections
import heapq
import itertools
import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar


class HasSeed(Protocol):
  """A zygote, or a run that needs a zygote with its seed."""

  seed: int


Zygote = TypeVar("Zygote", bound=HasSeed)
Run = TypeVar("Run", bound=HasSeed)
Key = TypeVar("Key", bound=Hashable)


class FreeSlots(Generic[Zygote]):
  """Zygotes with a free slot, in buckets by hash seed and busy slots."""

  def __init__(self, seeds: Sequence[int], slots: int):
    """Creates empty buckets.

    Args:
      seeds: the zygotes' hash seeds.
      slots: the number of runs that a zygote executes at a time.
    """
    # Buckets are dicts without values, because a set's `pop` may scan.
    self._buckets: list[dict[int, dict[Zygote, None]]] = [
      {seed: {} for seed in seeds} for _ in range(slots)
    ]
    self._bucket_of: dict[Zygote, dict[Zygote, None]] = {}

  def put(self, zygote: Zygote, busy: int) -> None:
    """Sets the number of a zygote's busy slots; all of them may be busy."""
    self.remove(zygote)
    if busy < len(self._buckets):
      bucket = self._buckets[busy][zygote.seed]
      bucket[zygote] = None
      self._bucket_of[zygote] = bucket

  def remove(self, zygote: Zygote) -> None:
    """Removes a zygote until the next `put`."""
    bucket = self._bucket_of.pop(zygote, None)
    if bucket is not None:
      del bucket[zygote]

  def take(self, seed: int) -> Zygote | None:
    """Removes and returns a least busy zygote of a seed, or None.

    The caller starts a run on the zygote and then calls `put`.
    """
    for by_seed in self._buckets:
      if by_seed[seed]:
        zygote, _ = by_seed[seed].popitem()
        del self._bucket_of[zygote]
        return zygote
    return None


class RunQueue(Generic[Run]):
  """Waiting runs, oldest first, by the hash seed that they need."""

  def __init__(self, seeds: Sequence[int]):
    self._queues: dict[int, collections.deque[tuple[int, Run]]] = {
      seed: collections.deque() for seed in seeds
    }
    self._last = itertools.count()
    self._first = itertools.count(-1, -1)

  def push(self, run: Run) -> None:
    """Adds a run at the end."""
    self._queues[run.seed].append((next(self._last), run))

  def push_first(self, run: Run) -> None:
    """Adds a run at the front."""
    self._queues[run.seed].appendleft((next(self._first), run))

  def oldest(self, excluded_seeds: Collection[int]) -> Run | None:
    """Returns the oldest run whose seed is not in `excluded_seeds`, or None."""
    heads = [
      queue[0]
      for seed, queue in self._queues.items()
      if queue and seed not in excluded_seeds
    ]
    return min(heads)[1] if heads else None

  def remove_oldest(self, run: Run) -> None:
    """Removes the run that `oldest` returned."""
    self._queues[run.seed].popleft()

  def __len__(self) -> int:
    return sum(map(len, self._queues.values()))


class Deadlines(Generic[Key]):
  """Deadlines by key; most of them are moved before they are reached.

  The heap has one entry per key, which may be earlier than the deadline. So
  postponing a deadline, as each new run does, only changes a dict.
  """

  def __init__(self) -> None:
    self._deadlines: dict[Key, float] = {}
    self._entries: dict[Key, float] = {}
    self._heap: list[tuple[float, int, Key]] = []
    self._ties = itertools.count()

  def set(self, key: Key, deadline: float) -> None:
    """Sets or changes a deadline in seconds; infinity removes it."""
    if deadline == math.inf:
      self._deadlines.pop(key, None)
      return
    self._deadlines[key] = deadline
    if deadline < self._entries.get(key, math.inf):
      self._push(key, deadline)

  def _push(self, key: Key, time: float) -> None:
    self._entries[key] = time
    heapq.heappush(self._heap, (time, next(self._ties), key))

  def next(self) -> float:
    """Returns the earliest deadline, or infinity if there is none."""
    while self._heap:
      time, _, key = self._heap[0]
      deadline = self._deadlines.get(key, math.inf)
      if self._entries.get(key) == time:
        if deadline <= time:
          return time
        del self._entries[key]
        heapq.heappop(self._heap)
        if deadline < math.inf:
          self._push(key, deadline)
      else:  # Stale: this key was re-queued with an earlier time.
        heapq.heappop(self._heap)
    return math.inf

  def take_due(self, now: float) -> Iterator[Key]:
    """Removes and yields the keys with a deadline of `now` or earlier."""
    while self.next() <= now:
      _, _, key = heapq.heappop(self._heap)
      del self._entries[key], self._deadlines[key]
      yield key
