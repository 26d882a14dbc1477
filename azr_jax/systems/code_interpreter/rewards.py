"""The reward of a conversation with code, part by part (R1-CI, section 3.2).

| part | value |
| --- | --- |
| correct | 1 for a right answer |
| form | 0.1 if every response has the format that was asked for, else -0.1 |
| turns | -0.1 for more than six turns |
"""

import dataclasses
from collections.abc import Sequence

from azr_jax.config.settings import Settings, setting
from azr_jax.rollout import code_blocks


@dataclasses.dataclass(frozen=True)
class RewardSettings(Settings):
  """What each part is worth."""

  format: float = setting(
    0.1,
    "gained by a well-formed conversation, lost by any other",
    paper="0.1",
    at_least=0,
  )
  turn_penalty: float = setting(
    0.1, "lost with more than max_turns turns", paper="0.1", at_least=0
  )
  max_turns: int = setting(6, "turns that cost nothing", paper="6", at_least=1)


def parts(
  c: RewardSettings,
  responses: Sequence[str],
  finish_reason: str,
  correct: bool,
) -> dict[str, float]:
  """Returns the parts of a conversation's reward, whose sum it is.

  Args:
    c: the worth of each part.
    responses: what the model wrote, between the tool outputs.
    finish_reason: of the completion; a truncated one is not well formed.
    correct: whether its answer is right.
  """
  last = len(responses) - 1
  is_well_formed = finish_reason == "stop" and all(
    code_blocks.is_well_formed(response, index == last)
    for index, response in enumerate(responses)
  )
  return {
    "correct": float(correct),
    "form": c.format if is_well_formed else -c.format,
    "turns": -c.turn_penalty if len(responses) > c.max_turns else 0.0,
  }
