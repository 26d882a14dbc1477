"""Absolute Zero Reasoner: one model proposes and solves program tasks.

The life of a step (`AZR.collect`, Algorithm 1):
1. Seed: in the first step, the model fills the buffers from the zero triplet.
2. Propose: B prompts per task type. Each proposal is validated.
3. Learnability: n solver rollouts per valid proposal (eq. 4).
4. Solve: B tasks per type, from this step's proposals or else from the buffer.
5. Valid tasks enter the buffers. Every proposal and solution becomes a
   trajectory with a composite reward (eq. 5, 6) and a (task type, role) group
   (eq. 8).

Proposals pass through stages 2 to 4 independently (`collector.py`).

Paper: AZR (arXiv 2505.03335). Where the published code differs from the paper,
a setting selects one of them; the default is the paper's. Experiments of
appendix D and ideas from other papers are in `extensions/`, which
`extensions/hook.py` calls.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.systems.azr import (
  metrics,
  seeding,
  solver,
  trajectories,
)
from azr_jax.systems.azr.collector import EpisodeCollector
from azr_jax.systems.azr.episode import SelfPlayEpisode, Start
from azr_jax.systems.azr.extensions import yoked
from azr_jax.systems.azr.extensions.hook import ExtensionRules, Extensions
from azr_jax.systems.azr.extensions.labels import EXECUTOR
from azr_jax.systems.azr.proposer import Proposer
from azr_jax.systems.azr.settings import AZRSettings
from azr_jax.systems.azr.solver import Solution
from azr_jax.systems.system import (
  About,
  Context,
  StepLoad,
  SuggestedScoring,
  System,
)
from azr_jax.tasks.programs import buffer as buffer_lib
from azr_jax.tasks.programs import environments, templates
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.task import (
  ENVIRONMENT,
  PROPOSE,
  SOLVE,
  Task,
)
from azr_jax.tasks.templates import PromptFiles

# Tasks proposed within this many steps count as fresh.
FRESH_STEPS = 50


class AZR(System):
  """Self-play. Its state is the task buffers and the answer counts."""

  settings: AZRSettings
  name = metrics.NAME
  Settings = AZRSettings

  def __init__(self, settings: AZRSettings, context: Context):
    super().__init__(settings, context)
    self.buffers = {
      task_type: buffer_lib.TaskBuffer(
        settings.buffer.max_programs,
        settings.buffer.evict,
        settings.buffer.revisit,
      )
      for task_type in settings.task_types
    }
    limits = context.sandbox
    self._prompt_builder = PromptBuilder(
      settings.prompt_format,
      limits.validation_timeout_s,
      limits.timeout_s,
      settings.equality_rule,
      settings.answer_format,
      context.templates,
      _environment_call_s(limits),
    )
    appendix = settings.appendix
    self._proposer = Proposer(
      self._prompt_builder,
      references=settings.references,
      induction_inputs=settings.induction_inputs,
      recent_references=appendix.reference_sampling == "recent",
      composite_prob=appendix.composite_prob,
      max_components=appendix.max_components,
      strip=appendix.strip,
      instances=settings.learnability_samples + 1,
      novelty=settings.novelty,
    )
    self._extensions = Extensions(
      ExtensionRules(
        settings.labels,
        settings.proposer_labels,
        vote_samples=settings.learnability_samples,
        learns=settings.used_learnability_samples > 0,
        distinct_types=settings.distinct_types,
        unverified_fraction=settings.unverified_fraction,
        strip=appendix.strip,
        measures_programs=settings.measure_programs,
        guide_goal=settings.guide.goal if settings.uses_guide else "",
      ),
      context,
      self._prompt_builder,
      self.buffers,
    )

  def solver_prompt(self, task_type: str, task: Task) -> str:
    """Returns the text of a task's solver prompt."""
    return self._prompt_builder.solve(task_type, task)

  @classmethod
  def check(cls, settings: AZRSettings, rollout: SamplerSettings) -> None:
    """Rejects `step_tokens` with settings that make episodes interdependent."""
    for key, value in (
      ("labels", EXECUTOR),
      ("unverified_fraction", 0.0),
      ("buffer.duplicates", "keep"),
      ("guide.weight", 0.0),
      ("yoked_to", ""),
      ("task_types", tuple(t for t in settings.task_types if t != ENVIRONMENT)),
    ):
      actual = operator.attrgetter(key)(settings)
      if rollout.step_tokens and actual != value:
        raise Invalid(
          f"{cls.name}.{key}",
          f"={actual!r}: expected {value!r} with rollout.step_tokens="
          f"{rollout.step_tokens}, because such episodes cannot be paused",
        )

  @classmethod
  def prompt_files(cls, settings: AZRSettings) -> PromptFiles:
    """Returns the prompts of the task types that are played."""
    roles = [
      f"{role}_{task_type}"
      for role in (PROPOSE, SOLVE)
      for task_type in settings.task_types
    ]
    names = templates.FRAME, templates.REFERENCE, templates.CASE, *roles
    return {name: templates.FILES[name] for name in names}

  @classmethod
  def about(cls, settings: AZRSettings) -> About:
    """Returns facts about the system under these settings.

    The load assumes that every proposal is valid.
    """
    tasks = len(settings.task_types) * settings.prompts
    n = settings.used_learnability_samples
    learned = n if settings.train_on_learnability else 0
    guided = 1 if settings.uses_guide else 0
    samples = (1, n, 1 if settings.uses_solutions else 0, guided)
    return About(
      paper=(
        "Absolute Zero: Reinforced Self-play Reasoning with Zero Data",
        "https://arxiv.org/abs/2505.03335",
      ),
      metrics=metrics.HEALTHY,
      load=StepLoad(
        phases=tuple((tasks, count) for count in samples if count),
        trained=tasks * (len(settings.roles) + learned),
      ),
      # Self-play never trains on the held-out programs.
      scoring=SuggestedScoring("greedy", "programs_heldout"),
      can_pause=True,
    )

  def state_dict(self) -> dict[str, Any]:
    """Returns the buffers and the answer counts as JSON values."""
    buffers = {name: b.state_dict() for name, b in self.buffers.items()}
    return {**buffers, **self._extensions.state_dict()}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned.

    Raises:
      ValueError: the state has no buffer for one of the task types.
    """
    for name, buffer in self.buffers.items():
      if name not in state:
        raise ValueError(
          f"config.azr.task_types includes {name}, for which this run has no "
          "tasks: expected the run's original types, or another --workdir"
        )
      buffer.load_state_dict(state[name])
    self._extensions.load_state_dict(state)

  async def collect(self, policy: Policy, step: int) -> types.RolloutBatch:
    """Collects one step of Algorithm 1.

    Reads buffers and counts before sampling proposals, and updates them once
    the whole step is complete.
    """
    # Line 1: seeds.
    seeding_s = await self._seed(policy, step)

    # Lines 4, 8 and 9: draw programs and references, and build B proposer
    # prompts per task type. Line 13: draw tasks in case proposals are rejected.
    prompts = self._prompts(policy, step)
    tasks = self._tasks_to_solve(policy, step)
    starts = [
      Start(task_type, prompt, task)
      for (task_type, prompt), task in zip(prompts, tasks, strict=True)
    ]
    starts += [Start.from_json(row, policy) for row in policy.partial.items]

    # Lines 5 to 7 and 10 to 16: propose, validate, solve and verify.
    extensions = self._extensions.begin_step(policy, step, starts)
    episodes = await EpisodeCollector(
      policy,
      self.context.jobs,
      self._proposer,
      self._prompt_builder,
      extensions,
      learnability_samples=self.settings.used_learnability_samples,
      uses_solutions=self.settings.uses_solutions,
      solves_proposals=self.settings.solves_proposals,
      instance_seed=functools.partial(self._instance_seed, step),
    ).collect(starts)
    await policy.earlier_steps()

    # Lines 7 and 12: valid tasks enter the buffers.
    self._add_tasks(episodes, step)
    extensions.after_step(episodes)
    self._update_pass_rates(episodes)
    self._record_tasks(_solutions(episodes), step)

    # Line 16: rewards. The trainer does line 17, the update.
    batch = self._batch(episodes, step)
    batch.metrics.update(extensions.metrics(episodes))
    if seeding_s:
      batch.metrics["time/seed"] = seeding_s
    return batch

  def can_sample_ahead(self, step: int) -> bool:
    """Returns whether the buffers have tasks; the first step fills them."""
    del step
    return any(len(buffer) for buffer in self.buffers.values())

  def _record_tasks(self, solutions: Sequence[Solution], step: int) -> None:
    """Writes the tasks of a step, which other runs can be yoked to."""
    self.context.records.write(yoked.file_of(step), yoked.to_rows(solutions))

  async def _seed(self, policy: Policy, step: int) -> float:
    """Fills empty buffers with seed tasks; returns the seconds it took."""
    if self.can_sample_ahead(step):
      return 0.0
    start, settings = self.context.now(), self.settings
    await seeding.Seeding(
      policy,
      self.context,
      self._proposer,
      self._prompt_builder,
      task_types=settings.task_types,
      prompts=settings.prompts,
      target=settings.seed_target,
      max_rounds=settings.seed_rounds,
      file=settings.appendix.seeds,
    ).fill(self.buffers)
    # Discard the metrics of seeding jobs. A run that is killed before its first
    # checkpoint rereads its seeds, and its metrics must not differ.
    self.context.jobs.metrics()
    return self.context.now() - start

  def _prompts(
    self, policy: Policy, step: int
  ) -> list[tuple[str, types.Prompt]]:
    """Returns B proposer prompts per task type."""
    rng = streams.generator(self.context.seed, Purpose.REFERENCES, step)
    settings = self.settings
    return [
      (
        task_type,
        self._proposer.prompt(policy, task_type, self.buffers, rng),
      )
      for task_type in settings.task_types
      for _ in range(settings.prompts)
    ]

  def _tasks_to_solve(self, policy: Policy, step: int) -> list[Task | None]:
    """Returns B tasks per type, for proposals that yield no task.

    Draws tasks that were in the buffer before this step (section 3.3.2). With
    `solve_from="previous"`, tasks of the previous step come first. With
    `yoked_to`, the tasks are those of another run, and none is drawn.
    """
    if self.settings.yoked_to:
      return self._yoked_tasks(policy, step)
    rng = streams.generator(self.context.seed, Purpose.REVISITED, step)
    settings = self.settings
    tasks: list[Task | None] = []
    for task_type in settings.task_types:
      buffer = self.buffers[task_type]
      first: list[Task] = []
      if settings.solve_from == "previous":
        first = buffer.from_step(step - 1)[: settings.prompts]
      missing = settings.prompts - len(first)
      drawn = [*first, *buffer.revisit(rng, missing, before=step)]
      tasks += [*drawn, *[None] * (settings.prompts - len(drawn))]
    return tasks

  def _yoked_tasks(self, policy: Policy, step: int) -> list[Task | None]:
    """Returns the tasks that another run solved in a step, B per type."""
    settings, hosts = self.settings, self.context.hosts
    run = settings.yoked_to
    if step == 1:  # Notice a run that is too short before its last step.
      yoked.read(run, self.context.steps, hosts)
    tasks = yoked.read(run, step, hosts)
    for task_type, task in tasks:
      prompt = solver.solve_prompt(
        policy, task_type, task, self._prompt_builder
      )
      if not policy.fits(prompt):
        raise ValueError(
          f"config.azr.yoked_to={run!r}: a task of step {step} has a prompt of "
          f"{len(prompt.token_ids)} tokens: expected at most the largest of "
          "rollout.prompt_buckets"
        )
    return yoked.by_episode(tasks, settings.task_types, settings.prompts)

  def _instance_seed(self, step: int, index: int) -> int:
    """Returns the seed of the instances of an episode's environment."""
    rng = streams.generator(self.context.seed, Purpose.INSTANCES, step, index)
    return int(rng.integers(environments.MAX_SEED))

  def _add_tasks(self, episodes: Sequence[SelfPlayEpisode], step: int) -> None:
    """Adds the valid tasks of a step to the buffers.

    Steps that began before this one may have added the same task meanwhile.
    """
    for proposal in (episode.proposal for episode in episodes):
      if proposal.task is None:
        continue
      buffer = self.buffers[proposal.task_type]
      proposal.duplicate = buffer.has_equivalent(proposal.task)
      is_distinct = proposal.task_type in self.settings.distinct_types
      if proposal.duplicate and is_distinct:
        proposal.reject_duplicate()
      else:
        buffer.add(proposal.task, step)

  def _update_pass_rates(self, episodes: Sequence[SelfPlayEpisode]) -> None:
    """Updates the pass rates of buffered tasks with decided solutions."""
    for solution in [*_rollouts(episodes), *_solutions(episodes)]:
      if solution.outcome.is_undecided:
        continue
      buffer = self.buffers[solution.task_type]
      task = task_lib.buffered(solution.prompt.task)
      buffer.update(task, int(solution.correct), 1)

  def _batch(
    self, episodes: Sequence[SelfPlayEpisode], step: int
  ) -> types.RolloutBatch:
    """Returns the trajectories and metrics of a step."""
    settings, rules = self.settings, self.settings.rewards
    proposed: list[types.Trajectory] = []
    if PROPOSE in settings.roles:
      proposals = [episode.proposal for episode in episodes]
      proposed = trajectories.of_proposals(proposals, rules)
    solved = [trajectories.of_solution(s, rules) for s in _solutions(episodes)]
    step_metrics = self._metrics(episodes, step)
    step_metrics |= metrics.step_metrics([*proposed, *solved])
    if settings.train_on_learnability:
      solved += [
        trajectories.of_solution(s, rules) for s in _rollouts(episodes)
      ]
    by_role = {PROPOSE: proposed, SOLVE: solved}
    learned = [t for role in settings.roles for t in by_role[role]]
    return types.RolloutBatch(learned, step_metrics)

  def _metrics(
    self, episodes: Sequence[SelfPlayEpisode], step: int
  ) -> dict[str, float]:
    """Returns metrics of proposals, rollouts and buffers."""
    proposals = [episode.proposal for episode in episodes]
    step_metrics = metrics.response_metrics(PROPOSE, proposals)
    step_metrics |= metrics.response_metrics(
      "learnability", _rollouts(episodes)
    )
    step_metrics |= metrics.proposal_metrics(
      proposals,
      self.settings.learnability_samples,
      self.settings.proposer_reward,
    )
    for name, buffer in self.buffers.items():
      prefix = f"buffer/{self.name}/{name}"
      step_metrics[f"{prefix}/size"] = float(len(buffer))
      # Seeds never count as fresh.
      step_metrics[f"{prefix}/fresh_fraction"] = buffer.fraction_since(
        max(step - FRESH_STEPS, seeding.SEED_STEP) + 1
      )
    return step_metrics


def _environment_call_s(limits: ExecutorSettings) -> float:
  """Returns the CPU seconds of each call of a proposed environment.

  Calls share the time of their job.
  """
  job = environments.full_job()
  return float(f"{limits.limits(job).run_s / len(job.inputs):.2g}")


def _rollouts(episodes: Sequence[SelfPlayEpisode]) -> list[Solution]:
  """Returns a step's learnability rollouts, in episode order."""
  return [rollout for episode in episodes for rollout in episode.rollouts]


def _solutions(episodes: Sequence[SelfPlayEpisode]) -> list[Solution]:
  """Returns the solutions of a step, in episode order."""
  return [
    episode.solution for episode in episodes if episode.solution is not None
  ]
