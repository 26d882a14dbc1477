"""Samples the votes on the labels of tasks that have none (`labels.py`).

The learnability rollouts of a new task vote on its label. Other tasks get
rollouts that only vote, while they are solved.
"""

from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from azr_jax.rollout.event_loop import Awaited
from azr_jax.systems.azr.episode import SelfPlayEpisode, Start
from azr_jax.systems.azr.extensions.labels import Labels
from azr_jax.systems.azr.solver import Solution
from azr_jax.tasks.programs.task import Task

# (episode's index, task) for a new task, (task type, task) for a buffered one.
_Name: TypeAlias = tuple[int | str, Task]
# (episode's index, task type, task) -> the rollouts of a vote.
SampleVotes: TypeAlias = Callable[
  [int, str, Task], Coroutine[Any, Any, list[Solution]]
]
Spawn: TypeAlias = Callable[
  [Coroutine[Any, Any, list[Solution]]], Future[list[Solution]]
]


class Voting:
  """The votes of one step."""

  def __init__(
    self,
    labels: Labels,
    starts: Sequence[Start],
    sample: SampleVotes,
    spawn: Spawn,
    learns: bool,
  ):
    """Finds the buffered tasks of the step that need votes.

    Args:
      labels: the labels of the step's tasks.
      starts: the input of each episode.
      sample: samples the rollouts of a vote.
      spawn: runs a coroutine concurrently.
      learns: whether valid proposals get learnability rollouts.
    """
    self._labels = labels
    self._sample = sample
    self._spawn = spawn
    self._learns = learns
    self._votes: dict[_Name, Future[list[Solution]]] = {}
    # Buffered task without a label -> index of its first episode.
    self._unlabelled: dict[tuple[str, Task], int] = {}
    for index, start in enumerate(starts):
      task = start.task
      if task is not None and labels.needs_vote(start.task_type, task):
        self._unlabelled.setdefault((start.task_type, task), index)

  def start(self, episode: SelfPlayEpisode, task: Task) -> None:
    """Starts the vote on a task, if it needs one.

    A buffered task that is solved twice in a step is voted on once.
    """
    name = self._name(episode, task)
    if name is None or name in self._votes:
      return
    task_type, index = episode.proposal.task_type, episode.index
    if task is not episode.proposal.task:
      index = self._unlabelled[task_type, task]
    self._votes[name] = self._spawn(self._sample(index, task_type, task))

  async def finish(self, episode: SelfPlayEpisode, task: Task) -> None:
    """Waits for the vote on a task, if there is one, and stores it."""
    name = self._name(episode, task)
    if name is not None:
      episode.votes = await Awaited(self._votes[name])

  def _name(self, episode: SelfPlayEpisode, task: Task) -> _Name | None:
    """Returns the key of the vote on a task; None if it needs no vote."""
    proposal = episode.proposal
    if task is proposal.task:
      is_learned = proposal.earns_reward and self._learns
      needs_vote = self._labels.by_vote(task) and not is_learned
      return (episode.index, task) if needs_vote else None
    name = proposal.task_type, task
    return name if name in self._unlabelled else None
