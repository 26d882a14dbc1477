"""Operations that clients start, and whose results they fetch later.

They belong to the HTTP server's thread. Everything that touches the device is a
task of the worker's thread (`decoding.py`).
"""

import asyncio
import json
import logging
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from typing import Any

from azr_jax.serving.decoding import DecodeWorker
from azr_jax.serving.errors import ApiError
from azr_jax.serving.tinker.futures import Futures, Reply

_log = logging.getLogger(__name__)
_BUSY = 429
_ENDED = ApiError(410, "the session has ended: expected one that lives")


class Operations:
  """Starts operations once, and finishes their futures.

  Attributes:
    futures: the results.
    worker: runs the tasks.
  """

  def __init__(self, worker: DecodeWorker):
    """Starts without operations.

    Args:
      worker: runs the tasks.
    """
    self.futures = Futures()
    self.worker = worker

  def begin(
    self,
    key: Hashable,
    session_id: str,
    start: Callable[[str], None],
    **fields: Any,
  ) -> dict[str, Any]:
    """Starts an operation once; returns its future.

    Args:
      key: names the operation.
      session_id: the session that it ends with.
      start: starts it, given the request id.
      **fields: more fields of the future.
    """
    request_id, is_new = self.futures.begin(key, session_id)
    if is_new:
      try:
        self._start(request_id, start)
      except ApiError:  # The client slows down and tries again.
        self.futures.drop(request_id)
        raise
    return {"request_id": request_id} | fields

  def _start(self, request_id: str, start: Callable[[str], None]) -> None:
    """Starts an operation, whose errors become its result.

    Raises:
      ApiError: the server is busy.
    """
    try:
      start(request_id)
    except Exception as error:
      if isinstance(error, ApiError) and error.status == _BUSY:
        raise
      self.futures.finish(request_id, failed(error))

  def retry(
    self, request_id: str, after_s: float, start: Callable[[str], None]
  ) -> None:
    """Starts an operation again after some seconds."""

    def again() -> None:
      try:
        self._start(request_id, start)
      except ApiError as error:
        self.futures.finish(request_id, failed(error))

    later = asyncio.get_running_loop().call_later(after_s, again)
    self.futures.run(request_id, later.cancel)

  def run(
    self,
    request_id: str,
    task: Callable[[], Any],
    reply: Callable[[Any], Reply],
    clean_up: Callable[[], None] = lambda: None,
  ) -> None:
    """Runs a task of the worker's thread; its result becomes a reply.

    Args:
      request_id: the future of the result.
      task: runs between two calls of the sampler.
      reply: result -> reply.
      clean_up: runs if the task failed.
    """
    loop = asyncio.get_running_loop()
    future = self.worker.call(task)
    self.futures.run(request_id, future.cancel)
    future.add_done_callback(
      lambda done: loop.call_soon_threadsafe(
        self._finish, request_id, done, reply, clean_up
      )
    )

  def _finish(
    self,
    request_id: str,
    done: "Future[Any]",
    reply: Callable[[Any], Reply],
    clean_up: Callable[[], None],
  ) -> None:
    """Finishes a future by the result of its task, or by its error."""
    if done.cancelled():  # Its session ended, and has answered.
      return
    try:
      self.futures.finish(request_id, reply(done.result()))
    except Exception as error:  # noqa: BLE001 - the client gets it.
      clean_up()
      self.futures.finish(request_id, failed(error))

  def end_session(self, session_id: str) -> None:
    """Cancels the unfinished operations of a session."""
    self.futures.end(session_id, failed(_ENDED))


def as_json(fields: Mapping[str, Any]) -> Reply:
  """Returns some fields as a reply."""
  return Reply(json.dumps(fields).encode())


def failed(error: BaseException) -> Reply:
  """Returns an error as a reply; the server's own errors are logged."""
  if isinstance(error, ApiError):
    kind = "user" if error.status < 500 else "server"
    return as_json({"error": error.message, "category": kind})
  if isinstance(error, ValueError):
    return as_json({"error": str(error), "category": "user"})
  _log.error("a task failed", exc_info=error)
  message = f"{type(error).__name__}: {error}"
  return as_json({"error": message[:2000], "category": "server"})
