"""The interface between the scheduler and the tools of conversations.

The life of a response (an assistant turn):
1. The model writes until `end_of_response` finds the end of the response.
2. `step` parses it: either the conversation is over, or a tool is called.
3. While the tool runs, the slot goes to another sequence. The pages stay unless
   others need them.
4. `tool_outputs` returns the tokens of finished tool calls. They are prefilled
   with a false `loss_mask`, and the next response starts. If it returns a
   finish reason instead, the conversation ends.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Int32

from azr_jax import types

# Identifies a conversation: request number and sample index.
SequenceId = tuple[int, int]
# Token ids, at least one, or a finish reason that ends the conversation.
ToolOutput = Sequence[int] | str


def split_turns(
  token_ids: Sequence[int], loss_mask: Sequence[bool]
) -> list[tuple[bool, list[int]]]:
  """Splits a completion into turns, at each change of `loss_mask`.

  Returns:
    Pairs (whether the model wrote the turn, its token ids), in order.
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
  """Runs the tool calls of many conversations at once.

  Attributes:
    end_marks: characters of which one is in the token that ends a response.
      `end_of_response` is only called for responses with new tokens that may
      have one, so never without marks. None: any token may end a response.
  """

  @property
  def end_marks(self) -> str | None:
    """The characters that end a response; None: any."""
    ...

  def forget(self, sequence_id: SequenceId) -> None:
    """Drops a conversation that has ended or was cancelled."""
    ...

  def end_of_response(
    self,
    sequence_id: SequenceId,
    prompt: types.Prompt,
    token_ids: Int32[np.ndarray, " S"],
    response_start: int,
    num_checked: int,
  ) -> int | None:
    """Finds the end of a response, other than by stop id or stop string.

    Called repeatedly with the response so far. With `end_marks`, tokens before
    `num_checked` may be new, too.

    Args:
      sequence_id: the conversation.
      prompt: the prompt of the conversation.
      token_ids: the completion so far.
      response_start: index of the response's first token.
      num_checked: number of leading tokens known to contain no end.

    Returns:
      The number of tokens up to the end, or None.
    """
    ...

  def step(
    self,
    sequence_id: SequenceId,
    prompt: types.Prompt,
    responses: Sequence[Sequence[int]],
  ) -> str | None:
    """Handles the last response of a conversation, which has just ended.

    Args:
      sequence_id: the conversation.
      prompt: the prompt of the conversation.
      responses: token ids of each response so far.

    Returns:
      A finish reason if the conversation is over. None if a tool was called;
      its output will be returned by `tool_outputs`.
    """
    ...

  def tool_outputs(self, wait: bool) -> Mapping[SequenceId, ToolOutput]:
    """Returns the tool outputs that have arrived.

    Args:
      wait: whether to block until at least one output has arrived.
    """
    ...

  def record_occupancy(self, decoding: int, awaiting: int, slots: int) -> None:
    """Records slot use; called before each decode call.

    Args:
      decoding: number of slots that decode.
      awaiting: number of conversations that wait for a tool output.
      slots: number of all slots, including free ones.
    """
    ...
