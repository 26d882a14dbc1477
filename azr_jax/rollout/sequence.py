"""A request and the state of each of its sequences, on the host."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax

from azr_jax import types
from azr_jax.rollout.environment import SequenceId, split_responses

# Given a sequence's name, its token ids, the index of the current response's
# first token, and how many of the ids are known to hold no end: how many ids
# there are up to the end of the response, or None.
ResponseEnd = Callable[[SequenceId, Sequence[int], int, int], int | None]


@dataclasses.dataclass(frozen=True)
class Request:
  """The prompts of one call of `Sampler.generate`, and how to sample them.

  Attributes:
    prompts: what to sample from.
    by_bucket: prompt indices by bucket, in the order of their prefill.
    n: samples per prompt.
    max_new_tokens: maximum number of tokens of a completion, for each prompt.
    prompt_seeds: the integer that each prompt folds into the key.
    key: random key; used up.
  """

  prompts: Sequence[types.Prompt]
  by_bucket: Mapping[int, Sequence[int]]
  n: int
  max_new_tokens: Sequence[int]
  prompt_seeds: Sequence[int]
  key: jax.Array


@dataclasses.dataclass
class SequenceState:
  """One completion of one prompt, as far as it has been sampled.

  Attributes:
    prompt_index: index of its prompt in the request.
    sample_index: which of the prompt's n samples it is.
    prefill_index: index of its prompt in the prompt's prefill batch.
    token_ids: the completion so far, tool output included.
    logprobs: log-probability of each token; 0 in tool output.
    loss_mask: whether the model wrote the token; false in tool output.
    response_start: index of the first token of the current response.
    awaiting_tool: whether the environment has yet to answer the last response.
    pending_tokens: tool output that the slot has not been extended by yet.
    finish_reason: one of `types.FINISH_REASONS`; None until it has ended.
  """

  prompt_index: int
  sample_index: int
  prefill_index: int
  token_ids: list[int] = dataclasses.field(default_factory=list)
  logprobs: list[float] = dataclasses.field(default_factory=list)
  loss_mask: list[bool] = dataclasses.field(default_factory=list)
  response_start: int = 0
  awaiting_tool: bool = False
  pending_tokens: list[int] = dataclasses.field(default_factory=list)
  finish_reason: str | None = None

  @property
  def id(self) -> SequenceId:
    """The sequence's name within its request."""
    return self.prompt_index, self.sample_index

  @property
  def decoding(self) -> bool:
    """Whether the model is to write the next token."""
    return not self.awaiting_tool and not self.pending_tokens

  @property
  def responses(self) -> list[list[int]]:
    """The token ids of each response, without the tool outputs."""
    return split_responses(self.token_ids, self.loss_mask)

  def add_tokens(
    self, token_ids: Sequence[int], logprobs: Sequence[float]
  ) -> None:
    """Adds tokens that the model wrote."""
    self.token_ids += token_ids
    self.logprobs += logprobs
    self.loss_mask += [True] * len(token_ids)

  def receive_tool_output(self, token_ids: Sequence[int]) -> None:
    """Adds tool output, which the slot has yet to be extended by."""
    self.awaiting_tool = False
    self.pending_tokens = list(token_ids)
    self.token_ids += token_ids
    self.logprobs += [0.0] * len(token_ids)
    self.loss_mask += [False] * len(token_ids)
    self.response_start = len(self.token_ids)

  def truncate(self, length: int) -> None:
    """Keeps the first `length` tokens."""
    del self.token_ids[length:], self.logprobs[length:], self.loss_mask[length:]
