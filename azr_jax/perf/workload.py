"""What the sampler and update benchmarks work on."""

import dataclasses

import numpy as np

# The longest answer of a ragged draw is so many times the median.
RAGGED_SPREAD = 8
_LOG_SPREAD = 0.9


@dataclasses.dataclass(frozen=True)
class SamplerWorkload:
  """Prompts to sample from.

  Attributes:
    prompts: how many.
    samples: of each.
    prompt_tokens: of each.
    new_tokens: of the longest answer.
    slots: sequences decoded together; the peer's batch.
    ragged: draw the answers' lengths, with `RAGGED_SPREAD`.
    top_p: of sampling.
  """

  prompts: int
  samples: int
  prompt_tokens: int
  new_tokens: int
  slots: int
  ragged: bool
  top_p: float

  def limits(self) -> list[int]:
    """The answers' lengths, per prompt, in tokens."""
    if not self.ragged:
      return [self.new_tokens] * self.prompts
    rng = np.random.default_rng(0)
    median = self.new_tokens / RAGGED_SPREAD
    drawn = median * np.exp(_LOG_SPREAD * rng.standard_normal(self.prompts))
    # Half below and half above the median, and one of the longest.
    drawn *= median / np.median(drawn)
    drawn[np.argmax(drawn)] = self.new_tokens
    return np.clip(np.rint(drawn), 1, self.new_tokens).astype(int).tolist()

  def tokens(self) -> int:
    """How many tokens are asked for in all."""
    return self.samples * sum(self.limits())

  def prompt_ids(self, vocab_size: int) -> np.ndarray:
    """Random prompts, int32 [prompts, prompt_tokens]."""
    rng = np.random.default_rng(1)
    shape = (self.prompts, self.prompt_tokens)
    return rng.integers(1, vocab_size, shape, dtype=np.int32)


@dataclasses.dataclass(frozen=True)
class UpdateWorkload:
  """Sequences to learn from.

  Attributes:
    sequences: how many.
    length: of the longest, in tokens.
    ragged: draw lengths whose mean is 40 % of the longest.
  """

  sequences: int
  length: int
  ragged: bool

  def lengths(self) -> list[int]:
    """Tokens of each sequence."""
    if not self.ragged:
      return [self.length] * self.sequences
    rng = np.random.default_rng(0)
    drawn = rng.beta(1.2, 2.4, self.sequences) * self.length
    drawn[0] = self.length
    rest = 0.4 * self.length * self.sequences - self.length
    drawn[1:] *= rest / drawn[1:].sum()
    return np.clip(np.rint(drawn), 4, self.length).astype(int).tolist()
