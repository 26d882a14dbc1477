"""A request to sample a prompt, and the state of each of its sequences."""

import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
from jaxtyping import Int32, UInt32

from azr_jax import types
from azr_jax.rollout import tokens as tokens_lib
from azr_jax.rollout.adapter_ref import BASE, AdapterRef
from azr_jax.rollout.expert_record import ExpertRecord
from azr_jax.rollout.page_pool import CachedTokens
from azr_jax.rollout.tokens import SlotTokens, Tokens
from azr_jax.rollout.tool_runner import (
  SequenceId,
  ToolRunner,
  split_responses,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Request:
  """A prompt and how to sample it.

  Attributes:
    number: identifies the request; part of its sequences' ids.
    prompt: the prompt to sample from.
    n: number of samples.
    max_new_tokens: maximum number of new tokens per completion.
    key_data: the data of the random key; sample s folds in
      (`prompt_number`, s).
    prompt_number: separates the prompt's random numbers from others'.
    temperature: divisor of the logits; 0 is greedy.
    priority: requests with a smaller priority get slots first.
    tool_runner: runs the tool calls of conversations; None ends a completion
      with its first response.
    stop_strings: strings that end a response, in addition to
      `rollout.stop_strings`.
    adapter: which of the sampler's adapters samples it.
    stop_ids: ids that end a response, in addition to the tokenizer's.
    ignores_ends: whether responses continue up to `max_new_tokens`, whatever
      the model writes. Such a request has no stops of its own.
  """

  number: int
  prompt: types.Prompt
  n: int
  max_new_tokens: int
  key_data: UInt32[np.ndarray, " U"]
  prompt_number: int
  temperature: float = 1.0
  priority: tuple[int, ...] = ()
  tool_runner: ToolRunner | None = None
  stop_strings: tuple[str, ...] = ()
  adapter: AdapterRef = BASE
  stop_ids: tuple[int, ...] = ()
  ignores_ends: bool = False

  @property
  def has_own_ends(self) -> bool:
    """Whether any token may be an end that only this request has."""
    return bool(self.stop_strings or self.stop_ids) or self.end_marks is None

  @property
  def end_marks(self) -> str | None:
    """The `end_marks` of the tool runner; "" without one."""
    return "" if self.tool_runner is None else self.tool_runner.end_marks


@dataclasses.dataclass(eq=False)
class SequenceState:
  """One completion of a prompt, as far as it has been sampled.

  Attributes:
    request: the prompt and how to sample it.
    sample_index: index among the prompt's samples.
    read: the completion so far without the unread tokens; see `tokens`.
    unread: the tokens after these, in the outputs of decode calls; None if the
      sequence has not been in a slot since the last read.
    response_start: index of the first token of the current response.
    awaiting_tool: whether the tool runner has yet to answer the last response.
    cached: the pages of prompt and completion; None without pages. While the
      sequence is in a slot, the count leaves `unread` out.
    finish_reason: why the completion ended; None while it is being sampled.
    experts: the experts of its first tokens, counted from the prompt's start,
      from pages that it has lost.
    num_known: number of tokens that an earlier step sampled.
    step_tokens: number of tokens after which the sequence is paused; 0 for no
      limit.
    siblings: all samples of the prompt, including this one; () once it has
      ended.
    completion_future: receives the completion when it ends or is paused.
  """

  request: Request
  sample_index: int
  read: Tokens = tokens_lib.NONE
  unread: SlotTokens | None = None
  response_start: int = 0
  awaiting_tool: bool = False
  cached: CachedTokens | None = None
  finish_reason: str | None = None
  experts: ExpertRecord = dataclasses.field(default_factory=ExpertRecord)
  num_known: int = 0
  step_tokens: int = 0
  siblings: "Sequence[SequenceState]" = ()
  completion_future: "Future[types.Completion]" = dataclasses.field(
    default_factory=Future
  )

  @property
  def id(self) -> SequenceId:
    """The sequence's id: request number and sample index."""
    return self.request.number, self.sample_index

  @property
  def tokens(self) -> Tokens:
    """The completion so far, tool output included."""
    if self.unread is not None:
      if new := self.unread.take():
        self.read = tokens_lib.joined([self.read, *new])
      if self.unread.last is not None:
        self.unread = None  # Also frees the calls.
    return self.read

  @property
  def token_ids(self) -> Int32[np.ndarray, " S"]:
    """The ids of `tokens`."""
    return self.tokens.ids

  @property
  def num_tokens(self) -> int:
    """Number of tokens so far, which is cheaper than reading them."""
    return len(self.read.ids) + (len(self.unread) if self.unread else 0)

  @property
  def num_uncached(self) -> int:
    """Number of tokens to prefill before the next one can be sampled.

    The last token does not count, because the decode loop runs it.
    """
    return self.length - 1 - (self.cached.count if self.cached else 0)

  def next_tokens(self, count: int) -> tuple[int, ...]:
    """Returns the first uncached tokens, counted from the prompt's start."""
    start = self.cached.count if self.cached else 0
    return self.all_ids[start : start + count]

  @property
  def all_ids(self) -> tuple[int, ...]:
    """The prompt's and the completion's tokens."""
    return (*self.request.prompt.token_ids, *self.token_ids.tolist())

  def last_ids(self, count: int) -> tuple[int, ...]:
    """Returns the last `count` tokens of prompt and completion, or all."""
    ids = self.token_ids[-count:].tolist()
    rest = count - len(ids)
    return (*(self.request.prompt.token_ids[-rest:] if rest else ()), *ids)

  @property
  def last_token(self) -> int:
    """The first input token of the decode loop."""
    return self.last_ids(1)[0]

  @property
  def responses(self) -> list[list[int]]:
    """The token ids of each response, without tool outputs."""
    tokens = self.tokens
    return split_responses(tokens.ids.tolist(), tokens.loss_mask.tolist())

  @property
  def length(self) -> int:
    """Number of tokens, including the prompt's."""
    return len(self.request.prompt.token_ids) + self.num_tokens

  @property
  def max_cached(self) -> int:
    """The maximum number of tokens that it can cache: all but the last."""
    return len(self.request.prompt.token_ids) + self.max_new_tokens - 1

  @property
  def max_new_tokens(self) -> int:
    """The completion length at which it ends or is paused."""
    limit = self.request.max_new_tokens
    if not self.step_tokens:
      return limit
    return min(limit, self.num_known + self.step_tokens)

  @property
  def reason_at_limit(self) -> str | None:
    """`length` or `types.PAUSED` at a limit; None if it continues."""
    count = self.num_tokens
    if count >= self.request.max_new_tokens:
      return "length"
    if count >= self.max_new_tokens:
      return types.PAUSED
    return None

  @property
  def num_written(self) -> int:
    """Number of tokens that the model wrote since it was submitted."""
    unread = len(self.unread) if self.unread else 0
    return int(np.count_nonzero(self.read.loss_mask[self.num_known :])) + unread

  def read_from(self, unread: SlotTokens) -> None:
    """Gets the next tokens from a slot."""
    self.read, self.unread = self.tokens, unread

  def add(self, tokens: Tokens) -> None:
    """Appends tokens."""
    self.read = tokens_lib.joined([self.tokens, tokens])

  def receive_tool_output(self, token_ids: Sequence[int], version: int) -> None:
    """Appends tool output, which still needs prefill."""
    self.awaiting_tool = False
    self.add(tokens_lib.tool_output(token_ids, version))
    self.response_start = self.num_tokens

  def truncate(self, length: int) -> None:
    """Keeps the first `length` tokens."""
    self.read = self.tokens.first(length)
    if self.cached is not None:
      # The last token is the next call's input, so it is not cached yet.
      self.cached.count = min(self.cached.count, self.length - 1)
    self.experts.keep(self.length - 1)

  def continue_from(self, other: "SequenceState") -> None:
    """Resumes from another state of the same sequence.

    Args:
      other: the state from an earlier step or a killed run.
    """
    self.read, self.experts = other.tokens, other.experts
    self.finish_reason = other.finish_reason
    by_tool = np.flatnonzero(~self.read.loss_mask)
    self.response_start = int(by_tool[-1]) + 1 if len(by_tool) else 0
