"""Where the extensions change a step of self-play.

| call | what happens there |
| --- | --- |
| `after_proposal` | the gate admits failed programs (`gate.py`); duplicates are
  rejected (`duplicates.py`) |
| `while_solving` | programs are measured (`program_metrics.py`), and graded by
  a guide (`guide.py`) |
| `before_solution` | a vote on a task's label starts (`voting.py`) |
| `after_solution` | the vote ends; the answer is measured |
| `after_step` | votes grade rollouts and solutions (`labels.py`); answers are
  counted |
| `metrics` | the metrics of all extensions are computed |

With the paper's settings, only the measurements do anything. Other extensions
change a prompt (`composite.py`), a program (`rewriting.py`) or a reward
(`intrinsic.py`, `repetition.py`) where it is made.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr import metrics, program_metrics, solver
from azr_jax.systems.azr.calls import AZRCall
from azr_jax.systems.azr.episode import SelfPlayEpisode, Start
from azr_jax.systems.azr.extensions import gate, guide
from azr_jax.systems.azr.extensions.duplicates import Duplicates
from azr_jax.systems.azr.extensions.labels import (
  EXECUTOR,
  SAME,
  Labels,
)
from azr_jax.systems.azr.extensions.voting import Voting
from azr_jax.systems.azr.proposer import Proposal
from azr_jax.systems.azr.solver import Solution
from azr_jax.systems.system import Context
from azr_jax.tasks.programs.buffer import TaskBuffer
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.task import Task


@dataclasses.dataclass(frozen=True)
class ExtensionRules:
  """Which extensions a run has. The defaults are the paper's.

  Attributes:
    labels, proposer_labels: what grades solutions and the rollouts of proposals
      (`labels.py`).
    vote_samples: the number of rollouts that vote on a label.
    learns: whether valid proposals get learnability rollouts, which also vote.
    distinct_types: task types whose proposals must differ from known tasks.
    unverified_fraction: the probability of admitting a task whose program
      failed (`gate.py`).
    strip: the parts to strip from admitted programs (`rewriting.STRIPPED`).
    measures_programs: whether to measure programs and answers.
    guide_goal: what the guide grades proposals for; "" for no guide.
  """

  labels: str = EXECUTOR
  proposer_labels: str = SAME
  vote_samples: int = 8
  learns: bool = True
  distinct_types: Collection[str] = ()
  unverified_fraction: float = 0.0
  strip: Collection[str] = ()
  measures_programs: bool = True
  guide_goal: str = ""


class Extensions:
  """The extensions of a run. Their state is the answer counts."""

  def __init__(
    self,
    rules: ExtensionRules,
    context: Context,
    prompt_builder: PromptBuilder,
    buffers: Mapping[str, TaskBuffer],
  ):
    """Makes extensions without any counts.

    Args:
      rules: which extensions there are.
      context: the resources of the run.
      prompt_builder: builds the solver prompts.
      buffers: the tasks of each type. They store the labels.
    """
    self.rules = rules
    self.context = context
    self.prompt_builder = prompt_builder
    self.buffers = buffers
    self.answers = program_metrics.AnswerCounts()
    self.surprise = program_metrics.Surprise()

  def state_dict(self) -> dict[str, Any]:
    """Returns the answer counts as JSON values."""
    return {
      "answers": self.answers.state_dict(),
      "answered": self.surprise.state_dict(),
    }

  def load_state_dict(self, state: Mapping[str, Any]) -> None:
    """Restores what `state_dict` returned; ignores other keys."""
    self.answers.load_state_dict(state["answers"])
    self.surprise.load_state_dict(state["answered"])

  def begin_step(
    self, policy: Policy, step: int, starts: Sequence[Start]
  ) -> "StepExtensions":
    """Returns the extensions of a step, whose episodes begin with `starts`."""
    return StepExtensions(self, policy, step, starts)


class StepExtensions:
  """The extensions of one step; the module docstring lists the calls."""

  def __init__(
    self, run: Extensions, policy: Policy, step: int, starts: Sequence[Start]
  ):
    self._run = run
    self._policy = policy
    self._step = step
    rules = run.rules
    self._labels = Labels(rules.labels, rules.proposer_labels, run.buffers)
    self._voting = Voting(
      self._labels,
      starts,
      self._sample_votes,
      policy.loop.spawn,
      learns=rules.learns,
    )
    self._duplicates = None
    if rules.distinct_types:
      buffers = {name: run.buffers[name] for name in rules.distinct_types}
      self._duplicates = Duplicates(buffers, [s.task_type for s in starts])

  def is_voted(self, task: Task) -> bool:
    """Returns whether to read the votes of a task's solutions."""
    return self._labels.is_voted(task)

  async def after_proposal(self, index: int, proposal: Proposal) -> None:
    """Applies the gate and the duplicate check to a validated proposal."""
    run = self._run
    if run.rules.unverified_fraction:
      gate.admit(
        self._policy,
        proposal,
        gate.draw(run.context.seed, self._step, index),
        run.rules.unverified_fraction,
        run.rules.strip,
        run.prompt_builder,
      )
    if self._duplicates is not None:
      await self._duplicates.reject(index, proposal)

  async def while_solving(self, episode: SelfPlayEpisode) -> None:
    """Measures the proposed program, and asks the guide about it."""
    rules = self._run.rules
    if rules.measures_programs:
      await program_metrics.measure(self._run.context.jobs, episode.proposal)
    if rules.guide_goal:
      await guide.grade(
        self._policy, episode.proposal, episode.index, rules.guide_goal
      )

  def before_solution(self, episode: SelfPlayEpisode, task: Task) -> None:
    """Starts a vote on the task to solve, if it has no label."""
    self._voting.start(episode, task)

  async def after_solution(self, episode: SelfPlayEpisode, task: Task) -> None:
    """Waits for the vote, and measures the answer."""
    await self._voting.finish(episode, task)
    assert episode.solution is not None
    if self._run.rules.measures_programs:
      episode.gold_minus_answer = await program_metrics.gold_minus_answer(
        self._run.context.jobs, episode.solution
      )

  async def _sample_votes(
    self, index: int, task_type: str, task: Task
  ) -> list[Solution]:
    return await solver.solve(
      self._policy,
      self._run.context.jobs,
      AZRCall.VOTE,
      index,
      task_type,
      task,
      self._run.prompt_builder,
      self._run.rules.vote_samples,
      self._labels.is_voted(task),
    )

  def after_step(self, episodes: Sequence[SelfPlayEpisode]) -> None:
    """Grades by votes, and counts the answers of the step's tasks.

    The buffers must have the step's tasks already, because they store labels.

    Args:
      episodes: the complete episodes of the step.
    """
    labels = self._labels
    for episode in episodes:
      rollouts = episode.rollouts
      if rollouts and labels.is_voted(rollouts[0].prompt.task):
        solved = labels.vote(rollouts)
        if episode.proposal.task is not None:  # It may be a late duplicate.
          episode.proposal.solved = solved
    # Episodes that solve the same buffered task share a vote.
    votes = {id(e.votes): e.votes for e in episodes if e.votes is not None}
    for voting in votes.values():
      labels.vote(voting)
    solutions = [e.solution for e in episodes if e.solution is not None]
    labels.grade(solutions)
    rollouts = [rollout for episode in episodes for rollout in episode.rollouts]
    labels.draw([*solutions, *rollouts], self._run.context.seed, self._step)
    labels.keep()
    if self._run.rules.measures_programs:
      proposals = [episode.proposal for episode in episodes]
      program_metrics.count_answers(proposals, self._run.answers)
      self._run.surprise.rate_and_count(proposals, [*rollouts, *solutions])

  def metrics(self, episodes: Sequence[SelfPlayEpisode]) -> dict[str, float]:
    """Returns the metrics of the extensions, after `after_step`."""
    rules = self._run.rules
    proposals = [episode.proposal for episode in episodes]
    solutions = [e.solution for e in episodes if e.solution is not None]
    found = self._labels.metrics(metrics.NAME)
    if rules.unverified_fraction:
      found |= metrics.gate_metrics(proposals, solutions)
      for name, buffer in self._run.buffers.items():
        key = f"buffer/{metrics.NAME}/{name}/unverified_fraction"
        found[key] = buffer.unverified_fraction
    if rules.guide_goal:
      found |= guide.metrics(proposals, metrics.NAME)
    if rules.measures_programs:
      found |= program_metrics.metrics(proposals, metrics.NAME)
      found |= program_metrics.solution_metrics(
        [episode.gold_minus_answer for episode in episodes], metrics.NAME
      )
    return found
