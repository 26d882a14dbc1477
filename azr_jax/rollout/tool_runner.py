"""What runs the tool calls of conversations, as the scheduler sees it.

The life of a response (an assistant turn):
1. the model writes until `end_of_response` says where the response ends;
2. `step` looks at it: the conversation is over, or a tool is called;
3. its slot is given to another sequence, and its pages stay, unless others
   need them;
4. `tool_outputs` returns the tokens of the outputs that have come; they are
   prefilled, and the next response begins. Their `loss_mask` is false. A
   finish reason in their place ends the conversation.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol

from azr_jax import types

# A conversation: the number of its request, and the sample's.
SequenceId = tuple[int, int]
# Token ids, at least one; or a finish reason, which ends the conversation.
ToolOutput = Sequence[int] | str


def split_turns(
  token_ids: Sequence[int], loss_mask: Sequence[bool]
) -> list[tuple[bool, list[int]]]:
  """Splits a completion into turns, where `loss_mask` changes.

  Returns:
    Whether the model wrote the turn, and its token ids, in order.
  """
  runs = itertools.groupby(
    zip(loss_mask, token_ids, strict=True), key=lambda pair: pair[0]
  )
  return [
    (is_model, [int(token) for _, token in run]) for is_model, run in runs
  ]


def split_responses(
  token_ids: Sequence[int], loss_mask: Sequence[bool]
) -> list[list[int]]:
  """Returns the token ids of each response of a completion."""
  turns = split_turns(token_ids, loss_mask)
  return [ids for is_model, ids in turns if is_model]


class ToolRunner(Protocol):
  """Steps on the responses of many conversations at a time."""

  def forget(self, sequence_id: SequenceId) -> None:
    """Drops a conversation that has ended, or was given up."""
    ...

  def end_of_response(
    self,
    sequence_id: SequenceId,
    token_ids: Sequence[int],
    response_start: int,
    num_checked: int,
  ) -> int | None:
    """Finds the end of a response, other than by stop id or stop string.

    It is called with each few tokens of a response, in their order.

    Args:
      sequence_id: the conversation.
      token_ids: the completion so far.
      response_start: index of the response's first token.
      num_checked: how many of the tokens are known to hold no end.

    Returns:
      How many tokens there are up to the end, or None.
    """
    ...

  def step(
    self,
    sequence_id: SequenceId,
    prompt: types.Prompt,
    responses: Sequence[Sequence[int]],
  ) -> str | None:
    """Takes the responses of a conversation when the last of them has ended.

    Args:
      sequence_id: the conversation.
      prompt: what it began with.
      responses: token ids of each of its responses.

    Returns:
      A finish reason if the conversation is over; None if a tool was called,
      whose output will be among `tool_outputs`.
    """
    ...

  def tool_outputs(self, wait: bool) -> Mapping[SequenceId, ToolOutput]:
    """Returns the tool outputs that have come.

    Args:
      wait: whether to wait until at least one has come.
    """
    ...

  def record_occupancy(self, decoding: int, awaiting: int, slots: int) -> None:
    """Counts the use of slots; called before each call of the decode loop.

    Args:
      decoding: slots that decode.
      awaiting: conversations that wait for a tool output.
      slots: all slots, free ones included.
    """
    ...
