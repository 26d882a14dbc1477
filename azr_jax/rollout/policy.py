"""The policy as a system sees it: prompts in, completions out.

A system calls `policy.sample(prompts, n)` and knows nothing of meshes, slots
or optimizers. An agent is another way to get completions from a policy, for
example with tools.
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

from azr_jax import types
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import memory
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


Out = TypeVar("Out")

# Folded into the key of a policy's branches. Calls are counted from 0.
_BRANCH = (1 << 31) - 1


@dataclasses.dataclass
class SampleLog:
  """What a policy and its branches have sampled.

  Attributes:
    completions: every completion of the policy with its prompt, in the order
      in which they finished.
    branch_completions: those of its branches.
    requests: the request of each call and prompt, with its futures.
  """

  completions: list[tuple[types.Prompt, types.Completion]] = dataclasses.field(
    default_factory=list
  )
  branch_completions: list[tuple[types.Prompt, types.Completion]] = (
    dataclasses.field(default_factory=list)
  )
  requests: list[Submitted] = dataclasses.field(default_factory=list)


def no_prompt_fits(what: str, policy: "Policy") -> ValueError:
  """Returns the error of a step or evaluation whose prompts are all too long.

  Args:
    what: the owner of the prompts, for the message.
    policy: the policy, which has the prompt buckets.
  """
  buckets = policy.sampler.settings.prompt_buckets
  return ValueError(
    f"no prompt of {what} fits config.rollout.prompt_buckets={buckets}: "
    "expected a larger bucket"
  )


@dataclasses.dataclass
class Policy:
  """One step's view of the model being trained.

  Attributes:
    sampler: the sampling engine.
    tokenizer: text to ids and back.
    weights: the parameters to sample with. `close` does not release them.
    key: this step's random key; every call to `sample` derives its own.
    temperature: divides the logits; None: as the sampler's settings say.
    calls: how often `sample` was called.
    sample_log: what all calls have sampled.
    is_branch: whether `branch` made it.
    loop: runs the coroutines that sample with this policy.
    priority: of its requests among those of other policies on the loop; the
      smallest one comes first.
    partial: the paused groups of the step.
  """

  sampler: Sampler
  tokenizer: Tokenizer
  weights: Weights
  key: jax.Array
  temperature: float | None = None
  calls: int = 0
  sample_log: SampleLog = dataclasses.field(default_factory=SampleLog)
  is_branch: bool = False
  loop: EventLoop = dataclasses.field(default_factory=EventLoop)
  priority: tuple[int, ...] = ()
  partial: PartialRollouts = dataclasses.field(default_factory=PartialRollouts)
  _key_data: dict[int, np.ndarray] = dataclasses.field(
    default_factory=dict, init=False, repr=False
  )

  @property
  def params(self) -> Params:
    """The parameters to sample with."""
    assert self.weights.params is not None
    return self.weights.params

  def branch(self, *numbers: int) -> "Policy":
    """Returns a policy whose samples follow from the key and the numbers.

    They do not depend on how often this policy was called, nor the other way
    round. It counts what it samples with this policy. Nothing is paused.
    """
    key = jax.random.fold_in(self.key, _BRANCH)
    for number in numbers:
      key = jax.random.fold_in(key, number)
    return dataclasses.replace(
      self, key=key, calls=0, is_branch=True, partial=PartialRollouts()
    )

  def run(self, coroutine: Coroutine[Any, Any, Out]) -> Out:
    """Runs a coroutine to its end; not to be called in a coroutine."""
    return self.loop.run(coroutine)

  async def gather(
    self, coroutines: Iterable[Coroutine[Any, Any, Out]]
  ) -> list[Out]:
    """Runs coroutines beside each other; returns their results in order."""
    futures = [self.loop.spawn(coroutine) for coroutine in coroutines]
    return [await Awaited(future) for future in futures]

  @contextlib.contextmanager
  def with_key(
    self, key: jax.Array, temperature: float | None = None
  ) -> "Iterator[Policy]":
    """Yields the same policy with another key and no calls yet.

    It samples on a stream of its own, whose cache is freed where the block
    ends.

    Args:
      key: the other key.
      temperature: divides the logits; None: as before.
    """
    if temperature is None:
      temperature = self.temperature
    other = Policy(self.sampler, self.tokenizer, self.weights, key, temperature)
    with contextlib.closing(other):
      yield other

  def close(self) -> None:
    """Frees what its loop holds on the device."""
    self.loop.close()

  def prompt(self, text: str, task: Any = None) -> types.Prompt:
    """Tokenises a whole prompt, with BOS where the model has one."""
    return types.Prompt(text, tuple(self.tokenizer.encode_prompt(text)), task)

  def fits(self, prompt: types.Prompt) -> bool:
    """Returns whether the prompt is within the largest prompt bucket."""
    return self.sampler.bucket(len(prompt.token_ids)) is not None

  def sample(
    self,
    prompts: Sequence[types.Prompt],
    n: int = 1,
    prompt_seeds: Sequence[int] | None = None,
    tool_runner: ToolRunner | None = None,
    temperature: float | None = None,
    call: int | None = None,
    max_new_tokens: Sequence[int] | None = None,
  ) -> Samples:
    """Samples n completions of each prompt.

    A prompt's samples depend on its seed and on how often `sample` was called,
    or on `call`, not on the other prompts.

    Args:
      prompts: what to sample from; each must fit a prompt bucket.
      n: completions per prompt.
      prompt_seeds: the integer that each prompt folds into the key; None takes
        the prompt's index.
      tool_runner: runs the tool calls of conversations; None ends a completion
        with its first response.
      temperature: divides the logits; None: as that of the policy.
      call: takes the place of the number of calls before, in the key.
      max_new_tokens: maximum number of tokens of the completions of each
        prompt; None: `rollout.max_tokens`.

    Returns:
      (prompt index, sample index, completion), as they finish: for `async for`
      in a coroutine, or for `for` elsewhere. With partial rollouts they come
      when all have finished, or `GroupPaused` is raised.
    """
    number = self.calls if call is None else call
    self.calls += 1
    if temperature is None:
      temperature = self.temperature
    stream = self.loop.stream(self.sampler, self.weights)
    key_data = self._key_data_of(number)
    seeds = range(len(prompts)) if prompt_seeds is None else prompt_seeds
    submitted = [
      stream.submit(
        prompt,
        n,
        SampleKey(key_data, seeds[index], temperature),
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
        for call, seed, sample in self.partial.ended
        for index, own in enumerate(seeds)
        if (call, seed) == (number, own)
      },
      is_partial=self.partial.step_tokens > 0,
    )

  def partial_samples(self, prompt_seed: int) -> list[partial_rollouts.Saved]:
    """Returns what was sampled for a prompt, whose group is paused.

    Args:
      prompt_seed: the integer that the prompt folds into the key of its calls.
    """
    calls = {data.tobytes(): call for call, data in self._key_data.items()}
    latest = {
      calls[request.key_data.tobytes()]: (request, futures)
      for request, futures in self.sample_log.requests
      if request.seed == prompt_seed and request.key_data.tobytes() in calls
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
      groups: a prompt's seed in this step -> its samples of an earlier step, or
        of this one.
    """
    known = []
    for prompt_seed, group in groups.items():
      for saved in group:
        call = saved["call"]
        key_data = self._key_data_of(call)
        known.append(partial_rollouts.restore(saved, key_data, prompt_seed))
        if saved["finish"] is not None:
          self.partial.ended.add((call, prompt_seed, saved["sample"]))
    self.loop.restore(known)

  def _key_data_of(self, call: int) -> np.ndarray:
    """Returns the data of the random key of a call, uint32 [W]."""
    if call not in self._key_data:
      # It is computed behind what the device does now, so it is kept.
      key = jax.random.fold_in(self.key, call)
      self._key_data[call] = np.asarray(jax.random.key_data(key))
    return self._key_data[call]


