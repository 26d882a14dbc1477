"""The policy as a system sees it: prompts in, completions out.

A system calls `policy.sample(prompts, n)` and knows nothing of meshes, slots
or optimizers. An agent is another way to get completions from a policy, for
example with tools.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from azr_jax import types
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.environment import Environment
from azr_jax.rollout.sampler import Sampler
from azr_jax.types import Params

# Folded into the key of a policy's branches. Calls are counted from 0.
_BRANCH = (1 << 31) - 1


@dataclasses.dataclass
class Sampled:
  """What a policy and its branches have sampled.

  Attributes:
    replies: every completion of the policy with its prompt, in the order of
      their ends.
    branch_replies: those of its branches.
  """

  replies: list[tuple[types.Prompt, types.Completion]] = dataclasses.field(
    default_factory=list
  )
  branch_replies: list[tuple[types.Prompt, types.Completion]] = (
    dataclasses.field(default_factory=list)
  )


@dataclasses.dataclass
class Policy:
  """One step's view of the model being trained.

  Attributes:
    sampler: the sampling engine.
    tokenizer: text to ids and back.
    params: the parameters to sample with.
    key: this step's random key; every call to `sample` derives its own.
    calls: how often `sample` was called.
    sampled: what all calls have sampled.
    is_branch: whether `branch` made it.
  """

  sampler: Sampler
  tokenizer: Tokenizer
  params: Any
  key: jax.Array
  calls: int = 0
  sampled: Sampled = dataclasses.field(default_factory=Sampled)
  is_branch: bool = False

  def branch(self, *numbers: int) -> "Policy":
    """Returns a policy whose samples follow from the key and the numbers.

    They do not depend on how often this policy was called, nor the other way
    round. It counts what it samples with this policy.
    """
    key = jax.random.fold_in(self.key, _BRANCH)
    for number in numbers:
      key = jax.random.fold_in(key, number)
    return dataclasses.replace(self, key=key, calls=0, is_branch=True)

  def with_key(
    self, key: jax.Array, temperature: float | None = None
  ) -> "Policy":
    """Returns the same policy with another key and no calls yet.

    Args:
      key: the other key.
      temperature: divides the logits; None: as before.
    """
    sampler = self.sampler
    if temperature is not None:
      sampler = sampler.at_temperature(temperature)
    return Policy(sampler, self.tokenizer, self.params, key)

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
  ) -> Iterator[tuple[int, int, types.Completion]]:
    """Yields (prompt index, sample index, completion) as they finish.

    A prompt's samples depend on its seed and on how often `sample` was called,
    or on `call`, not on the other prompts.

    Args:
      prompts: what to sample from; each must fit a prompt bucket.
      n: completions per prompt.
      prompt_seeds: the integer that each prompt folds into the key; None takes
        the prompt's index.
      environment: runs the tool calls of conversations; None ends a completion
        with its first response.
      temperature: divides the logits; None: as the sampler's settings say. The
        decode loop is compiled for each temperature.
      call: takes the place of the number of calls before, in the key.
    """
    number = self.calls if call is None else call
    key = jax.random.fold_in(self.key, number)
    self.calls += 1
    sampled = self.sampled
    replies = sampled.branch_replies if self.is_branch else sampled.replies
    sampler = self.sampler
    if temperature is not None:
      sampler = sampler.at_temperature(temperature)
    for index, sample, completion in sampler.generate(
      self.params,
      prompts,
      n,
      key,
      prompt_seeds=prompt_seeds,
      environment=environment,
    ):
      replies.append((prompts[index], completion))
      yield index, sample, completion


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


# Prompt index, sample index and completion, in any order.
Stream = Iterator[tuple[int, int, types.Completion]]
# Answers prompts with a policy: (policy, prompts, n, prompt seeds) -> stream.
Agent = Callable[[Policy, Sequence[types.Prompt], int, Sequence[int]], Stream]


def single_turn(
  policy: Policy,
  prompts: Sequence[types.Prompt],
  n: int,
  prompt_seeds: Sequence[int],
) -> Stream:
  """The agent without tools: a completion is one response of the policy."""
  yield from policy.sample(prompts, n, prompt_seeds)
