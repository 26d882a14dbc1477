"""The structures by which a pool schedules: none is scanned as a whole.

| structure | what costs the same for any number of zygotes |
| --- | --- |
| `FreeSlots` | to find the least busy zygote of a hash seed |
| `RunQueue` | to find the oldest run that a hash seed may take |
| `Deadlines` | to find what is overdue (logarithmic for a changed deadline) |
"""

import collections
import heapq
import itertools
import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar


class HasSeed(Protocol):
  """A zygote, or a run that needs a zygote of its seed."""

  seed: int


Zygote = TypeVar("Zygote", bound=HasSeed)
Run = TypeVar("Run", bound=HasSeed)
Key = TypeVar("Key", bound=Hashable)


class FreeSlots(Generic[Zygote]):
  """Zygotes that can take a run, in buckets by hash seed and busy slots."""

  def __init__(self, seeds: Sequence[int], slots: int):
    """Starts empty.

    Args:
      seeds: the hash seeds of the zygotes.
      slots: how many runs a zygote takes at a time.
    """
    # Each bucket is a dict without values, because a set's `pop` may scan.
    self._buckets: list[dict[int, dict[Zygote, None]]] = [
      {seed: {} for seed in seeds} for _ in range(slots)
    ]
    self._bucket_of: dict[Zygote, dict[Zygote, None]] = {}

  def put(self, zygote: Zygote, busy: int) -> None:
    """Says how many of a zygote's slots are busy, which may be all."""
    self.remove(zygote)
    if busy < len(self._buckets):
      bucket = self._buckets[busy][zygote.seed]
      bucket[zygote] = None
      self._bucket_of[zygote] = bucket

  def remove(self, zygote: Zygote) -> None:
    """Forgets a zygote until the next `put`."""
    bucket = self._bucket_of.pop(zygote, None)
    if bucket is not None:
      del bucket[zygote]

  def take(self, seed: int) -> Zygote | None:
    """Removes and returns a least busy zygote of a seed, or None.

    After a run was started, call `put`.
    """
    for by_seed in self._buckets:
      if by_seed[seed]:
        zygote, _ = by_seed[seed].popitem()
        del self._bucket_of[zygote]
        return zygote
    return None


class RunQueue(Generic[Run]):
  """The waiting runs, oldest first, by the hash seed that they need."""

  def __init__(self, seeds: Sequence[int]):
    self._queues: dict[int, collections.deque[tuple[int, Run]]] = {
      seed: collections.deque() for seed in seeds
    }
    self._last = itertools.count()
    self._first = itertools.count(-1, -1)

  def push(self, run: Run) -> None:
    """Adds a run behind all others."""
    self._queues[run.seed].append((next(self._last), run))

  def push_first(self, run: Run) -> None:
    """Adds a run before all others."""
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
    """Removes the run that `oldest` has returned."""
    self._queues[run.seed].popleft()

  def __len__(self) -> int:
    return sum(map(len, self._queues.values()))


class Deadlines(Generic[Key]):
  """The deadline of each of many things, of which few are ever reached.

  The heap has one entry for each key, which may be earlier than the deadline.
  So to put a deadline off, as each new run does, only changes a dict.
  """

  def __init__(self) -> None:
    self._deadlines: dict[Key, float] = {}
    self._entries: dict[Key, float] = {}
    self._heap: list[tuple[float, int, Key]] = []
    self._ties = itertools.count()

  def set(self, key: Key, deadline: float) -> None:
    """Sets or changes a deadline, in seconds; infinity removes it."""
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
    """Returns the earliest deadline; infinity if there is none."""
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
      else:  # An earlier entry of this key came after this one.
        heapq.heappop(self._heap)
    return math.inf

  def take_due(self, now: float) -> Iterator[Key]:
    """Removes and yields what has a deadline of `now` or earlier."""
    while self.next() <= now:
      _, _, key = heapq.heappop(self._heap)
      del self._entries[key], self._deadlines[key]
      yield key
