"""Connects episodes to the sampler: each reply goes to the environment.

The environment's messages become tokens whose `loss_mask` is false. Turns are
a function of the task and the replies so far, so a resumed run can request them
again.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from jaxtyping import Int32

from azr_jax import types
from azr_jax.environments.client import Episodes
from azr_jax.functions.pool import CallResult
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.tool_runner import (
  SequenceId,
  ToolOutput,
  split_responses,
)
from azr_jax.systems.environment.turns import TurnWriter


class Conversations:
  """A `ToolRunner` that treats every reply as a tool call."""

  def __init__(
    self,
    episodes: Episodes,
    writer: TurnWriter,
    tokenizer: Tokenizer,
    jobs: SharedJobs,
    max_turns: int,
    prefill: str = "",
  ):
    """Makes the tool runner.

    Args:
      episodes: the environment's processes.
      writer: renders the environment's messages.
      tokenizer: decodes replies.
      jobs: distributes turns over hosts. Not shared with other users.
      max_turns: the maximum number of replies per episode.
      prefill: the start of each reply, which the environment also receives.
    """
    self._episodes, self._writer = episodes, writer
    self._tokenizer, self._jobs = tokenizer, jobs
    self._max_turns, self._prefill = max_turns, prefill
    # By conversation: whether its last reply ends with an EOS token, and the
    # digest of the messages shown so far.
    self._has_end: dict[SequenceId, bool] = {}
    self._shown: dict[SequenceId, str] = {}

  @property
  def end_marks(self) -> str | None:
    """No character, because only stop tokens and stop strings end replies."""
    return ""

  def forget(self, sequence_id: SequenceId) -> None:
    """Drops a conversation that ended or was cancelled."""
    self._has_end.pop(sequence_id, None)
    self._shown.pop(sequence_id, None)

  def end_of_response(
    self,
    sequence_id: SequenceId,
    prompt: types.Prompt,
    token_ids: Int32[np.ndarray, " S"],
    response_start: int,
    num_checked: int,
  ) -> int | None:
    """Returns None, because only stop tokens and stop strings end replies."""
    del sequence_id, prompt, token_ids, response_start, num_checked
    return None

  def step(
    self,
    sequence_id: SequenceId,
    prompt: types.Prompt,
    responses: Sequence[Sequence[int]],
  ) -> str | None:
    """Sends the latest reply to the environment.

    Returns:
      None, or "turns" if the turn limit is reached; `finish` then sends the
      reply.
    """
    if len(responses) >= self._max_turns:
      return "turns"
    replies = self._texts(responses)
    self._has_end[sequence_id] = self._ends(responses[-1])
    shown = self._shown.get(sequence_id, "")
    self._jobs.submit(
      lambda _: self._episodes.step(prompt.task, replies, shown), sequence_id
    )
    return None

  def tool_outputs(self, wait: bool) -> dict[SequenceId, ToolOutput]:
    """Returns the turns that have arrived.

    A failed turn ends its conversation, and grading reports the failure.

    Args:
      wait: whether to block until at least one turn has arrived.
    """
    if not self._jobs.pending:
      return {}
    outputs: dict[SequenceId, ToolOutput] = {}
    for sequence_id, answer in self._jobs.poll(wait).items():
      if sequence_id not in self._has_end:  # Cancelled in the meantime.
        continue
      if answer.failure or answer.value["is_done"]:
        outputs[sequence_id] = "stop"
        continue
      has_end = self._has_end[sequence_id]
      self._shown[sequence_id] = answer.value["shown"]
      outputs[sequence_id] = self._writer.turn(
        answer.value["messages"], has_end
      )
    return outputs

  def record_occupancy(self, decoding: int, awaiting: int, slots: int) -> None:
    """Does nothing: `rollout/awaiting` already counts this."""
    del decoding, awaiting, slots

  def finish(
    self, task: Mapping[str, Any], completion: types.Completion
  ) -> "Future[CallResult]":
    """Ends a completion's episode; returns the future of the last turn."""
    responses = split_responses(
      completion.token_ids.tolist(), completion.loss_mask.tolist()
    )
    is_cut = completion.finish_reason == "length" and not self._ends(
      responses[-1]
    )
    return self._episodes.finish(task, self._texts(responses), is_cut)

  def _texts(self, responses: Sequence[Sequence[int]]) -> list[str]:
    return [
      f"{self._prefill}{self._tokenizer.decode(list(ids))}" for ids in responses
    ]

  def _ends(self, response: Sequence[int]) -> bool:
    return response[-1] in self._tokenizer.eos_ids
