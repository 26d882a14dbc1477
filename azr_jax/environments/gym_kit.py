"""Sets of reasoning-gym as environments with one question and one answer.

A task is the index of an entry, and its reward is the set's own score. As in
the library, the answer is the text between the last <answer> and </answer>, or
the whole reply if it has no such tags.
"""

import re
from collections.abc import Mapping
from typing import Any

from azr_jax.environments import protocol
from azr_jax.environments.protocol import Kit, Observation, Turn
from azr_jax.tasks import gym_sets

# Number of entries if there is no limit.
_TASKS = 1000
_INDEX = "index"
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def load(name: str, arguments: Mapping[str, Any]) -> Kit:
  """Returns a set; its argument `seed` selects other entries.

  Raises:
    ValueError: reasoning-gym is not installed, has no such set, or rejects the
      arguments.
  """
  chosen = gym_sets.open_set(name, gym_sets.SEED_STRIDE, 0, arguments)
  chosen.entry(0)

  def tasks(limit: int) -> list[Mapping[str, Any]]:
    return [{_INDEX: index} for index in range(limit or _TASKS)]

  return Kit(tasks, lambda task: _Episode(chosen, task[_INDEX]))


class _Episode:
  """An episode: one question."""

  def __init__(self, chosen: gym_sets.GymSet, index: int):
    self._scorer, self._entry = chosen.dataset, chosen.entry(index)

  def begin(self) -> Observation:
    """Returns the question."""
    return Observation(protocol.messages(str(self._entry["question"])))

  def step(self, reply: str, is_cut: bool) -> Turn:
    """Scores the answer in a reply."""
    found = _ANSWER.findall(reply)
    answer = (found[-1] if found else reply).strip()
    score = float(self._scorer.score_answer(answer, self._entry))
    metrics = {"correct": float(score >= 1.0), "answered": float(bool(found))}
    return Turn(reward=score, is_done=True, metrics=metrics)

  def finish(self) -> Turn:
    """Ends a question that received no reply."""
    return Turn(is_done=True, metrics={"correct": 0.0, "answered": 0.0})

  def close(self) -> None:
    """Does nothing."""
