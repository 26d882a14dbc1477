"""The life of a proposal, from its prompt to its graded solution.

As soon as a proposal is validated, its learnability rollouts and its solution
are sampled. If it is rejected, a buffered task is solved instead. Proposals do
not wait for each other. All random draws depend on the proposal's index, so a
step has the same tasks and samples regardless of the order in which completions
and verdicts arrive.
"""

import dataclasses
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeAlias

from azr_jax import types
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.partial_rollouts import GroupPaused
from azr_jax.rollout.policy import Policy
from azr_jax.systems import partial
from azr_jax.systems.azr import program_metrics, proposer, solver
from azr_jax.systems.azr.extensions import gate
from azr_jax.systems.azr.extensions.labels import Labels
from azr_jax.systems.azr.proposer import Proposal
from azr_jax.systems.azr.settings import AZRSettings
from azr_jax.systems.azr.solver import Solution
from azr_jax.systems.system import Context
from azr_jax.tasks.programs import buffer as buffer_lib
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.task import Task

# Key of a vote: (episode index, task) for a new task, (task type, task) for a
# buffered one.
VoteName: TypeAlias = tuple[int | str, Task]
# Phases of sampling. Proposals are phase 0 and get their slots first.
LEARN, SOLVE, VOTE = 1, 2, 3


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
    programs = proposer.PromptPrograms(
      tuple(shown["references"]), tuple(shown["components"]), shown["program"]
    )
    prompt, task = policy.prompt(row["text"], programs), row["task"]
    return cls(row["type"], prompt, task and task_lib.from_json(task))


@dataclasses.dataclass
class ProposalEpisode:
  """Everything sampled for one proposer prompt.

  Attributes:
    rollouts: the proposal's learnability rollouts.
    vote: the key of the vote on the solved task's label, for
      `EpisodeCollector.votes`. None if there was no vote.
    solution: the solution; None if there was no task to solve.
    gold_minus_answer: see `program_metrics.gold_minus_answer`.
  """

  proposal: Proposal
  rollouts: list[Solution]
  vote: VoteName | None
  solution: Solution | None
  gold_minus_answer: float | None = None


