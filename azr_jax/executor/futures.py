"""Futures that depend on futures: apply a function, or combine several.

If a source fails or is cancelled, so are its dependents. No future is left
pending.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def done(value: Out) -> "Future[Out]":
  """Returns a future that already holds `value`."""
  future: Future[Out] = Future()
  future.set_result(value)
  return future


def then(
  source: "Future[In]", function: "Callable[[In], Out | Future[Out]]"
) -> "Future[Out]":
  """Returns the future of `function(source.result())`.

  If the function returns a future, its result is used.
  """
  target: Future[Out] = Future()

  def on_done(future: "Future[In]") -> None:
    if _pass_on_failure(future, target):
      return
    try:
      value = function(future.result())
    except Exception as error:  # noqa: BLE001 - passed on to the waiter.
      target.set_exception(error)
      return
    if isinstance(value, Future):
      forward(value, target)
    else:
      target.set_result(value)

  source.add_done_callback(on_done)
  return target


def gather(sources: "Sequence[Future[Out]]") -> "Future[tuple[Out, ...]]":
  """Returns the future of all results, in the order of the sources."""
  target: Future[tuple[Out, ...]] = Future()
  lock = threading.Lock()
  missing = len(sources)

  def on_done(future: "Future[Out]") -> None:
    nonlocal missing
    with lock:
      missing -= 1
      if target.done() or _pass_on_failure(future, target) or missing:
        return
      target.set_result(tuple(source.result() for source in sources))

  if not sources:
    return done(())
  for source in sources:
    source.add_done_callback(on_done)
  return target


def forward(source: "Future[Any]", target: "Future[Any]") -> None:
  """Copies the result, exception or cancellation of `source` to `target`."""

  def on_done(future: "Future[Any]") -> None:
    if not _pass_on_failure(future, target):
      target.set_result(future.result())

  source.add_done_callback(on_done)


def _pass_on_failure(source: "Future[Any]", target: "Future[Any]") -> bool:
  if source.cancelled():
    target.cancel()
    target.set_running_or_notify_cancel()
    return True
  error = source.exception()
  if error is not None:
    target.set_exception(error)
  return error is not None
