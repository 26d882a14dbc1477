"""Results that clients fetch later, and operations that run in their order.

Everything here belongs to the thread of the HTTP server.
"""

import asyncio
import dataclasses
import time
import uuid
from collections.abc import Callable, Hashable

from azr_jax.serving import errors
from azr_jax.serving.errors import ApiError

# Results that were fetched are kept for so long, in case the answer was lost.
_FETCHED_S = 120.0
# Results that nobody fetches are dropped after so long.
_UNFETCHED_S = 3600.0
_MAX_WAITING = 4096


@dataclasses.dataclass(frozen=True)
class Reply:
  """The result of an operation.

  Attributes:
    body: the body of the answer.
    is_protobuf: whether it is a protobuf message, and not JSON.
  """

  body: bytes
  is_protobuf: bool = False


@dataclasses.dataclass(eq=False)
class _Pending:
  """A result that may not exist yet.

  Attributes:
    is_done: set once there is a reply.
    reply: the result, or the error as JSON.
    owner: the session that it ends with.
    cancel: cancels the operation. None before it runs.
    drop_at: the time at which nobody needs it any more.
  """

  is_done: asyncio.Event
  reply: Reply | None
  drop_at: float
  owner: str
  cancel: Callable[[], object] | None = None


class Futures:
  """Results by request id, and request ids by operation.

  A client repeats a request whose answer it did not get, so an operation has a
  key, under which it runs once.
  """

  def __init__(self, now: Callable[[], float] = time.monotonic):
    """Starts empty.

    Args:
      now: a clock, seconds.
    """
    self._now = now
    self._pending: dict[str, _Pending] = {}
    self._ids: dict[Hashable, str] = {}
    self._keys: dict[str, Hashable] = {}

  def __len__(self) -> int:
    return len(self._pending)

  def begin(self, key: Hashable, owner: str = "") -> tuple[str, bool]:
    """Returns the request id of an operation, and whether it is new.

    Args:
      key: names the operation.
      owner: the session that it ends with.
    """
    known = self._ids.get(key)
    if known is not None:
      return known, False
    request_id = uuid.uuid4().hex
    drop_at = self._now() + _UNFETCHED_S
    self._pending[request_id] = _Pending(asyncio.Event(), None, drop_at, owner)
    self._ids[key], self._keys[request_id] = request_id, key
    return request_id, True

  def run(self, request_id: str, cancel: Callable[[], object]) -> None:
    """Records how to cancel an operation that runs now."""
    self._pending[request_id].cancel = cancel

  def finish(self, request_id: str, reply: Reply) -> None:
    """Sets the result of an operation, unless it has one."""
    pending = self._pending.get(request_id)
    if pending is not None and pending.reply is None:
      pending.reply, pending.cancel = reply, None
      pending.drop_at = self._now() + _UNFETCHED_S
      pending.is_done.set()

  def end(self, owner: str, reply: Reply) -> None:
    """Ends the operations of a session.

    Args:
      owner: the session.
      reply: the result of those that have none yet, which are cancelled.
    """
    drop_at = self._now() + _FETCHED_S
    for request_id, pending in list(self._pending.items()):
      if pending.owner == owner:
        cancel = pending.cancel
        self.finish(request_id, reply)
        pending.drop_at = min(pending.drop_at, drop_at)
        if cancel is not None:
          cancel()

  async def fetch(self, request_id: str, within_s: float) -> Reply | None:
    """Returns a result; None if it does not exist in time.

    Raises:
      ApiError: the request id is unknown, or its result was dropped.
    """
    pending = self._pending.get(request_id)
    if pending is None:
      raise ApiError(
        410, f"request_id={request_id!r:.80}: expected one of this server's"
      )
    try:
      async with asyncio.timeout(within_s):
        await pending.is_done.wait()
    except TimeoutError:
      return None
    pending.drop_at = min(pending.drop_at, self._now() + _FETCHED_S)
    return pending.reply

  def drop_old(self) -> None:
    """Drops the results that nobody needs any more."""
    now = self._now()
    old = [
      request_id
      for request_id, one in self._pending.items()
      if one.reply is not None and one.drop_at < now
    ]
    for request_id in old:
      self.drop(request_id)

  def drop(self, request_id: str) -> None:
    """Forgets an operation, which may then begin again."""
    del self._pending[request_id]
    del self._ids[self._keys.pop(request_id)]


class Lane:
  """Starts the operations of one model in the order of their numbers.

  They arrive in any order, because clients send the parts of a batch at the
  same time.
  """

  def __init__(self, first: int = 1):
    """Waits for the operation with the number `first`."""
    self._next = first
    self._waiting: dict[int, Callable[[], None]] = {}

  def add(self, number: int, start: Callable[[], None]) -> None:
    """Starts an operation once those before it have started.

    Raises:
      ApiError: too many operations wait for one that is missing.
    """
    if number < self._next:
      raise ApiError(
        409, f"seq_id={number}: expected {self._next} or a later one"
      )
    if len(self._waiting) >= _MAX_WAITING and number != self._next:
      raise errors.overloaded(
        f"{len(self._waiting)} requests wait for seq_id={self._next}: expected "
        "it before the others"
      )
    self._waiting[number] = start
    while self._next in self._waiting:
      start_next = self._waiting.pop(self._next)
      self._next += 1
      start_next()
