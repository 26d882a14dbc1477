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
  Sequence,
)
from concurrent.futures import Future
from typing import Any, TypeVar

import jax
import numpy as np

from azr_jax import types
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.environment import Environment
from azr_jax.rollout.event_loop import Awaited, EventLoop
from azr_jax.rollout.sampler import Sampler
from azr_jax.rollout.sequence import Request, SequenceState
from azr_jax.rollout.stream import SampleKey, Stream
from azr_jax.types import Params

Out = TypeVar("Out")
# Prompt index, sample index, completion.
Sample = tuple[int, int, types.Completion]
# A request, and the futures of its completions.
Submitted = tuple[Request, Sequence["Future[types.Completion]"]]

# Folded into the key of a policy's branches. Calls are counted from 0.
_BRANCH = (1 << 31) - 1
# The place of an earlier step's responses among the calls of a step.
_FIRST = -1


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


@dataclasses.dataclass
class Policy:
  """One step's view of the model being trained.

  Attributes:
    sampler: the sampling engine.
    tokenizer: text to ids and back.
    params: the parameters to sample with.
    key: this step's random key; every call to `sample` derives its own.
    temperature: divides the logits; None: as the sampler's settings say.
    calls: how often `sample` was called.
    sample_log: what all calls have sampled.
    is_branch: whether `branch` made it.
    loop: runs the coroutines that sample with this policy.
    priority: of its requests among those of other policies on the loop; the
      smallest one comes first.
  """

  sampler: Sampler
  tokenizer: Tokenizer
  params: Any
  key: jax.Array
  temperature: float | None = None
  calls: int = 0
  sample_log: SampleLog = dataclasses.field(default_factory=SampleLog)
  is_branch: bool = False
  loop: EventLoop = dataclasses.field(default_factory=EventLoop)
  priority: tuple[int, ...] = ()
  _key_words: dict[int, np.ndarray] = dataclasses.field(
    default_factory=dict, init=False, repr=False
  )

  def branch(self, *numbers: int) -> "Policy":
    """Returns a policy whose samples follow from the key and the numbers.

    They do not depend on how often this policy was called, nor the other way
    round. It counts what it samples with this policy.
    """
    key = jax.random.fold_in(self.key, _BRANCH)
    for number in numbers:
      key = jax.random.fold_in(key, number)
    return dataclasses.replace(self, key=key, calls=0, is_branch=True)

  def run(self, coroutine: Coroutine[Any, Any, Out]) -> Out:
    """Runs a coroutine to its end; not to be called in a coroutine."""
    return self.loop.run(coroutine)

  async def gather(
    self, coroutines: Iterable[Coroutine[Any, Any, Out]]
  ) -> list[Out]:
    """Runs coroutines beside each other; returns their results in order."""
    futures = [self.loop.spawn(coroutine) for coroutine in coroutines]
    return [await Awaited(future) for future in futures]

  def with_key(
    self, key: jax.Array, temperature: float | None = None
  ) -> "Policy":
    """Returns the same policy with another key and no calls yet.

    Args:
      key: the other key.
      temperature: divides the logits; None: as before.
    """
    if temperature is None:
      temperature = self.temperature
    return Policy(self.sampler, self.tokenizer, self.params, key, temperature)

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
    environment: Environment | None = None,
    temperature: float | None = None,
    call: int | None = None,
    max_new_tokens: Sequence[int] | None = None,
    step_tokens: int = 0,
  ) -> "Samples":
    """Samples n completions of each prompt.

    A prompt's samples depend on its seed and on how often `sample` was called,
    or on `call`, not on the other prompts.

    Args:
      prompts: what to sample from; each must fit a prompt bucket.
      n: completions per prompt.
      prompt_seeds: the integer that each prompt folds into the key; None takes
        the prompt's index.
      environment: runs the tool calls of conversations; None ends a completion
        with its first response.
      temperature: divides the logits; None: as that of the policy.
      call: takes the place of the number of calls before, in the key.
      max_new_tokens: maximum number of tokens of the completions of each
        prompt; None: `rollout.max_tokens`.
      step_tokens: tokens after which a completion is paused, for `go_on` in the
        next step; 0: none is.

    Returns:
      (prompt index, sample index, completion), as they finish or are paused:
      for `async for` in a coroutine, or for `for` elsewhere.
    """
    number = self.calls if call is None else call
    self.calls += 1
    if temperature is None:
      temperature = self.temperature
    stream = self.loop.stream(self.sampler, self.params)
    if number not in self._key_words:
      # It is computed behind what the device does now, so it is kept.
      key = jax.random.fold_in(self.key, number)
      self._key_words[number] = np.asarray(jax.random.key_data(key))
    key_data = self._key_words[number]
    seeds = range(len(prompts)) if prompt_seeds is None else prompt_seeds
    submitted = [
      stream.submit(
        prompt,
        n,
        SampleKey(key_data, seeds[index], temperature),
        None if max_new_tokens is None else max_new_tokens[index],
        priority=(*self.priority, number),
        environment=environment,
        step_tokens=step_tokens,
      )
      for index, prompt in enumerate(prompts)
    ]
    return self._samples(stream, prompts, submitted)

  def go_on(
    self,
    prompt: types.Prompt,
    sequences: Sequence[SequenceState],
    step_tokens: int,
    environment: Environment | None = None,
    max_new_tokens: int | None = None,
  ) -> "Samples":
    """Goes on with the completions of a prompt that an earlier step paused.

    They have the random key of that step and get their slots before the prompts
    of this one.

    Args:
      prompt: the prompt.
      sequences: all of its completions; those that have ended come as they are.
      step_tokens: tokens after which a completion is paused again; 0: none is.
      environment: as for `sample`.
      max_new_tokens: as the first call had it for the prompt.

    Returns:
      As `sample`, with prompt index 0.
    """
    request = sequences[0].request
    stream = self.loop.stream(self.sampler, self.params)
    self.loop.restore(sequences)
    submitted = stream.submit(
      prompt,
      len(sequences),
      SampleKey(request.key_data, request.seed, self.temperature),
      max_new_tokens,
      priority=(*self.priority, _FIRST),
      environment=environment,
      step_tokens=step_tokens,
    )
    ended = {s.sample_index for s in sequences if s.finish_reason is not None}
    return self._samples(stream, [prompt], [submitted], ended)

  def _samples(
    self,
    stream: Stream,
    prompts: Sequence[types.Prompt],
    submitted: Sequence[Submitted],
    ended: Collection[int] = (),
  ) -> "Samples":
    """Returns the completions that a stream will deliver, and logs them."""
    log = self.sample_log
    log.requests += submitted
    finished = log.branch_completions if self.is_branch else log.completions
    return Samples(self.loop, stream, prompts, submitted, finished, ended)


