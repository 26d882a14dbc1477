"""The tokens of completions, and how they are read from decode calls.

A sequence that decodes gets tokens in each call. The host does not copy them
slot by slot: the outputs of the calls are linked, and the tokens of a sequence
are cut from them when they are read.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int32


class Tokens(NamedTuple):
  """Tokens, and what is known about each of them.

  Attributes:
    ids: token ids.
    logprobs: log-probabilities; 0 in tool output.
    loss_mask: whether the model wrote the token; false in tool output.
    versions: version of the parameters that sampled the token.
  """

  ids: Int32[np.ndarray, " S"]
  logprobs: Float32[np.ndarray, " S"]
  loss_mask: Bool[np.ndarray, " S"]
  versions: Int32[np.ndarray, " S"]

  def first(self, count: int) -> "Tokens":
    """Returns the first `count` tokens."""
    return Tokens(*(values[:count] for values in self))


def sampled(
  ids: Sequence[int] | Int[np.ndarray, " S"],
  logprobs: Sequence[float] | Float[np.ndarray, " S"],
  version: int,
) -> Tokens:
  """Returns tokens that the model wrote."""
  return Tokens(
    np.asarray(ids, np.int32),
    np.asarray(logprobs, np.float32),
    np.ones(len(ids), bool),
    np.full(len(ids), version, np.int32),
  )


def tool_output(ids: Sequence[int], version: int) -> Tokens:
  """Returns tokens that a tool wrote."""
  return Tokens(
    np.asarray(ids, np.int32),
    np.zeros(len(ids), np.float32),
    np.zeros(len(ids), bool),
    np.full(len(ids), version, np.int32),
  )


NONE = tool_output((), 0)


def joined(parts: Iterable[Tokens]) -> Tokens:
  """Returns all tokens of some parts, in order."""
  return Tokens(*map(np.concatenate, zip(*parts, strict=True)))


@dataclasses.dataclass(eq=False)
class DecodedCall:
  """The fetched tokens of a decode call.

  A call refers to the next one, so it is freed with the last sequence that
  refers to it or to an earlier call.

  Attributes:
    ids: the new tokens; entries past `num_generated` are padding.
    logprobs: log-probabilities of the new tokens.
    num_generated: number of new tokens of each slot.
    version: version of the parameters.
    following: the next call; None if it has not been fetched.
  """

  ids: Int32[np.ndarray, "B N"]
  logprobs: Float32[np.ndarray, "B N"]
  num_generated: Int32[np.ndarray, " B"]
  version: int
  following: "DecodedCall | None" = None


def no_call() -> DecodedCall:
  """Returns the call before the first one."""
  none = np.zeros((0, 0), np.int32)
  counts = np.zeros(0, np.int32)
  return DecodedCall(none, none.astype(np.float32), counts, 0)


@dataclasses.dataclass(eq=False)
class SlotTokens:
  """The unread tokens of a sequence, in the decode calls of its slot.

  Attributes:
    slot: the slot's index.
    before: the call before the first unread one.
    last: the last call of the sequence; None while it is in the slot.
  """

  slot: int
  before: DecodedCall
  last: DecodedCall | None = None
  _num_read: int = 0
  _num_tokens: int = 0

  def __len__(self) -> int:
    if self.last is not None:
      return self._num_tokens - self._num_read
    return sum(int(call.num_generated[self.slot]) for call in self._calls())

  def end(self, last: DecodedCall, num_tokens: int) -> None:
    """Records that the sequence leaves its slot.

    Args:
      last: the last fetched call.
      num_tokens: number of tokens that the sequence got in the slot.
    """
    self.last, self._num_tokens = last, num_tokens

  def take(self) -> list[Tokens]:
    """Returns the tokens of each call and marks them as read."""
    slot, taken = self.slot, []
    for call in self._calls():
      count = int(call.num_generated[slot])
      taken.append(
        sampled(
          call.ids[slot, :count], call.logprobs[slot, :count], call.version
        )
      )
      self.before = call
      self._num_read += count
    return taken

  def _calls(self) -> Iterator[DecodedCall]:
    call = self.before
    while call is not self.last and call.following is not None:
      call = call.following
      yield call