class EpisodeCollector:
  """Samples the episodes of one step concurrently."""

  def __init__(
    self,
    policy: Policy,
    context: Context,
    settings: AZRSettings,
    prompt_builder: PromptBuilder,
    labels: Labels,
    buffers: Mapping[str, buffer_lib.TaskBuffer],
    step: int,
  ):
    """Makes the collector of a step.

    Args:
      policy: proposes and solves.
      context: the resources of the run; its jobs validate and grade.
      settings: the config section.
      prompt_builder: builds the prompts.
      labels: the labels of the step's tasks.
      buffers: the tasks of earlier steps.
      step: the training step.
    """
    self._policy, self._context, self._settings = policy, context, settings
    self._prompt_builder, self._labels, self._step = (
      prompt_builder,
      labels,
      step,
    )
    self._known: dict[str, set[str]] = {}
    if settings.buffer.duplicates == "reject":
      self._known = {name: buffer.keys() for name, buffer in buffers.items()}
    self._decided: list[Future[None]] = []
    self._votes: dict[VoteName, Future[list[Solution]]] = {}
    # Buffered task without a label -> index of its first episode.
    self._unlabelled: dict[tuple[str, Task], int] = {}

  async def collect(self, starts: Sequence[Start]) -> list[ProposalEpisode]:
    """Returns the episodes of the step's batch.

    Episodes that the previous step paused come first, then the others in order.
    Episodes that pause in this step are left out.

    Args:
      starts: the input of each episode. Inputs of episodes that the previous
        step paused come last.
    """
    self._decided = [Future() for _ in starts]
    for index, start in enumerate(starts):
      task = start.task
      if task is not None and self._labels.needs_vote(start.task_type, task):
        self._unlabelled.setdefault((start.task_type, task), index)
    episodes = await partial.gather(
      self._policy,
      lambda index: self._collect_episode(index, starts[index]),
      len(starts) - len(self._policy.partial.carried),
      [start.to_json() for start in starts],
    )
    return [episode for episode in episodes if episode is not None]

  def votes(self, episodes: Sequence[ProposalEpisode]) -> list[list[Solution]]:
    """Returns the rollouts of each vote once, in the order of the episodes."""
    names = dict.fromkeys(e.vote for e in episodes if e.vote is not None)
    return [self._votes[name].result() for name in names]

  async def _collect_episode(self, index: int, start: Start) -> ProposalEpisode:
    """Samples one episode.

    Raises:
      GroupPaused: a sequence of the episode is paused.
    """
    task = start.task
    settings, policy = self._settings, self._policy
    jobs, prompt_builder = self._context.jobs, self._prompt_builder
    proposal = await proposer.propose(
      policy,
      jobs,
      index,
      start.task_type,
      start.prompt,
      settings,
      prompt_builder,
    )
    drawn = gate.draw(self._context.seed, self._step, index)
    gate.admit(policy, proposal, drawn, settings, prompt_builder)
    if settings.buffer.duplicates == "reject":
      await self._reject_duplicate(index, proposal)
    if settings.solve_from == "current" and proposal.task is not None:
      task = proposal.task
    episode = ProposalEpisode(proposal, [], None, None)
    parts = [self._learn(index, episode), self._solve(index, episode, task)]
    if settings.measure_programs:
      parts.append(program_metrics.measure(jobs, proposal))
    are_paused = await policy.gather(map(_is_paused, parts))
    if any(are_paused):
      raise GroupPaused(index)
    return episode

  async def _reject_duplicate(self, index: int, proposal: Proposal) -> None:
    """Rejects a task that a buffer or an earlier proposal already has.

    Waits for all earlier proposals, so that the first of several is kept.
    """
    try:
      for earlier in self._decided[:index]:
        await Awaited(earlier)
      if proposal.task is None:
        return
      known = self._known[proposal.task_type]
      key = buffer_lib.task_key(proposal.task)
      if key in known:
        proposal.task, proposal.rejection = None, "duplicate"
        proposal.duplicate = True
      else:
        known.add(key)
    finally:
      self._decided[index].set_result(None)

  async def _learn(self, index: int, episode: ProposalEpisode) -> None:
    """Samples the learnability rollouts of a valid proposal (eq. 4)."""
    proposal = episode.proposal
    if not self._settings.uses_learnability or not proposal.earns_reward:
      return
    assert proposal.task is not None
    episode.rollouts = await self._sample(
      LEARN,
      index,
      proposal.task_type,
      proposal.task,
      self._settings.learnability_samples,
    )

  async def _solve(
    self, index: int, episode: ProposalEpisode, task: Task | None
  ) -> None:
    """Samples a solution of a task, and votes on its label if it has none."""
    proposal = episode.proposal
    if not self._settings.uses_solutions or task is None:
      return
    task_type = proposal.task_type
    episode.vote = self._start_vote(index, episode, task)
    [episode.solution] = await self._sample(SOLVE, index, task_type, task, 1)
    if episode.vote is not None:
      await Awaited(self._votes[episode.vote])
    if self._settings.measure_programs:
      episode.gold_minus_answer = await program_metrics.gold_minus_answer(
        self._context.jobs, episode.solution
      )

  def _start_vote(
    self, index: int, episode: ProposalEpisode, task: Task
  ) -> VoteName | None:
    """Starts a vote on a task, unless it has a label or rollouts that vote.

    A buffered task that is solved twice in a step is voted on once.
    """
    name: VoteName
    proposal = episode.proposal
    if task is proposal.task:
      is_learned = proposal.earns_reward and self._settings.uses_learnability
      if is_learned or not self._labels.by_vote(task):
        return None
      name = index, task
    else:
      if (proposal.task_type, task) not in self._unlabelled:
        return None
      index = self._unlabelled[proposal.task_type, task]
      name = proposal.task_type, task
    if name not in self._votes:
      n = self._settings.learnability_samples
      self._votes[name] = self._policy.loop.spawn(
        self._sample(VOTE, index, proposal.task_type, task, n)
      )
    return name

  async def _sample(
    self, phase: int, index: int, task_type: str, task: Task, n: int
  ) -> list[Solution]:
    """Returns n solutions of a task."""
    return await solver.solve(
      self._policy,
      self._context.jobs,
      phase,
      index,
      task_type,
      task,
      self._prompt_builder,
      n,
      self._labels.is_voted(task),
    )


async def _is_paused(part: Coroutine[Any, Any, None]) -> bool:
  """Runs a part of an episode; returns whether it was paused."""
  try:
    await part
  except GroupPaused:
    return True
  return False
