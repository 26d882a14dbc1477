"""The reward of a conversation with code, part by part (seed 001, 3.2).

| part | value |
| --- | --- |
| correct | 1 for a right answer |
| form | 0.1 if every reply is as it was asked for, else -0.1 |
| turns | -0.1 for more replies than six |
"""

import dataclasses
from collections.abc import Sequence

from azr_jax.rollout import code_blocks


@dataclasses.dataclass(frozen=True)
class RewardRules:
  """What each part is worth.

  Attributes:
    form: gained by a well-formed conversation, lost by any other.
    turns: lost with more than `most_turns` replies.
    most_turns: replies that cost nothing.
  """

  form: float
  turns: float
  most_turns: int


def parts(
  rules: RewardRules, replies: Sequence[str], finish_reason: str, correct: bool
) -> dict[str, float]:
  """The parts of a conversation's reward, whose sum it is.

  Args:
    rules: see there.
    replies: what the model wrote, between the results.
    finish_reason: of the completion; what was cut off is not well formed.
    correct: whether its answer is right.
  """
  last = len(replies) - 1
  formed = finish_reason == "stop" and all(
    code_blocks.is_well_formed(reply, place == last)
    for place, reply in enumerate(replies)
  )
  return {
    "correct": float(correct),
    "form": rules.form if formed else -rules.form,
    "turns": -rules.turns if len(replies) > rules.most_turns else 0.0,
  }