class Samples:
  """The completions of a call of `Policy.sample`, each once, as they finish.

  Attributes:
    requests: the request of each prompt.
  """

  def __init__(
    self,
    loop: EventLoop,
    stream: Stream,
    prompts: Sequence[types.Prompt],
    submitted: Sequence[Submitted],
    finished: list[tuple[types.Prompt, types.Completion]],
    ended: Collection[int] = (),
  ):
    """Waits for completions.

    Args:
      loop: runs coroutines.
      stream: samples.
      prompts: what was submitted.
      submitted: the request of each prompt, and the futures of its completions.
      finished: a list to which each prompt and completion is appended, unless
        it is paused.
      ended: indices of samples that an earlier step has appended to its list.
    """
    self._loop, self._stream = loop, stream
    self._prompts, self._finished, self._ended = prompts, finished, ended
    self.requests = [request for request, _ in submitted]
    self._missing = sum(len(futures) for _, futures in submitted)
    self._arrived: collections.deque[Sample] = collections.deque()
    self._more: Future[None] | None = None
    for index, (_, futures) in enumerate(submitted):
      for sample, future in enumerate(futures):
        future.add_done_callback(functools.partial(self._arrive, index, sample))

  def _arrive(
    self, index: int, sample: int, future: "Future[types.Completion]"
  ) -> None:
    completion = future.result()
    if completion.finish_reason != types.PAUSED and sample not in self._ended:
      self._finished.append((self._prompts[index], completion))
    self._arrived.append((index, sample, completion))
    if self._more is not None:
      more, self._more = self._more, None
      more.set_result(None)

  def __iter__(self) -> Iterator[Sample]:
    try:
      while self._missing:
        self._loop.run_until(lambda: bool(self._arrived))
        self._missing -= 1
        yield self._arrived.popleft()
    finally:
      if self._missing:
        self._stream.cancel(self.requests)

  async def __aiter__(self) -> AsyncIterator[Sample]:
    while self._missing:
      if not self._arrived:
        self._more = Future()
        await Awaited(self._more)
      self._missing -= 1
      yield self._arrived.popleft()


@contextlib.contextmanager
def open_policy(
  sampler: Sampler, tokenizer: Tokenizer, params: Params, key: jax.Array
) -> Iterator[Policy]:
  """Yields a policy whose copy of the weights is freed where the block ends.

  Args:
    sampler: the sampling engine.
    tokenizer: of the model.
    params: the training parameters. Sampling waits for the update that makes
      them, because its buffers and the cache do not fit in memory together.
    key: the random key of all that is sampled.
  """
  start = time.monotonic()
  with jax.profiler.TraceAnnotation("copy_weights"):
    compute = jax.block_until_ready(sampler.compute_params(params))
  sampler.meter.busy.append((start, time.monotonic()))
  policy = Policy(sampler, tokenizer, compute, key)
  del compute
  try:
    yield policy
  finally:
    policy.params = None
    policy.loop.close()


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
