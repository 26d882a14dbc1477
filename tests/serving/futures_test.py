"""How long results of operations are kept, by a clock that the test moves."""

import asyncio

import pytest

from azr_jax.serving.errors import ApiError
from azr_jax.serving.tinker.futures import Futures, Reply


def test_results_are_dropped_when_nobody_needs_them():
  now = [0.0]
  futures = Futures(lambda: now[0])
  fetched, unfetched, unfinished = (futures.begin(key)[0] for key in "abc")
  futures.finish(fetched, Reply(b"1"))
  futures.finish(unfetched, Reply(b"2"))

  def fetch(request_id):
    return asyncio.run(futures.fetch(request_id, 0.01))

  def kept_at(seconds):
    now[0] = seconds
    futures.drop_old()
    return len(futures)

  assert fetch(fetched) == Reply(b"1") and fetch(unfinished) is None
  assert kept_at(119) == 3
  # The answer was lost: the client asks for the same operation again.
  assert futures.begin("a") == (fetched, False)
  assert fetch(fetched) == Reply(b"1")
  assert kept_at(121) == 2
  with pytest.raises(ApiError, match="expected one of this server's"):
    fetch(fetched)
  assert kept_at(3599) == 2 and kept_at(3601) == 1
  assert futures.begin("c") == (unfinished, False)
  assert futures.begin("b")[1]
