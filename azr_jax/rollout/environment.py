"""The other side of a conversation, as the sampler sees it.

The life of a reply:
1. the model writes until `end_of_reply` says where it ends;
2. `take` looks at it: the conversation is over, or an answer is on its way;
3. the slot keeps what it has read, while others go on;
4. `answers` gives the tokens of what has come; they are read into the slot,
   and the model goes on. They are not learned from.
"""

import concurrent.futures
import itertools
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from azr_jax.executor import Executor
from azr_jax.parallel.hosts import Hosts

Out = TypeVar("Out")
# Prompt and sample.
Name = tuple[int, int]
_POLL_S = 0.05  # While other hosts may have what this one waits for.


def split_parts(
  ids: Sequence[int], own: Sequence[bool]
) -> list[tuple[bool, list[int]]]:
  """The parts of a conversation, and whether they are the model's own."""
  runs = itertools.groupby(zip(own, ids, strict=True), key=lambda pair: pair[0])
  return [(is_own, [int(token) for _, token in run]) for is_own, run in runs]


def split_replies(ids: Sequence[int], own: Sequence[bool]) -> list[list[int]]:
  """What the model wrote between the answers, from which ids are its own."""
  return [part for is_own, part in split_parts(ids, own) if is_own]


class Environment(Protocol):
  """Answers replies."""

  def begin(self) -> None:
    """Forgets the conversations of before: others begin, of the same names."""
    ...

  def end_of_reply(
    self, ids: Sequence[int], start: int, seen: int
  ) -> int | None:
    """How many ids there are up to the end of the reply, or None.

    Args:
      ids: of the conversation, without its prompt.
      start: the index of the reply's first id.
      seen: so many ids are known to hold no end.
    """
    ...

  def take(self, name: Name, replies: Sequence[Sequence[int]]) -> str | None:
    """Takes a conversation's replies, when the last of them has ended.

    Returns:
      A finish reason, if the conversation is over, or None: an answer will
      come.
    """
    ...

  def answers(self, wait: bool) -> Mapping[Name, Sequence[int]]:
    """The answers that have come, none empty; with `wait`, at least one."""
    ...

  def observe(self, writing: int, waiting: int, slots: int) -> None:
    """Hears how many slots write and wait, at each call of the device."""
    ...


class Outcomes(Generic[Out]):
  """Outcomes of jobs that hosts share out between them; not thread-safe.

  Every host must call the same, in the same order. Each runs a part of the
  jobs; `take` exchanges what is done, so that all hosts get the same at the
  same call.
  """

  def __init__(self, executor: Executor, hosts: Hosts):
    self._executor = executor
    self._hosts = hosts
    self._own: dict[Name, Future[Out]] = {}
    self._under_way = 0
    self._asked = 0

  def forget(self) -> None:
    """Gives up all jobs under way."""
    for future in self._own.values():
      future.cancel()
    self._own.clear()
    self._under_way = 0

  @property
  def under_way(self) -> int:
    """Jobs whose outcomes have not been taken, of all hosts."""
    return self._under_way

  def ask(self, name: Name, start: Callable[[Executor], "Future[Out]"]) -> None:
    """Has one host start a job; its outcome must be one that can be pickled."""
    if self._asked % self._hosts.count == self._hosts.index:
      future: Future[Out] = Future()
      try:
        future = start(self._executor)
      except Exception as error:  # noqa: BLE001 - `take` tells every host.
        future.set_exception(error)
      self._own[name] = future
    self._asked += 1
    self._under_way += 1

  def take(self, wait: bool) -> dict[Name, Out]:
    """What is done, by name, each once; with `wait`, at least one.

    Raises:
      RuntimeError: a job could not be run, here or on another host.
      TimeoutError: a host did not come; see `Hosts.barrier`.
    """
    found: dict[Name, Out] = {}
    while self._under_way and (not found or not wait):
      if wait and self._own:
        concurrent.futures.wait(
          self._own.values(),
          None if self._hosts.count == 1 else _POLL_S,
          concurrent.futures.FIRST_COMPLETED,
        )
      elif wait:
        time.sleep(_POLL_S)
      found |= self._exchange()
      if not wait:
        break
    return found

  def _exchange(self) -> dict[Name, Out]:
    done = [name for name, future in self._own.items() if future.done()]
    own, error = {}, None
    try:
      own = {name: self._own.pop(name).result() for name in done}
    except Exception as caught:  # noqa: BLE001 - every host must hear of it.
      error = caught
    # Between processes of one run.
    mine = pickle.dumps((repr(error) if error else "", own))
    found: dict[Name, Any] = {}
    for index, part in enumerate(self._hosts.gather("outcomes", mine)):
      text, theirs = pickle.loads(part)
      if error is not None:
        raise error
      if text:
        raise RuntimeError(f"{self._hosts.name(index)} failed: {text}")
      found |= theirs
    self._under_way -= len(found)
    return found
