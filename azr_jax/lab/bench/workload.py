"""The workloads of the sampler and update benchmarks."""

import dataclasses

import numpy as np
from jaxtyping import Int32

# Longest response of a ragged workload, divided by the median response.
RAGGED_SPREAD = 8
# Standard deviation of the logarithms of ragged lengths.
_LOG_DEVIATION = 0.9


@dataclasses.dataclass(frozen=True)
class SamplerWorkload:
  """Prompts to sample from.

  Attributes:
    prompts: number of prompts.
    samples: responses per prompt.
    prompt_tokens: tokens per prompt.
    new_tokens: tokens of the longest response.
    slots: sequences decoded together; the baseline's batch size.
    ragged: whether response lengths vary by `RAGGED_SPREAD` or are equal.
    top_p: top-p of nucleus sampling.
  """

  prompts: int
  samples: int
  prompt_tokens: int
  new_tokens: int
  slots: int
  ragged: bool
  top_p: float

  def max_new_tokens(self) -> list[int]:
    """Returns the length of each prompt's responses, in tokens."""
    if not self.ragged:
      return [self.new_tokens] * self.prompts
    rng = np.random.default_rng(0)
    median = self.new_tokens / RAGGED_SPREAD
    drawn = median * np.exp(_LOG_DEVIATION * rng.standard_normal(self.prompts))
    # Scaling and one replacement make the median and the maximum exact.
    drawn *= median / np.median(drawn)
    drawn[np.argmax(drawn)] = self.new_tokens
    return np.clip(np.rint(drawn), 1, self.new_tokens).astype(int).tolist()

  def tokens(self) -> int:
    """Returns the total number of tokens of all responses."""
    return self.samples * sum(self.max_new_tokens())

  def prompt_ids(self, vocab_size: int) -> Int32[np.ndarray, "B S"]:
    """Returns random prompts, all of the same length."""
    rng = np.random.default_rng(1)
    shape = (self.prompts, self.prompt_tokens)
    return rng.integers(1, vocab_size, shape, dtype=np.int32)


@dataclasses.dataclass(frozen=True)
class UpdateWorkload:
  """Sequences to train on.

  Attributes:
    sequences: number of sequences.
    length: tokens of the longest sequence.
    ragged: whether lengths vary, with a mean of 40 % of the longest, or are
      equal.
  """

  sequences: int
  length: int
  ragged: bool

  def lengths(self) -> list[int]:
    """Returns the length of each sequence, in tokens."""
    if not self.ragged:
      return [self.length] * self.sequences
    rng = np.random.default_rng(0)
    drawn = rng.beta(1.2, 2.4, self.sequences) * self.length
    drawn[0] = self.length
    rest = 0.4 * self.length * self.sequences - self.length
    drawn[1:] *= rest / drawn[1:].sum()
    return np.clip(np.rint(drawn), 4, self.length).astype(int).tolist()