@contextlib.contextmanager
def open_policy(
  sampler: Sampler,
  tokenizer: Tokenizer,
  params: Params,
  key: jax.Array,
  weights: Weights | None = None,
  version: int = 0,
) -> Iterator[Policy]:
  """Yields a policy whose copy of the weights is freed where the block ends.

  Args:
    sampler: the sampling engine.
    tokenizer: of the model.
    params: the training parameters. Sampling waits for the update that makes
      them, because its buffers and the cache do not fit in memory together.
    key: the random key of all that is sampled.
    weights: gets the copy until the block ends; None makes others.
    version: number of updates that produced the parameters.
  """
  weights = Weights() if weights is None else weights
  start = time.monotonic()
  with memory.explained(memory.SAMPLING_KEYS):
    with jax.profiler.TraceAnnotation("copy_weights"):
      weights.restore(
        jax.block_until_ready(sampler.compute_params(params)), version
      )
    sampler.meter.busy.append((start, time.monotonic()))
    try:
      with contextlib.closing(
        Policy(sampler, tokenizer, weights, key)
      ) as policy:
        yield policy
    finally:
      weights.release()


# Samples in any order.
Answers = AsyncIterator[Sample]
# Answers prompts with a policy: (policy, prompts, n, prompt seeds) -> answers.
Agent = Callable[[Policy, Sequence[types.Prompt], int, Sequence[int]], Answers]


async def single_turn(
  policy: Policy,
  prompts: Sequence[types.Prompt],
  n: int,
  prompt_seeds: Sequence[int],
) -> Answers:
  """The agent without tools: a completion is one response of the policy."""
  async for sample in policy.sample(prompts, n, prompt_seeds):
    yield sample


def short_single_turn(max_new_tokens: int) -> Agent:
  """Returns an agent without tools that has its own limit on responses.

  Args:
    max_new_tokens: longest response, tokens; at most `rollout.max_tokens`.
  """

  async def answer(
    policy: Policy,
    prompts: Sequence[types.Prompt],
    n: int,
    prompt_seeds: Sequence[int],
  ) -> Answers:
    limits = [max_new_tokens] * len(prompts)
    async for sample in policy.sample(
      prompts, n, prompt_seeds, max_new_tokens=limits
    ):
      yield sample

  return answer
