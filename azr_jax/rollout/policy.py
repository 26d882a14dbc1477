"""The policy as a system sees it: prompts in, completions out.

A system asks `policy.sample(prompts, n)` and knows nothing of meshes, slots
or optimizers.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from azr_jax import types
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.environment import Environment
from azr_jax.rollout.sampler import Sampler


@dataclasses.dataclass
class Policy:
  """One step's view of the model being trained.

  Attributes:
    sampler: the sampling engine.
    tokenizer: text to ids and back.
    params: the parameters to sample with.
    key: this step's random key; every call to `sample` derives its own.
    calls: how often `sample` was called.
    sample_s: seconds of all calls, with what was done between completions.
  """

  sampler: Sampler
  tokenizer: Tokenizer
  params: Any
  key: jax.Array
  calls: int = 0
  sample_s: float = 0.0

  def prompt(self, text: str, task: Any = None) -> types.Prompt:
    """Tokenises a prompt."""
    return types.Prompt(text, tuple(self.tokenizer.encode(text)), task)

  def fits(self, prompt: types.Prompt) -> bool:
    """Whether the prompt is within the largest prompt bucket."""
    return self.sampler.bucket(len(prompt.token_ids)) is not None

  def sample(
    self,
    prompts: Sequence[types.Prompt],
    n: int = 1,
    numbers: Sequence[int] | None = None,
    environment: Environment | None = None,
  ) -> Iterator[tuple[int, int, types.Completion]]:
    """Yields (prompt index, sample index, completion) as they finish.

    A prompt's samples depend on its number (None: its index) and on how often
    `sample` was called, not on what else is asked. In a conversation `turns`
    answers its replies.
    """
    key = jax.random.fold_in(self.key, self.calls)
    self.calls += 1
    start = time.monotonic()
    yield from self.sampler.generate(
      self.params, prompts, n, key, numbers=numbers, environment=environment
    )
    self.sample_s += time.monotonic() - start


Stream = Iterator[tuple[int, int, types.Completion]]
# A policy, prompts, completions of each, and the prompts' numbers.
Ask = Callable[[Policy, Sequence[types.Prompt], int, Sequence[int]], Stream]


def ask(
  policy: Policy,
  prompts: Sequence[types.Prompt],
  samples: int,
  numbers: Sequence[int],
) -> Stream:
  """Samples once per prompt and sample; agents offer other ways to ask."""
  yield from policy.sample(prompts, samples, numbers)
