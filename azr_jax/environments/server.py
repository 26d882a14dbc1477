"""Runs episodes in a worker process, one request at a time.

A request identifies an episode by its task and the replies so far, not by a
number. The process caches the running episodes under this key and replays the
ones that it does not know. A killed process, a resumed run or another host
loses nothing as long as the environment is deterministic given the replies. A
replay is checked: it must show the same messages.

Each episode has its own state of Python's and NumPy's random generators.
"""

import collections
import contextlib
import dataclasses
import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax.environments import kits, protocol
from azr_jax.environments.protocol import Episode, Kit, Observation, Turn

# Episodes that a process caches. Evicted ones are replayed on their next turn.
_CAPACITY = 1024
TASKS, BEGIN, STEP, FINISH = "tasks", "begin", "step", "finish"
# Key of an answer which says that the episode must be replayed.
LOST = "lost"


@dataclasses.dataclass
class _Live:
  """A cached episode.

  Attributes:
    episode: the episode after its last reply.
    random_state: the states of its random generators.
    shown: digest of all messages that the model was shown.
    reward: the sum of rewards so far.
    metrics: the metrics so far.
    is_done: whether the episode is over.
    last: the messages of the last turn.
  """

  episode: Episode
  random_state: Any
  shown: str = ""
  reward: float = 0.0
  metrics: dict[str, float] = dataclasses.field(default_factory=dict)
  is_done: bool = False
  last: Sequence[Mapping[str, Any]] = ()


class EpisodeServer:
  """A function for worker processes; see the module docstring."""

  def __init__(self, spec: str):
    """Stores the spec; `bind` loads the environment.

    Args:
      spec: an environment spec, see `kits.py`.
    """
    self._spec = spec
    self._kit = Kit(lambda _: [], lambda _: _NoEpisode())
    self._live: collections.OrderedDict[str, _Live] = collections.OrderedDict()

  def bind(self, environment: Mapping[str, str]) -> None:
    """Loads the environment; the worker process calls it once.

    Raises:
      ValueError: the environment cannot be loaded.
    """
    del environment
    self._kit = kits.load(self._spec)

  def __call__(
    self,
    action: str,
    task: Any = None,
    replies: Sequence[str] = (),
    is_cut: bool = False,
    shown: str = "",
    replay: bool = True,
    limit: int = 0,
  ) -> Any:
    """Answers a request.

    Args:
      action: `TASKS`, `BEGIN`, `STEP` or `FINISH`.
      task: the episode's task.
      replies: the model's replies so far; `STEP` steps on the last one.
      is_cut: whether the last reply was truncated.
      shown: the digest `shown` of an earlier turn, which a replay must
        reproduce. "" if unknown.
      replay: whether to replay an unknown episode. Otherwise the answer is
        `LOST`.
      limit: maximum number of tasks. 0 returns all.

    Returns:
      The tasks; the first messages and tools; or a turn, with the episode's
      reward and metrics so far.

    Raises:
      RuntimeError: a replay differs from the original episode.
    """
    if action == TASKS:
      return list(self._kit.tasks(limit))
    if action == BEGIN:
      return self._begin(task)
    known = self._live.get(_key(task, replies))
    if known is None or (action == STEP and not known.is_done):
      known = self._played(task, replies, is_cut, shown, replay)
      if known is None:
        return {LOST: True}
    if action == FINISH and not known.is_done:
      self._take(known, known.episode.finish)
    return {
      "messages": known.last,
      "is_done": known.is_done,
      "reward": known.reward,
      "metrics": known.metrics,
      "shown": known.shown,
    }

  def _begin(self, task: Any) -> dict[str, Any]:
    """Returns an episode's prompt and tools, without caching the episode."""
    live = self._new(task)
    with _random(live):
      observation = live.episode.begin()
      live.episode.close()
    return {
      "messages": list(observation.messages),
      "tools": list(observation.tools),
    }

  def _new(self, task: Any) -> _Live:
    seed = int(_key(task, ())[:8], 16)
    state = random.Random(seed).getstate(), np.random.RandomState(seed)
    live = _Live(_NoEpisode(), (state[0], state[1].get_state()))
    with _random(live):
      live.episode = self._kit.make(task)
    return live

  def _played(
    self,
    task: Any,
    replies: Sequence[str],
    is_cut: bool,
    shown: str,
    replay: bool,
  ) -> _Live | None:
    """Returns the episode after its last reply. None if it must be replayed."""
    live = self._live.pop(_key(task, replies[:-1]), None)
    if live is not None and live.is_done:
      live = None
    if live is None:
      if not replay:
        return None
      live = self._replayed(task, replies[:-1], shown)
    self._take(live, lambda: live.episode.step(replies[-1], is_cut))
    self._keep(_key(task, replies), live)
    return live

  def _replayed(self, task: Any, replies: Sequence[str], shown: str) -> _Live:
    live = self._new(task)
    with _random(live):
      live.shown = _digest("", live.episode.begin().messages)
    for number, reply in enumerate(replies, 1):
      if live.is_done:
        raise RuntimeError(_differs(f"ends after {number - 1} replies"))
      self._take(live, lambda text=reply: live.episode.step(text, False))
    if live.is_done or (shown and live.shown != shown):
      raise RuntimeError(_differs("shows something else"))
    return live

  def _take(self, live: _Live, play: Callable[[], Turn]) -> None:
    """Takes a turn and adds it to the episode."""
    with _random(live):
      turn = play()
    live.last = protocol.messages(turn.messages)
    live.shown = _digest(live.shown, live.last)
    live.reward += float(turn.reward)
    live.metrics |= turn.metrics
    live.is_done = turn.is_done
    if not (live.is_done or live.last):
      raise RuntimeError(
        "the environment shows nothing and is not done: expected messages or "
        "is_done=True"
      )
    if live.is_done:
      live.episode.close()

  def _keep(self, key: str, live: _Live) -> None:
    """Caches an episode and evicts the oldest one if the cache is full."""
    self._live[key] = live
    if len(self._live) > _CAPACITY:
      _, oldest = self._live.popitem(last=False)
      if not oldest.is_done:
        with _random(oldest):
          oldest.episode.close()


class _NoEpisode:
  """A placeholder for an episode that has not been made yet."""

  def begin(self) -> Observation:
    """Returns an empty observation."""
    return Observation(())

  def step(self, reply: str, is_cut: bool) -> Turn:
    """Returns an empty last turn."""
    del reply, is_cut
    return Turn(is_done=True)

  def finish(self) -> Turn:
    """Returns an empty last turn."""
    return Turn(is_done=True)

  def close(self) -> None:
    """Does nothing."""


def _differs(what: str) -> str:
  return (
    f"the environment {what} when its episode is replayed: expected the same "
    "turns for the same task, replies and random generators"
  )


def _key(task: Any, replies: Sequence[str]) -> str:
  """Returns a digest that identifies an episode."""
  text = json.dumps([task, list(replies)], sort_keys=True, default=str)
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _digest(before: str, messages: Sequence[Mapping[str, Any]]) -> str:
  text = json.dumps([before, list(messages)], sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@contextlib.contextmanager
def _random(live: _Live) -> Iterator[None]:
  """Swaps in an episode's random state while the context is active."""
  own = random.getstate(), np.random.get_state()
  random.setstate(live.random_state[0])
  np.random.set_state(live.random_state[1])
  try:
    yield
  finally:
    live.random_state = random.getstate(), np.random.get_state()
    random.setstate(own[0])
    np.random.set_state(own[1])
