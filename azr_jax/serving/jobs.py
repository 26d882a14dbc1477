"""What a client wants sampled, and what it hears of it."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from azr_jax import types
from azr_jax.serving.errors import ApiError
from azr_jax.serving.scoring import Scores


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
  """Prompts that a client wants sampled; its choices are numbered.

  Attributes:
    prompts: what to sample from; choice c is of prompt c // n.
    n: choices of each prompt.
    seed: of the samples, an integer of at least 0 and below 2^31.
    temperature: divides the logits; 0 is greedy.
    max_new_tokens: maximum number of tokens of a choice.
    stop_strings: end a choice.
    is_streamed: whether tokens are wanted as they come; otherwise all tokens
      of a choice come when it has ended.
    step: the step of the weights that must sample all of it; None: any.
    is_scored: whether choices that have ended are scored. It is not streamed
      then.
    scores_prompts: whether the tokens of its prompts are, too.
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

  @property
  def num_choices(self) -> int:
    """How many completions it has."""
    return len(self.prompts) * self.n


class Tokens(NamedTuple):
  """New tokens of a choice.

  Attributes:
    choice: its number.
    token_ids: the new ones.
    logprobs: of each.
    steps: for each, the step of the weights that sampled it.
    finish_reason: as of `types.Completion`; None while more will come.
    scores: of its prompt and all its tokens, if the job is scored.
  """

  choice: int
  token_ids: list[int]
  logprobs: list[float]
  steps: list[int]
  finish_reason: str | None
  scores: Scores | None = None


# A job receives tokens, in order, or the error that ends it.
Update = Tokens | ApiError
Deliver = Callable[[Sequence[tuple[Job, Update]]], None]
