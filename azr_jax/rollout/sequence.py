"""A prompt that is sampled, and the state of each of its sequences."""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np

from azr_jax import types
from azr_jax.rollout.page_pool import CachedTokens
from azr_jax.rollout.tool_runner import (
  SequenceId,
  ToolRunner,
  split_responses,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Request:
  """A prompt, and how to sample it.

  Attributes:
    number: identifies the request; a part of its sequences' ids.
    prompt: what to sample from.
    n: samples.
    max_new_tokens: maximum number of tokens of a completion.
    key_data: uint32 [U], the random key; sample s folds in (`seed`, s).
    seed: the integer that separates the prompt's random numbers from others'.
    temperature: divides the logits; 0 is greedy.
    priority: requests with a smaller one get their slots first.
    tool_runner: runs the tool calls of conversations; None ends a completion
      with its first response.
    stop_strings: a response ends where one is complete, as at those of
      `rollout.stop_strings`.
  """

  number: int
  prompt: types.Prompt
  n: int
  max_new_tokens: int
  key_data: np.ndarray
  seed: int
  temperature: float = 1.0
  priority: tuple[int, ...] = ()
  tool_runner: ToolRunner | None = None
  stop_strings: tuple[str, ...] = ()


@dataclasses.dataclass(eq=False)
class SequenceState:
  """One completion of one prompt, as far as it has been sampled.

  Attributes:
    request: its prompt, and how to sample it.
    sample_index: which of the prompt's samples it is.
    token_ids: the completion so far, tool output included.
    logprobs: log-probability of each token; 0 in tool output.
    loss_mask: whether the model wrote the token; false in tool output.
    versions: for each token, the version of the parameters that sampled it.
    response_start: index of the first token of the current response.
    awaiting_tool: whether the tool runner has yet to answer the last response.
    cached: the pages of its prompt and its tokens; None if it has none.
    finish_reason: that of its completion; None while it is sampled.
    num_known: tokens that it had when it was submitted, if an earlier step
      sampled them.
    step_tokens: tokens that it may get until it is paused; 0: any number.
    siblings: the samples of its prompt, itself among them; () when it has
      ended.
    completion_future: the future of its completion.
  """

  request: Request
  sample_index: int
  token_ids: list[int] = dataclasses.field(default_factory=list)
  logprobs: list[float] = dataclasses.field(default_factory=list)
  loss_mask: list[bool] = dataclasses.field(default_factory=list)
  versions: list[int] = dataclasses.field(default_factory=list)
  response_start: int = 0
  awaiting_tool: bool = False
  cached: CachedTokens | None = None
  finish_reason: str | None = None
  num_known: int = 0
  step_tokens: int = 0
  siblings: "Sequence[SequenceState]" = ()
  completion_future: "Future[types.Completion]" = dataclasses.field(
    default_factory=Future
  )

  @property
  def id(self) -> SequenceId:
    """The sequence's name."""
    return self.request.number, self.sample_index

  @property
  def num_uncached(self) -> int:
    """Number of tokens to prefill before the next one can be sampled.

    The last token is not counted, because the decode loop runs it.
    """
    return self.length - 1 - (self.cached.count if self.cached else 0)

  def next_tokens(self, count: int) -> tuple[int, ...]:
    """Returns the first tokens that are not cached, the prompt's included."""
    start = self.cached.count if self.cached else 0
    return self.all_ids[start : start + count]

  @property
  def all_ids(self) -> tuple[int, ...]:
    """The tokens of the sequence, its prompt included."""
    return (*self.request.prompt.token_ids, *self.token_ids)

  def last_ids(self, count: int) -> tuple[int, ...]:
    """Returns so many last tokens, the prompt's included, or all of fewer."""
    ids = self.token_ids[-count:]
    rest = count - len(ids)
    return (*(self.request.prompt.token_ids[-rest:] if rest else ()), *ids)

  @property
  def last_token(self) -> int:
    """The token that the decode loop takes as its first input."""
    ids = self.token_ids or self.request.prompt.token_ids
    return ids[-1]

  @property
  def responses(self) -> list[list[int]]:
    """The token ids of each response, without the tool outputs."""
    return split_responses(self.token_ids, self.loss_mask)

  @property
  def length(self) -> int:
    """The tokens of the sequence, its prompt included."""
    return len(self.request.prompt.token_ids) + len(self.token_ids)

  @property
  def max_cached(self) -> int:
    """Maximum number of its tokens in the cache: all but the last one."""
    return len(self.request.prompt.token_ids) + self.max_new_tokens - 1

  @property
  def max_new_tokens(self) -> int:
    """The number of tokens at which it ends, or is paused."""
    limit = self.request.max_new_tokens
    if not self.step_tokens:
      return limit
    return min(limit, self.num_known + self.step_tokens)

  @property
  def reason_at_limit(self) -> str | None:
    """Why it stops where it is: `length`, `types.PAUSED`; None: it goes on."""
    if len(self.token_ids) >= self.request.max_new_tokens:
      return "length"
    if len(self.token_ids) >= self.max_new_tokens:
      return types.PAUSED
    return None

  @property
  def num_written(self) -> int:
    """How many tokens the model wrote in it since it was submitted."""
    return sum(self.loss_mask[self.num_known :])

  def add_tokens(
    self, token_ids: Sequence[int], logprobs: Sequence[float], version: int
  ) -> None:
    """Adds tokens that the model wrote."""
    self._add(token_ids, logprobs, True, version)

  def receive_tool_output(self, token_ids: Sequence[int], version: int) -> None:
    """Adds tool output, which is yet to be prefilled."""
    self.awaiting_tool = False
    self._add(token_ids, [0.0] * len(token_ids), False, version)
    self.response_start = len(self.token_ids)

  def _add(
    self,
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    is_sampled: bool,
    version: int,
  ) -> None:
    self.token_ids += token_ids
    self.logprobs += logprobs
    self.loss_mask += [is_sampled] * len(token_ids)
    self.versions += [version] * len(token_ids)

  def truncate(self, length: int) -> None:
    """Keeps the first `length` tokens."""
    for values in (
      self.token_ids,
      self.logprobs,
      self.loss_mask,
      self.versions,
    ):
      del values[length:]
    if self.cached is not None:
      # The last token is the next call's input, so its entry is not counted.
      self.cached.count = min(self.cached.count, self.length - 1)

  def continue_from(self, other: "SequenceState") -> None:
    """Resumes from the tokens that the same sequence had.

    Args:
      other: of an earlier step, or of a run that was killed.
    """
    self.token_ids = list(other.token_ids)
    self.logprobs = list(other.logprobs)
    self.loss_mask = list(other.loss_mask)
    self.versions = list(other.versions)
    self.finish_reason = other.finish_reason
    by_tool = [
      i for i, is_sampled in enumerate(self.loss_mask) if not is_sampled
    ]
    self.response_start = by_tool[-1] + 1 if by_tool else 0


# (sequence, number of its tokens that were searched before) -> number of tokens
# up to the end of the current response; None if it has not ended.
ResponseEnd = Callable[[SequenceState, int], int | None]
