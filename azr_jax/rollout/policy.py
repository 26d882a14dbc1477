"""The policy as a system sees it: prompts in, completions out.

A system calls `policy.sample(prompts, n)` and never sees meshes, slots or
optimizers. An agent answers prompts in a way of its own, for example with
tools.
"""

import collections
import contextlib
import dataclasses
import functools
import time
from collections.abc import (
  AsyncIterator,
  Callable,
  Collection,
  Coroutine,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
from concurrent.futures import Future
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import Array, Key, UInt32

from azr_jax import types
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import memory
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout import partial_rollouts
from azr_jax.rollout.event_loop import Awaited, EventLoop
from azr_jax.rollout.partial_rollouts import GroupPaused, PartialRollouts
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.sequence import Request
from azr_jax.rollout.stream import SampleKey, Stream
from azr_jax.rollout.tool_runner import ToolRunner
from azr_jax.rollout.weights import Weights
from azr_jax.types import Params

# Prompt index, sample index, completion.
IndexedCompletion = tuple[int, int, types.Completion]
# A request and the futures of its completions.
Submitted = tuple[Request, Sequence["Future[types.Completion]"]]


class Samples:
  """The completions of one `Policy.sample` call, as they finish.

  With partial rollouts, the first completion is yielded only once all of them
  have finished, so that a group is graded once.
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
    """Subscribes to the futures of the submitted prompts.

    Args:
      loop: the event loop to run while waiting.
      stream: the stream the prompts were submitted to, for `cancel`.
      prompts: the submitted prompts.
      submitted: the request and completion futures of each prompt.
      finished: a list that receives every completion that is not paused, with
        its prompt.
      ended: (prompt index, sample index) of completions that were added to
        `finished` before their group was paused; they are not added twice.
      is_partial: whether completions may be paused.
    """
    self._loop, self._stream = loop, stream
    self._prompts, self._finished, self._ended = prompts, finished, ended
    self._requests = [request for request, _ in submitted]
    self._missing = sum(len(futures) for _, futures in submitted)
    # Number of completions that must have arrived before the next one is
    # yielded.
    self._enough = self._missing if is_partial else 1
    self._arrived: collections.deque[IndexedCompletion] = collections.deque()
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

  def _take(self) -> IndexedCompletion:
    """Returns the next completion.

    Raises:
      GroupPaused: one of the completions is paused.
    """
    for index, _, completion in self._arrived:
      if completion.finish_reason == types.PAUSED:
        raise GroupPaused(self._requests[index].prompt_number)
    self._missing -= 1
    self._enough = 1
    return self._arrived.popleft()

  def __iter__(self) -> Iterator[IndexedCompletion]:
    try:
      while self._missing:
        self._loop.run_until(lambda: len(self._arrived) >= self._enough)
        yield self._take()
    finally:
      if self._missing:
        self._stream.cancel(self._requests)

  async def __aiter__(self) -> AsyncIterator[IndexedCompletion]:
    while self._missing:
      while len(self._arrived) < self._enough:
        self._more = Future()
        await Awaited(self._more)
      yield self._take()


Out = TypeVar("Out")


# Starts of the reply in prompts without a chat template, the surest first.
_REPLIES = "\nAssistant:", "\n\nReply:", "\n<think>"


@dataclasses.dataclass
class SampleLog:
  """Everything a policy and its branches have sampled.

  Attributes:
    completions: the policy's completions with their prompts, in the order in
      which they finished.
    branch_completions: the same for its branches.
    requests: the request and the futures of each call and prompt.
  """

  completions: list[tuple[types.Prompt, types.Completion]] = dataclasses.field(
    default_factory=list
  )
  branch_completions: list[tuple[types.Prompt, types.Completion]] = (
    dataclasses.field(default_factory=list)
  )
  requests: list[Submitted] = dataclasses.field(default_factory=list)


def no_prompt_fits(what: str, policy: "Policy") -> ValueError:
  """Returns the error for a step or evaluation whose prompts are all too long.

  Args:
    what: the owner of the prompts, for the message.
    policy: the policy whose prompt buckets are too small.
  """
  buckets = policy.sampler.prompt_buckets
  return ValueError(
    f"no prompt of {what} fits config.rollout.prompt_buckets={buckets}: "
    "expected a larger bucket"
  )


@dataclasses.dataclass
class Policy:
  """One step's view of the model being trained.

  Attributes:
    sampler: the sampling engine.
    tokenizer: the model's tokenizer.
    weights: the parameters to sample with. `close` does not release them.
    key: this step's random key; every call to `sample` derives its own.
    temperature: divisor of the logits; None uses the sampler's setting.
    calls: number of `sample` calls so far.
    has_numbered_calls: whether callers number their calls; None before the
      first call.
    sample_log: the completions of all calls.
    is_branch: whether `branch` made this policy.
    loop: the event loop for coroutines that sample with this policy.
    priority: the prefix of its requests' priorities; requests with a smaller
      priority get slots first.
    partial: the paused groups of the step.
    in_turn: completed when all earlier steps are complete; None if there are
      none.
    base: the frozen parameters that `Sampler.compute_params` takes with new
      adapters; {} without adapters.
  """

  sampler: Sampler
  tokenizer: Tokenizer
  weights: Weights
  key: Key[Array, ""]
  temperature: float | None = None
  calls: int = 0
  has_numbered_calls: bool | None = None
  sample_log: SampleLog = dataclasses.field(default_factory=SampleLog)
  is_branch: bool = False
  loop: EventLoop = dataclasses.field(default_factory=EventLoop)
  priority: tuple[int, ...] = ()
  partial: PartialRollouts = dataclasses.field(default_factory=PartialRollouts)
  in_turn: "Future[None] | None" = None
  base: Params = dataclasses.field(default_factory=dict)
  _key_data: dict[int, UInt32[np.ndarray, " U"]] = dataclasses.field(
    default_factory=dict, init=False, repr=False
  )

  @property
  def params(self) -> Params:
    """The parameters to sample with."""
    assert self.weights.params is not None
    return self.weights.params

  def branch(self, *numbers: int) -> "Policy":
    """Returns a policy with its own key, derived from this one and `numbers`.

    The branch and this policy do not affect each other's samples. They share
    one `sample_log`. A branch never pauses groups.
    """
    key = keys.fold(self.key, Purpose.BRANCH, *numbers)
    return dataclasses.replace(
      self,
      key=key,
      calls=0,
      has_numbered_calls=None,
      is_branch=True,
      partial=PartialRollouts(),
    )

  def run(self, coroutine: Coroutine[Any, Any, Out]) -> Out:
    """Runs a coroutine to completion; must not be called from a coroutine."""
    return self.loop.run(coroutine)

  async def gather(
    self, coroutines: Iterable[Coroutine[Any, Any, Out]]
  ) -> list[Out]:
    """Runs coroutines concurrently; returns their results in order."""
    futures = [self.loop.spawn(coroutine) for coroutine in coroutines]
    return [await Awaited(future) for future in futures]

  async def earlier_steps(self) -> None:
    """Waits until all earlier steps are complete.

    Await this before a step changes the system's state. Steps then change it in
    order, also after a resume.
    """
    if self.in_turn is not None:
      await Awaited(self.in_turn)

  @contextlib.contextmanager
  def with_key(
    self, key: Key[Array, ""], temperature: float | None = None
  ) -> "Iterator[Policy]":
    """Yields a copy of this policy with another key, for evaluations.

    The copy samples on its own stream, whose cache is freed when the block
    ends. Its completions lack the experts that training would replay.

    Args:
      key: the random key of the copy.
      temperature: divisor of the logits; None keeps this policy's.
    """
    if temperature is None:
      temperature = self.temperature
    other = Policy(
      self.sampler,
      self.tokenizer,
      self.weights,
      key,
      temperature,
      loop=EventLoop(reads_experts=False),
    )
    with contextlib.closing(other):
      yield other

  def close(self) -> None:
    """Frees the device memory of its stream."""
    self.loop.close()

  def prompt(
    self, text: str, task: Any = None, question: str = ""
  ) -> types.Prompt:
    """Tokenizes a whole prompt, with BOS if the model uses one.

    Args:
      text: the prompt.
      task: data for the grader.
      question: the question in the prompt, at whose end a teacher's prompt says
        more. "" looks for the start of the reply instead.
    """
    ids = tuple(self.tokenizer.encode_prompt(text))
    end = question_end(text, question)
    return types.Prompt(text, ids, task, question_end=end)

  def fits(self, prompt: types.Prompt) -> bool:
    """Returns whether the prompt fits the largest prompt bucket."""
    return len(prompt.token_ids) <= self.sampler.prompt_buckets[-1]

  def sample(
    self,
    prompts: Sequence[types.Prompt],
    n: int = 1,
    prompt_numbers: Sequence[int] | None = None,
    tool_runner: ToolRunner | None = None,
    temperature: float | None = None,
    call: int | None = None,
    max_new_tokens: Sequence[int] | None = None,
  ) -> Samples:
    """Samples n completions of each prompt.

    A prompt's samples depend on its number and the number of previous calls
    (or on `call`), but not on the other prompts.

    Args:
      prompts: the prompts; each must fit a prompt bucket.
      n: completions per prompt.
      prompt_numbers: the integer that each prompt folds into the key; None uses
        the prompt's index.
      tool_runner: runs the tool calls of conversations; None ends a completion
        with its first response.
      temperature: divisor of the logits; None uses the policy's.
      call: replaces the number of previous calls in the key. Number all of a
        policy's calls or none, so that no two share a key.
      max_new_tokens: maximum number of new tokens per completion of each
        prompt; None uses `rollout.max_tokens`.

    Returns:
      (prompt index, sample index, completion) as they finish. Iterate with
      `async for` in a coroutine and with `for` elsewhere. With partial rollouts
      nothing is yielded until all have finished, and iterating raises
      `GroupPaused` if one is paused.

    Raises:
      ValueError: only some of the policy's calls have a number.
    """
    if self.has_numbered_calls not in (None, call is not None):
      raise ValueError(
        f"call={call}: expected a number in all `sample` calls of a policy or "
        "in none, because keys could repeat; use `policy.branch` for the others"
      )
    self.has_numbered_calls = call is not None
    number = self.calls if call is None else int(call)
    self.calls += 1
    if temperature is None:
      temperature = self.temperature
    stream = self.loop.stream(self.sampler, self.weights)
    key_data = self.call_key_data(number)
    if prompt_numbers is None:
      prompt_numbers = range(len(prompts))
    submitted = [
      stream.submit(
        prompt,
        n,
        SampleKey(key_data, prompt_numbers[index], temperature),
        None if max_new_tokens is None else max_new_tokens[index],
        priority=(*self.priority, number),
        tool_runner=tool_runner,
        step_tokens=self.partial.step_tokens,
      )
      for index, prompt in enumerate(prompts)
    ]
    log = self.sample_log
    log.requests += submitted
    return Samples(
      self.loop,
      stream,
      prompts,
      submitted,
      log.branch_completions if self.is_branch else log.completions,
      {
        (index, sample)
        for ended_call, ended_prompt, sample in self.partial.ended
        for index, own in enumerate(prompt_numbers)
        if (ended_call, ended_prompt) == (number, own)
      },
      is_partial=self.partial.step_tokens > 0,
    )

  def partial_samples(self, prompt_number: int) -> list[partial_rollouts.Saved]:
    """Returns the samples of a prompt whose group is paused.

    Args:
      prompt_number: the integer that the prompt folds into the key.
    """
    calls = {data.tobytes(): call for call, data in self._key_data.items()}
    latest = {
      calls[request.key_data.tobytes()]: (request, futures)
      for request, futures in self.sample_log.requests
      if request.prompt_number == prompt_number
      and request.key_data.tobytes() in calls
    }
    return [
      saved
      for call, submitted in latest.items()
      for saved in partial_rollouts.save(call, *submitted)
    ]

  def resume_groups(
    self, groups: Mapping[int, Sequence[partial_rollouts.Saved]]
  ) -> None:
    """Makes later `sample` calls resume these groups.

    Args:
      groups: saved samples by the prompt's number in this step. They may come
        from an earlier step or from this one.
    """
    known = []
    for prompt_number, group in groups.items():
      for saved in group:
        call = saved["call"]
        key_data = self.call_key_data(call)
        known.append(partial_rollouts.restore(saved, key_data, prompt_number))
        if saved["finish"] is not None:
          self.partial.ended.add((call, prompt_number, saved["sample"]))
    self.loop.restore(known)

  def call_key_data(self, call: int) -> UInt32[np.ndarray, " U"]:
    """Returns the data of a call's random key; calls count from 0."""
    if call not in self._key_data:
      # Cached, because computing it would queue behind the device's current
      # work.
      key = jax.random.fold_in(self.key, call)
      self._key_data[call] = np.asarray(jax.random.key_data(key))
    return self._key_data[call]


@contextlib.contextmanager
def open_policy(
  sampler: Sampler,
  tokenizer: Tokenizer,
  params: Params,
  key: Key[Array, ""],
  weights: Weights | None = None,
  version: int = 0,
  now: Callable[[], float] = time.monotonic,
) -> Iterator[Policy]:
  """Yields a policy whose copy of the weights is freed when the block ends.

  Args:
    sampler: the sampling engine.
    tokenizer: the model's tokenizer.
    params: the training parameters. Sampling waits for the update that produces
      them, because the update's buffers and the KV cache do not fit in memory
      together.
    key: the random key of all samples.
    weights: holds the copy until the block ends; None uses a new instance.
    version: number of updates that produced the parameters.
    now: a clock in seconds, for metrics.
  """
  weights = Weights() if weights is None else weights
  start = now()
  with memory.explained(memory.SAMPLING_KEYS):
    with jax.profiler.TraceAnnotation("copy_weights"):
      weights.restore(
        jax.block_until_ready(sampler.compute_params(params)), version
      )
    sampler.meter.busy.append((start, now()))
    try:
      with contextlib.closing(
        Policy(sampler, tokenizer, weights, key)
      ) as policy:
        yield policy
    finally:
      weights.release()


def question_end(text: str, question: str) -> int:
  """Returns where the question of a prompt ends; 0 if unknown.

  Args:
    text: the prompt.
    question: the question in it; "" looks for the start of the reply instead.
  """
  question = question.strip()
  start = text.rfind(question) if question else -1
  if start >= 0:
    return start + len(question)
  ends = (text.rfind(mark) for mark in _REPLIES)
  return next((end for end in ends if end > 0), 0)


# Samples in the order in which they finish.
Answers = AsyncIterator[IndexedCompletion]
# Answers prompts: (policy, prompts, n, prompt numbers) -> answers. An answer's
# text starts with its prompt's prefill (`Prompt.begun`).
Agent = Callable[[Policy, Sequence[types.Prompt], int, Sequence[int]], Answers]


async def single_turn(
  policy: Policy,
  prompts: Sequence[types.Prompt],
  n: int,
  prompt_numbers: Sequence[int],
) -> Answers:
  """Samples one response per completion; the agent without tools."""
  async for index, sample, completion in policy.sample(
    prompts, n, prompt_numbers
  ):
    yield index, sample, prompts[index].begun(completion)


def short_single_turn(max_new_tokens: int) -> Agent:
  """Returns an agent without tools that has its own response limit.

  Args:
    max_new_tokens: longest response in tokens, at most `rollout.max_tokens`.
  """

  async def answer(
    policy: Policy,
    prompts: Sequence[types.Prompt],
    n: int,
    prompt_numbers: Sequence[int],
  ) -> Answers:
    limits = [max_new_tokens] * len(prompts)
    async for index, sample, completion in policy.sample(
      prompts, n, prompt_numbers, max_new_tokens=limits
    ):
      yield index, sample, prompts[index].begun(completion)

  return answer
