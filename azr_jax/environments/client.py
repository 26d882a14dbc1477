"""Calls the worker processes that run episodes.

An episode is assigned to a process by its task and first reply, so its later
turns find their state there. A process that lost an episode, for example
because it was killed, replays it with a longer time limit.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from azr_jax.environments import server
from azr_jax.environments.server import EpisodeServer
from azr_jax.executor import futures
from azr_jax.functions import by_value
from azr_jax.functions.pool import START_TIMEOUT_S, CallResult, FunctionPool
from azr_jax.functions.spec import Function

NAME = "environment"
EnvironmentTask = Mapping[str, Any]


class Episodes:
  """The worker processes of an environment. Thread-safe."""

  def __init__(self, plays: EpisodeServer, workers: int, timeout_s: float):
    """Starts the processes and waits until each has loaded the environment.

    Args:
      plays: runs the episodes.
      workers: number of processes.
      timeout_s: time limit of a turn in seconds.

    Raises:
      ValueError: the environment cannot be loaded. The message is one line.
    """
    function = Function(NAME, data=by_value.dumps(plays))
    self._timeout_s = timeout_s
    self._pools: list[FunctionPool] = []
    try:
      for _ in range(workers):
        self._pools.append(FunctionPool([function], 1, timeout_s))
    except ValueError:
      self.close()
      raise

  def close(self) -> None:
    """Stops the processes."""
    for pool in self._pools:
      pool.close()

  def processes(self) -> list[int]:
    """Returns the process ids."""
    return [pid for pool in self._pools for pid in pool.processes()]

  def tasks(self, limit: int) -> list[dict[str, Any]]:
    """Returns the tasks, at most `limit` of them, or all if it is 0.

    Raises:
      ValueError: the environment fails to list its tasks.
    """
    request = {"action": server.TASKS, "limit": limit}
    answer = self._pools[0].submit(0, request, START_TIMEOUT_S).result()
    if answer.failure:
      raise ValueError(f"tasks: {answer.failure}: {answer.message}")
    return answer.value

  def begin(self, task: EnvironmentTask) -> "Future[CallResult]":
    """Returns the future of an episode's prompt: `messages` and `tools`."""
    pool = self._pools[self._owner(task, "")]
    return pool.submit(0, {"action": server.BEGIN, "task": dict(task)})

  def step(
    self, task: EnvironmentTask, replies: Sequence[str], shown: str = ""
  ) -> "Future[CallResult]":
    """Steps on the last reply; returns the future of the turn.

    Args:
      task: the episode's task.
      replies: all replies so far, at least one.
      shown: digest of the previous turn. "" if unknown.
    """
    return self._play(server.STEP, task, replies, False, shown)

  def finish(
    self, task: EnvironmentTask, replies: Sequence[str], is_cut: bool
  ) -> "Future[CallResult]":
    """Ends an episode; returns the future of its last turn.

    Args:
      task: the episode's task.
      replies: all replies so far, at least one.
      is_cut: whether the last reply was truncated.
    """
    return self._play(server.FINISH, task, replies, is_cut, "")

  def _play(
    self,
    action: str,
    task: EnvironmentTask,
    replies: Sequence[str],
    is_cut: bool,
    shown: str,
  ) -> "Future[CallResult]":
    pool = self._pools[self._owner(task, replies[0])]
    request = {
      "action": action,
      "task": dict(task),
      "replies": list(replies),
      "is_cut": is_cut,
      "shown": shown,
    }
    # A replay also starts the episode.
    limit_s = self._timeout_s * (len(replies) + 1)
    if len(replies) == 1:
      return pool.submit(0, request, limit_s)

    def again(answer: CallResult) -> "CallResult | Future[CallResult]":
      is_lost = isinstance(answer.value, dict) and server.LOST in answer.value
      return pool.submit(0, request, limit_s) if is_lost else answer

    return futures.then(pool.submit(0, request | {"replay": False}), again)

  def _owner(self, task: EnvironmentTask, reply: str) -> int:
    """Returns the index of the process that runs an episode."""
    text = json.dumps([dict(task), reply], sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % len(self._pools)
