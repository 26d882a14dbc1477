"""Completions as a caller of `Policy.sample` gets them."""

import collections
import functools
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from concurrent.futures import Future

from azr_jax import types
from azr_jax.rollout.event_loop import Awaited, EventLoop
from azr_jax.rollout.partial_rollouts import GroupPaused
from azr_jax.rollout.sequence import Request
from azr_jax.rollout.stream import Stream

# Prompt index, sample index, completion.
Sample = tuple[int, int, types.Completion]
# A request, and the futures of its completions.
Submitted = tuple[Request, Sequence["Future[types.Completion]"]]


class Samples:
  """The completions of a call of `Policy.sample`, each once, as they finish.

  With partial rollouts they come when all have finished, so that a group is
  graded once.
  """

  def __init__(
    self,
    loop: EventLoop,
    stream: Stream,
    prompts: Sequence[types.Prompt],
    submitted: Sequence[Submitted],
    finished: list[tuple[types.Prompt, types.Completion]],
    ended: Collection[tuple[int, int]] = (),
    is_partial: bool = False,
  ):
    """Waits for completions.

    Args:
      loop: runs coroutines.
      stream: samples.
      prompts: what was submitted.
      submitted: the request of each prompt, and the futures of its completions.
      finished: a list to which each prompt and completion is appended, unless
        it is paused.
      ended: (prompt index, sample index) of what was appended to the list
        before its group was paused.
      is_partial: whether completions may be paused.
    """
    self._loop, self._stream = loop, stream
    self._prompts, self._finished, self._ended = prompts, finished, ended
    self._requests = [request for request, _ in submitted]
    self._missing = sum(len(futures) for _, futures in submitted)
    # How many have to be there for the first one to come.
    self._enough = self._missing if is_partial else 1
    self._arrived: collections.deque[Sample] = collections.deque()
    self._more: Future[None] | None = None
    for index, (_, futures) in enumerate(submitted):
      for sample, future in enumerate(futures):
        future.add_done_callback(functools.partial(self._arrive, index, sample))

  def _arrive(
    self, index: int, sample: int, future: "Future[types.Completion]"
  ) -> None:
    completion = future.result()
    is_paused = completion.finish_reason == types.PAUSED
    if not is_paused and (index, sample) not in self._ended:
      self._finished.append((self._prompts[index], completion))
    self._arrived.append((index, sample, completion))
    if self._more is not None:
      more, self._more = self._more, None
      more.set_result(None)

  def _take(self) -> Sample:
    """Returns the next completion.

    Raises:
      GroupPaused: one is paused.
    """
    for index, _, completion in self._arrived:
      if completion.finish_reason == types.PAUSED:
        raise GroupPaused(self._requests[index].seed)
    self._missing -= 1
    self._enough = 1
    return self._arrived.popleft()

  def __iter__(self) -> Iterator[Sample]:
    try:
      while self._missing:
        self._loop.run_until(lambda: len(self._arrived) >= self._enough)
        yield self._take()
    finally:
      if self._missing:
        self._stream.cancel(self._requests)

  async def __aiter__(self) -> AsyncIterator[Sample]:
    while self._missing:
      while len(self._arrived) < self._enough:
        self._more = Future()
        await Awaited(self._more)
      yield self._take()
