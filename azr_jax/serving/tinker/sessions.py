"""The clients of a training server, which end when they fall silent."""

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from azr_jax.serving.errors import ApiError

# A client gives a sign of life every 10 seconds.
_DEAD_S = 40.0
_log = logging.getLogger(__name__)


class Sessions:
  """The sessions that live.

  Attributes:
    on_end: called with the id of each session that ends.
  """

  def __init__(self, idle_s: float, now: Callable[[], float] = time.monotonic):
    """Starts without sessions.

    Args:
      idle_s: as in `TinkerSettings`.
      now: a clock, seconds.
    """
    self.on_end: list[Callable[[str], None]] = []
    self._idle_s, self._now = idle_s, now
    # When each session last gave a sign of life.
    self._seen: dict[str, float] = {}

  def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the id of a new session."""
    del body
    session_id = uuid.uuid4().hex
    self._seen[session_id] = self._now()
    return {"session_id": session_id, "type": "create_session"}

  def touch(self, session_id: str) -> None:
    """Records a sign of life.

    Raises:
      ApiError: the session is unknown or has ended.
    """
    if session_id not in self._seen:
      raise ApiError(
        410, f"session_id={session_id!r:.80}: expected a session that lives"
      )
    self._seen[session_id] = self._now()

  def finish(self, session_id: str) -> None:
    """Ends a session, which may have ended already."""
    if self._seen.pop(session_id, None) is not None:
      for end in self.on_end:
        end(session_id)

  def now(self) -> float:
    """Returns the present time of `is_alive`."""
    return self._now()

  def is_alive(self, session_id: str, since: float) -> bool:
    """Returns whether a session gave a sign of life since a time.

    Nobody needs the room of a session that ended, so it counts as alive. One
    that was silent for so long that its client must have died is ended.
    """
    seen = self._seen.get(session_id)
    if seen is not None and self._now() - seen > _DEAD_S:
      self._end_silent(session_id)
      return True
    return seen is None or seen >= since

  def reap(self) -> None:
    """Ends the sessions that gave no sign of life for too long."""
    oldest = self._now() - self._idle_s
    for session_id, seen in list(self._seen.items()):
      if seen < oldest:
        self._end_silent(session_id)

  def _end_silent(self, session_id: str) -> None:
    _log.warning("session %s gave no sign of life: ended", session_id)
    self.finish(session_id)
