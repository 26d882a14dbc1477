"""Jobs that clients submit, and the updates they receive."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from azr_jax import types
from azr_jax.rollout.adapter_ref import BASE, AdapterRef
from azr_jax.serving.errors import ApiError
from azr_jax.serving.scoring import Scores
from azr_jax.verbs.residents import Snapshot


@dataclasses.dataclass(frozen=True, eq=False)
class SamplingJob:
  """The prompts of a request and how to sample them; choices are numbered.

  Attributes:
    prompts: the prompts; choice c continues prompt c // n.
    n: number of choices per prompt.
    seed: the sampling seed, 0 <= seed < 2^31.
    temperature: divides the logits; 0 is greedy.
    max_new_tokens: maximum number of tokens per choice.
    stop_strings: strings that end a choice.
    is_streamed: whether to deliver tokens as they are sampled. Otherwise a
      choice's tokens are delivered together when it ends.
    step: the step of the weights that must sample the whole job. None accepts
      any.
    is_scored: whether to score finished choices. Such a job cannot be streamed.
    scores_prompts: whether to score the prompts' tokens, too.
    adapter: the adapter that samples and scores it.
    stop_ids: ids that end a choice, besides the tokenizer's.
    ignores_ends: whether choices continue up to `max_new_tokens`, also after an
      end token. There are no stops then.
    prompt_targets: ids to score at each position of the only prompt after the
      first; -1 scores nothing. None without. Such a job is scored.
    snapshot: the weights to sample by, for a server that trains. None: those of
      `adapter`.
  """

  prompts: tuple[types.Prompt, ...]
  n: int
  seed: int
  temperature: float
  max_new_tokens: int
  stop_strings: tuple[str, ...] = ()
  is_streamed: bool = False
  step: int | None = None
  is_scored: bool = False
  scores_prompts: bool = False
  adapter: AdapterRef = BASE
  stop_ids: tuple[int, ...] = ()
  ignores_ends: bool = False
  prompt_targets: Int32[np.ndarray, "_P K"] | None = None
  snapshot: Snapshot | None = None

  @property
  def num_choices(self) -> int:
    """Number of completions."""
    return len(self.prompts) * self.n


class NewTokens(NamedTuple):
  """New tokens of a choice.

  Attributes:
    choice: the index of the choice.
    token_ids: the new tokens.
    logprobs: the log-probability of each token.
    steps: for each token, the step of the weights that sampled it.
    finish_reason: as in `types.Completion`. None while the choice runs.
    scores: scores of the prompt and all tokens, if the job is scored.
  """

  choice: int
  token_ids: list[int]
  logprobs: list[float]
  steps: list[int]
  finish_reason: str | None
  scores: Scores | None = None


# A job receives its tokens in order, or the error that ends it.
Update = NewTokens | ApiError
Deliver = Callable[[Sequence[tuple[SamplingJob, Update]]], None]
