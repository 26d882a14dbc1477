r"""Rewards that do not say what is right: controls for `custom.reward`.

| reward | pays 1 |
| --- | --- |
| `coin` | half of the responses, whatever they say |
| `is_answered` | a number in answer tags, right or wrong |
| `majority` | the number that most responses to the prompt give |

A gain that one of them gives, too, does not show that training taught what is
right. `learner.estimator=reward` with a true reward is another control:
fine-tuning on the right responses alone.

Responses are those of `examples.py`; copy this file for another format.
"""

import collections
import hashlib
from collections.abc import Sequence

from azr_jax.systems.custom.examples import number_in


def coin(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
  """Returns 0 or 1 per response, by a hash of all responses to the prompt.

  Equal responses differ in their rewards, and a repeated run does not.
  """
  texts = [*prompts[:1], *completions]
  return [
    float(hashlib.sha256(repr((texts, index)).encode()).digest()[0] % 2)
    for index in range(len(completions))
  ]


def is_answered(completion: str) -> float:
  """Returns 1 if there is a number in the answer's tags."""
  return float(number_in(completion) is not None)


def majority(completions: Sequence[str]) -> list[float]:
  """Returns 1 for the most frequent number; of several, the first one.

  Responses without a number have no vote and get 0.
  """
  found = [number_in(completion) for completion in completions]
  votes = collections.Counter(number for number in found if number is not None)
  if not votes:
    return [0.0] * len(found)
  (winner, _), *_ = votes.most_common(1)
  return [float(number == winner) for number in found]
