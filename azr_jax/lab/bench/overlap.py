"""How long a device stands idle because conversations await scripts.

The device is a stand-in: each of its calls takes as long as decoding a chunk of
tokens would. Everything else is real: as in the sampler, a conversation keeps
its slot while its script runs in the executor, slots are looked at between two
device calls, and the device is idle when every conversation in a slot awaits a
script.

Some scripts never end. They wait rather than loop, so that nodes that share
the cores of one machine stand for nodes with cores of their own; both kinds
hold a slot of a zygote until the limit. Even with an executor that loses no
time, the device is idle when the last conversations await such scripts.
`IdealScripts` simulates that, with the same random numbers.
"""

import concurrent.futures
import dataclasses
import heapq
import time
from collections.abc import Iterable
from typing import Protocol

import numpy as np

from azr_jax.executor import Executor, scripts
from azr_jax.executor.pending import ResultFuture

QUICK = "print({})"
ENDLESS = "import threading\nthreading.Event().wait()  # {}"


@dataclasses.dataclass(frozen=True)
class Load:
  """Conversations, and the device that decodes them.

  Attributes:
    conversations: number of conversations.
    scripts: scripts per conversation; a response precedes and follows each.
    response_tokens: mean length of a response; they have between half as many
      and half as many more.
    endless_fraction: fraction of the scripts that never end.
    slots: conversations that decode at a time.
    token_s: seconds in which the device decodes a token of every slot.
    chunk_tokens: tokens that a device call decodes.
    seed: of the lengths and of which scripts never end.
  """

  conversations: int
  scripts: int
  response_tokens: int
  endless_fraction: float
  slots: int
  token_s: float
  chunk_tokens: int
  seed: int


@dataclasses.dataclass(frozen=True)
class Usage:
  """What became of the device's time.

  Attributes:
    seconds: of the whole load.
    idle_s: of them, those in which every slot awaited a script.
  """

  seconds: float
  idle_s: float

  @property
  def idle_fraction(self) -> float:
    """The fraction of the time in which the device was idle."""
    return self.idle_s / self.seconds


@dataclasses.dataclass(eq=False)
class _Conversation:
  """A conversation in a slot.

  Attributes:
    number: which one it is.
    left: tokens left of each of its responses, from the current one.
    endless: whether each of the scripts still to come never ends.
  """

  number: int
  left: list[float]
  endless: list[bool]


class ScriptBackend(Protocol):
  """Runs scripts in real or simulated time."""

  def now(self) -> float:
    """Returns the time in seconds."""
    ...

  def decode(self, seconds: float) -> None:
    """Lets the device work for so long."""
    ...

  def start(self, conversation: int, is_endless: bool) -> None:
    """Starts a conversation's script."""
    ...

  def ended(self, wait: bool) -> Iterable[int]:
    """Returns conversations whose scripts have ended, each once.

    Args:
      wait: whether to wait until there is one.
    """
    ...


def simulate(load: Load, backend: ScriptBackend) -> Usage:
  """Samples all conversations once."""
  waiting = _draw(load)
  decoding: dict[int, _Conversation] = {}
  awaiting: dict[int, _Conversation] = {}
  idle_s, start = 0.0, backend.now()
  while waiting or decoding or awaiting:
    while waiting and len(decoding) + len(awaiting) < load.slots:
      conversation = waiting.pop()
      decoding[conversation.number] = conversation
    if decoding:
      backend.decode(load.chunk_tokens * load.token_s)
    for conversation in list(decoding.values()):
      conversation.left[0] -= load.chunk_tokens
      if conversation.left[0] <= 0:
        del decoding[conversation.number]
        if conversation.endless:
          conversation.left.pop(0)
          awaiting[conversation.number] = conversation
          backend.start(conversation.number, conversation.endless.pop(0))
    has_room = waiting and len(decoding) + len(awaiting) < load.slots
    is_idle = not decoding and not has_room
    before = backend.now()
    for number in backend.ended(wait=is_idle) if awaiting else ():
      decoding[number] = awaiting.pop(number)
    idle_s += backend.now() - before if is_idle else 0.0
  return Usage(backend.now() - start, idle_s)


def _draw(load: Load) -> list[_Conversation]:
  """Draws the lengths of responses, and which scripts never end."""
  rng = np.random.default_rng(load.seed)
  mean = load.response_tokens
  return [
    _Conversation(
      number,
      rng.uniform(0.5 * mean, 1.5 * mean, load.scripts + 1).tolist(),
      (rng.random(load.scripts) < load.endless_fraction).tolist(),
    )
    for number in range(load.conversations)
  ]


class IdealScripts:
  """Virtual time, in which a quick script ends at once."""

  def __init__(self, timeout_s: float):
    """Starts at zero.

    Args:
      timeout_s: when a script that never ends is stopped.
    """
    self._timeout_s = timeout_s
    self._now = 0.0
    self._ends: list[tuple[float, int]] = []

  def now(self) -> float:
    """Returns the time in seconds."""
    return self._now

  def decode(self, seconds: float) -> None:
    """Lets time pass."""
    self._now += seconds

  def start(self, conversation: int, is_endless: bool) -> None:
    """Notes when a conversation's script will end."""
    end = self._now + (self._timeout_s if is_endless else 0.0)
    heapq.heappush(self._ends, (end, conversation))

  def ended(self, wait: bool) -> list[int]:
    """Returns conversations whose scripts have ended, each once."""
    if wait:
      self._now = max(self._now, self._ends[0][0])
    ended: list[int] = []
    while self._ends and self._ends[0][0] <= self._now:
      ended.append(heapq.heappop(self._ends)[1])
    return ended


class RealScripts:
  """Wall clock, in which scripts run in an executor.

  Attributes:
    latencies_s: of each quick script, from its start to its verdict.
    timeouts: how many scripts reached the limit.
  """

  def __init__(self, executor: Executor):
    """Starts without scripts.

    Args:
      executor: runs the scripts.
    """
    self._executor = executor
    self._running: dict[ResultFuture, int] = {}
    self._serial = 0
    self.latencies_s: list[float] = []
    self.timeouts = 0

  def now(self) -> float:
    """Returns the time in seconds."""
    return time.monotonic()

  def decode(self, seconds: float) -> None:
    """Sleeps, as a host does that awaits its device."""
    time.sleep(seconds)

  def start(self, conversation: int, is_endless: bool) -> None:
    """Submits a conversation's script; no two are the same text."""
    self._serial += 1
    script = (ENDLESS if is_endless else QUICK).format(self._serial)
    future = self._executor.submit(scripts.script_job(script))
    self._running[future] = conversation
    if not is_endless:
      start = time.monotonic()
      future.add_done_callback(
        lambda _: self.latencies_s.append(time.monotonic() - start)
      )

  def ended(self, wait: bool) -> list[int]:
    """Returns conversations whose scripts have ended, each once.

    Raises:
      RuntimeError: a script ended otherwise than at its end or the limit.
    """
    timeout_s = None if wait else 0
    first = concurrent.futures.FIRST_COMPLETED
    done, _ = concurrent.futures.wait(self._running, timeout_s, first)
    for future in done:
      result = future.result()
      self.timeouts += result.status == "timeout"
      if result.status not in ("ok", "timeout"):
        raise RuntimeError(f"a script ended as {result}")
    return [self._running.pop(future) for future in done]
