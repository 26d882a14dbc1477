"""Collects the episodes of a step: from a proposal to its graded solution.

As soon as a proposal is validated, its learnability rollouts and its solution
are sampled. If it is rejected, a buffered task is solved instead. Proposals do
not wait for each other, unless they must differ (`extensions/duplicates.py`).
All random draws depend on the proposal's index, so a step has the same tasks
and samples regardless of the order in which completions and verdicts arrive.
"""

import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.partial_rollouts import GroupPaused
from azr_jax.rollout.policy import Policy
from azr_jax.systems import partial
from azr_jax.systems.azr import solver
from azr_jax.systems.azr.calls import AZRCall
from azr_jax.systems.azr.episode import SelfPlayEpisode, Start
from azr_jax.systems.azr.extensions.hook import StepExtensions
from azr_jax.systems.azr.proposer import Proposer
from azr_jax.systems.azr.rewards import Solved
from azr_jax.systems.azr.solver import Solution
from azr_jax.tasks.programs import environments, parsing
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.task import EnvironmentTask, Instance, Task

# Bits of an episode's index in the prompt numbers of its rollouts.
_INDEX_BITS = 20


class EpisodeCollector:
  """Samples the episodes of one step concurrently."""

  def __init__(
    self,
    policy: Policy,
    jobs: SharedJobs,
    proposer: Proposer,
    prompt_builder: PromptBuilder,
    extensions: StepExtensions,
    *,
    learnability_samples: int,
    uses_solutions: bool,
    solves_proposals: bool,
    instance_seed: Callable[[int], int],
  ):
    """Makes the collector of a step.

    Args:
      policy: proposes and solves.
      jobs: validates proposals and grades solutions.
      proposer: samples and validates proposals.
      prompt_builder: builds the solver prompts.
      extensions: called at each stage of an episode.
      learnability_samples: n, the rollouts per valid proposal; 0 for none.
      uses_solutions: whether to sample a solution per episode.
      solves_proposals: whether to solve valid proposals. Otherwise the
        episode's other task is solved.
      instance_seed: returns the seed of an episode's instances, given its
        index.
    """
    self._policy = policy
    self._jobs = jobs
    self._proposer = proposer
    self._prompt_builder = prompt_builder
    self._extensions = extensions
    self._learnability_samples = learnability_samples
    self._uses_solutions = uses_solutions
    self._solves_proposals = solves_proposals
    self._instance_seed = instance_seed

  async def collect(self, starts: Sequence[Start]) -> list[SelfPlayEpisode]:
    """Returns the episodes of the step's batch.

    Episodes that the previous step paused come first, then the others in order.
    Episodes that pause in this step are left out.

    Args:
      starts: the input of each episode. Inputs of episodes that the previous
        step paused come last.
    """
    episodes = await partial.gather(
      self._policy,
      lambda index: self._collect_episode(index, starts[index]),
      len(starts) - len(self._policy.partial.carried),
      [start.to_json() for start in starts],
    )
    return [episode for episode in episodes if episode is not None]

  async def _collect_episode(self, index: int, start: Start) -> SelfPlayEpisode:
    """Samples one episode.

    Raises:
      GroupPaused: a sequence of the episode is paused.
    """
    proposal = await self._proposer.propose(
      self._policy,
      self._jobs,
      index,
      start.task_type,
      start.prompt,
      self._instance_seed(index),
    )
    await self._extensions.after_proposal(index, proposal)
    task = start.task
    if self._solves_proposals and proposal.task is not None:
      task = proposal.task
    episode = SelfPlayEpisode(index, proposal)
    parts = (
      self._learn(episode),
      self._solve(episode, task),
      self._extensions.while_solving(episode),
    )
    if any(await self._policy.gather(map(_is_paused, parts))):
      raise GroupPaused(index)
    return episode

  async def _learn(self, episode: SelfPlayEpisode) -> None:
    """Samples the learnability rollouts of a valid proposal (eq. 4)."""
    proposal = episode.proposal
    if not self._learnability_samples or not proposal.earns_reward:
      return
    assert proposal.task is not None
    guessed = 0.0
    if proposal.instances:
      # Every rollout gets an instance of its own, and a key of its own.
      fresh = proposal.instances[: self._learnability_samples]
      episode.rollouts = await solver.solve_each(
        self._policy,
        self._jobs,
        AZRCall.LEARN,
        [
          episode.index + (number << _INDEX_BITS)
          for number in range(len(fresh))
        ],
        proposal.task_type,
        fresh,
        self._prompt_builder,
      )
      if any(rollout.correct for rollout in episode.rollouts):
        guessed = await self._guessed(proposal.instances, episode.rollouts)
    else:
      episode.rollouts = await self._sample(
        AZRCall.LEARN, episode, proposal.task, self._learnability_samples
      )
    proposal.solved = Solved.of(
      [rollout.outcome for rollout in episode.rollouts], guessed
    )

  async def _guessed(
    self, instances: Sequence[Instance], rollouts: Sequence[Solution]
  ) -> float:
    """Returns the solve rate of an environment that guessing reaches."""
    answers = [
      parsing.parse_output_answer(
        rollout.completion.text, self._prompt_builder.answer_format
      )
      for rollout in rollouts
    ]
    measured = self._jobs.submit(
      functools.partial(
        environments.submit_guesses, instances=instances, answers=answers
      )
    )
    return await Awaited(measured, self._jobs)

  async def _solve(self, episode: SelfPlayEpisode, task: Task | None) -> None:
    """Samples a solution of a task."""
    if not self._uses_solutions or task is None:
      return
    if isinstance(task, EnvironmentTask):
      is_new = task is episode.proposal.task
      task = (
        episode.proposal.instances[-1]
        if is_new
        else await self._draw_instance(episode.index, task)
      )
      if task is None or not self._fits(episode, task):
        return
    self._extensions.before_solution(episode, task)
    [episode.solution] = await self._sample(AZRCall.SOLVE, episode, task, 1)
    await self._extensions.after_solution(episode, task)

  async def _draw_instance(
    self, index: int, environment: EnvironmentTask
  ) -> Instance | None:
    """Draws an instance of a buffered environment; None if that fails."""
    drawn = self._jobs.submit(
      functools.partial(
        environments.submit_instance,
        environment=environment,
        seed=self._instance_seed(index),
      )
    )
    return await Awaited(drawn, self._jobs)

  def _fits(self, episode: SelfPlayEpisode, task: Task) -> bool:
    prompt = solver.solve_prompt(
      self._policy, episode.proposal.task_type, task, self._prompt_builder
    )
    return self._policy.fits(prompt)

  async def _sample(
    self, call: AZRCall, episode: SelfPlayEpisode, task: Task, n: int
  ) -> list[Solution]:
    """Returns n solutions of a task."""
    return await solver.solve(
      self._policy,
      self._jobs,
      call,
      episode.index,
      episode.proposal.task_type,
      task,
      self._prompt_builder,
      n,
      self._extensions.is_voted(task),
    )


async def _is_paused(part: Coroutine[Any, Any, None]) -> bool:
  """Runs a part of an episode; returns whether it was paused."""
  try:
    await part
  except GroupPaused:
    return True
  return False
