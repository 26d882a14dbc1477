"""The input and the result of an episode: one proposal and its solutions."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from azr_jax import types
from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr.proposer import PromptPrograms, Proposal
from azr_jax.systems.azr.solver import Solution
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.task import Task


@dataclasses.dataclass(frozen=True)
class Start:
  """The input of an episode.

  Attributes:
    task_type: the type of the proposal.
    prompt: the proposer prompt, whose task is `PromptPrograms`.
    task: the fallback task to solve if the proposal is rejected. None if the
      buffer is empty.
  """

  task_type: str
  prompt: types.Prompt
  task: Task | None

  def to_json(self) -> dict[str, Any]:
    """Returns the input as JSON values."""
    return {
      "type": self.task_type,
      "text": self.prompt.text,
      "programs": dataclasses.asdict(self.prompt.task),
      "task": None if self.task is None else task_lib.to_json(self.task),
    }

  @classmethod
  def from_json(cls, row: Mapping[str, Any], policy: Policy) -> Self:
    """Reverses `to_json`; the policy tokenizes the prompt."""
    shown = row["programs"]
    programs = PromptPrograms(
      tuple(shown["references"]), tuple(shown["components"]), shown["program"]
    )
    prompt, task = policy.prompt(row["text"], programs), row["task"]
    return cls(row["type"], prompt, task and task_lib.from_json(task))


@dataclasses.dataclass
class SelfPlayEpisode:
  """Everything sampled for one proposer prompt.

  Attributes:
    index: the index of the prompt in the step, a part of all random keys.
    proposal: the validated proposal.
    rollouts: the proposal's learnability rollouts.
    solution: the solution; None if there was no task to solve.
    votes: the rollouts that vote on the label of the solved task
      (`extensions/voting.py`). None if there was no vote.
    gold_minus_answer: see `program_metrics.gold_minus_answer`.
  """

  index: int
  proposal: Proposal
  rollouts: list[Solution] = dataclasses.field(default_factory=list)
  solution: Solution | None = None
  votes: list[Solution] | None = None
  gold_minus_answer: float | None = None
