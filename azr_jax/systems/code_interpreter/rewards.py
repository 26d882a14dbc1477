"""The terms of a conversation's reward (R1-CI, section 3.2).

| term | value |
| --- | --- |
| correct | 1 for a correct answer, otherwise 0 |
| format | 0.1 if every response is well formed, otherwise -0.1 |
| turns | -0.1 for more than six turns, otherwise 0 |
"""

import dataclasses
from collections.abc import Sequence

from azr_jax.config.settings import Settings, setting
from azr_jax.tools import code_blocks


@dataclasses.dataclass(frozen=True)
class RewardSettings(Settings):
  """The values of the reward terms."""

  format: float = setting(
    0.1,
    "reward of a well-formed conversation, and penalty for a malformed one",
    paper="0.1",
    minimum=0,
    expert=True,
  )
  turn_penalty: float = setting(
    0.1,
    "penalty for more than max_turns turns",
    paper="0.1",
    minimum=0,
    expert=True,
  )
  max_turns: int = setting(
    6, "maximum turns without penalty", paper="6", minimum=1, expert=True
  )


def parts(
  responses: Sequence[str],
  finish_reason: str,
  correct: bool,
  *,
  format_reward: float,
  turn_penalty: float,
  max_turns: int,
) -> dict[str, float]:
  """Returns the terms whose sum is a conversation's reward.

  Args:
    responses: the texts of the model's turns.
    finish_reason: the completion's finish reason. Truncated conversations are
      malformed.
    correct: whether the answer is correct.
    format_reward: the reward of a well-formed conversation; a malformed one
      loses as much.
    turn_penalty: the penalty for more than `max_turns` turns.
    max_turns: the maximum turns without penalty.
  """
  last = len(responses) - 1
  is_well_formed = finish_reason == "stop" and all(
    code_blocks.is_well_formed(response, index == last)
    for index, response in enumerate(responses)
  )
  return {
    "correct": float(correct),
    "format": format_reward if is_well_formed else -format_reward,
    "turns": -turn_penalty if len(responses) > max_turns else 0.0,
  }
