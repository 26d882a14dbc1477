"""Open-Reasoner-Zero: mathematical problems, with a binary reward.

The life of a step (`GroupSystem.collect`):
1. Take the next problems. Every epoch is shuffled differently, or a bandit
   chooses the source of each problem (`orz.curriculum`).
2. Sample several responses to each problem and compare their answers with the
   reference: the reward is 1 or 0. A problem whose responses are all right or
   all wrong may be replaced (`systems/dynamic_sampling.py`).
3. Every response becomes a trajectory. With `learner.estimator = "gae"` a
   critic estimates advantages; with `grpo` or `grpo_mean` the other responses
   to the problem are the baseline.

The state stores the last pass rate of each problem, from which
`azr_jax.select_problems` chooses hard problems for an annealing stage.

Paper: ORZ (arXiv 2503.24290). The learner trains on the sampled token ids; the
published code tokenizes the text again.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.curricula import bandit, passes
from azr_jax.curricula.curriculum import Buckets, SampledItem
from azr_jax.executor.child import libraries
from azr_jax.grading.mathematics import grader, reward
from azr_jax.grading.outcome import Explained, Outcome, of_answer
from azr_jax.learner import advantages
from azr_jax.rollout.policy import Policy
from azr_jax.systems import collect, dynamic_sampling, text_metrics
from azr_jax.systems import groups as groups_lib
from azr_jax.systems.dynamic_sampling import Groups
from azr_jax.systems.groups import GroupSystem, StepItems
from azr_jax.systems.orz.settings import BANDIT, ORZSettings
from azr_jax.systems.system import About, Context, SuggestedScoring
from azr_jax.tasks.mathematics import prompts, sources
from azr_jax.tasks.mathematics.problem import Problem
from azr_jax.tasks.templates import PromptFiles


class ORZ(GroupSystem[StepItems]):
  """The ORZ system. Its state is the last pass rate of each problem."""

  name = "orz"
  Settings = ORZSettings
  settings: ORZSettings

  def __init__(
    self,
    settings: ORZSettings,
    context: Context,
    by_source: Sequence[Sequence[Problem]],
  ):
    """Makes the system.

    Args:
      context: the resources of the run.
      by_source: the training problems of each source in `orz.data`.

    Raises:
      ValueError: there are fewer problems than a step needs.
    """
    super().__init__(settings, context)
    problems = list(itertools.chain(*by_source))
    if len(problems) < settings.prompts:
      raise ValueError(
        f"{len(problems)} problems: expected at least orz.prompts="
        f"{settings.prompts}"
      )
    self._problems = problems
    # Problem index -> (correct responses, responses).
    self._solved: dict[int, tuple[int, int]] = {}
    self._source_of = [i for i, part in enumerate(by_source) for _ in part]
    self._order = dynamic_sampling.EpochOrder(
      settings.prompts, settings.dynamic_sampling.max_prompts
    )
    self._bandit: bandit.Bandit | None = None
    if settings.curriculum == BANDIT:
      names = [f"source{index}" for index in range(len(by_source))]
      buckets = Buckets(names, self._source_of)
      self._bandit = bandit.Bandit(buckets, **vars(settings.bandit))

  @classmethod
  def build(cls, settings: ORZSettings, context: Context) -> "ORZ":
    """Reads the problems and makes the system."""
    if settings.grader == grader.LIBRARY:
      libraries.check((grader.LIBRARY,))
    return cls(settings, context, _sources(settings))

  @classmethod
  def prompt_files(cls, settings: ORZSettings) -> PromptFiles:
    """Returns the prompt of a problem."""
    del settings
    return prompts.FILES

  @classmethod
  def about(cls, settings: ORZSettings) -> About:
    """Returns facts about the system under these settings."""
    return dataclasses.replace(
      super().about(settings),
      paper=(
        "Open-Reasoner-Zero: An Open Source Approach to Scaling Up "
        "Reinforcement Learning on the Base Model",
        "https://arxiv.org/abs/2503.24290",
      ),
      metrics={
        "curriculum": "the bandit's probability and value of each source in "
        "orz.data: source0, source1, ...",
        "health": "truncated_fraction, repeat_score near 0; "
        "formatted_fraction near 1",
      },
      scoring=_scoring(settings),
    )

  @classmethod
  def pass_rates(
    cls, settings: ORZSettings, state: dict[str, Any]
  ) -> list[tuple[Problem, float]]:
    """Returns each problem that a run has sampled, with its last pass rate."""
    problems = list(itertools.chain(*_sources(settings)))
    return [
      (problems[index], num_correct / num_samples)
      for index, num_correct, num_samples in state["solved"]
    ]

  def state_dict(self) -> dict[str, Any]:
    """Returns the counts of each problem from the last step that sampled it."""
    state: dict[str, Any] = {
      "solved": [[index, *counts] for index, counts in self._solved.items()]
    }
    if self._bandit:
      state["bandit"] = self._bandit.state_dict()
    if self.settings.dynamic_sampling.is_enabled:
      state["order"] = self._order.state_dict()
    return state

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    self._solved = {
      index: (num_correct, num_samples)
      for index, num_correct, num_samples in state["solved"]
    }
    if self._bandit:
      self._bandit.load_state_dict(state["bandit"])
    self._order.load_state_dict(state.get("order", {}))

  def _sample_indices(self, sampler: bandit.Bandit, step: int) -> list[int]:
    """Draws all problem indices that a step may need from the bandit."""
    settings = self.settings
    rngs = dynamic_sampling.generators(
      settings.dynamic_sampling.max_prompts, self.context.seed, step
    )
    # Draw the first round last: the bandit's metrics describe its latest draw.
    rounds = [
      sampler.sample(step, settings.prompts, rng) for rng in reversed(rngs)
    ]
    return [item.index for items in reversed(rounds) for item in items]

  async def take(self, policy: Policy, step: int) -> StepItems:
    """Takes the next problems of the epoch, or draws them from the bandit."""
    if self._bandit:
      return StepItems(self._sample_indices(self._bandit, step))
    positions = self._order.take(step - 1)
    indices = passes.epoch_indices(
      self.context.seed, len(self._problems), positions
    )
    return StepItems(indices, positions)

  async def sample_group(
    self, policy: Policy, taken: StepItems, index: int
  ) -> list[types.Trajectory]:
    """Returns graded responses to a problem; [] if its prompt is too long."""
    settings, problem = self.settings, self._problems[taken.items[index]]
    text = prompts.solve_prompt(
      problem.question, self.context.prompt_format(settings.prompt_format)
    )
    prompt = policy.prompt(text, problem, problem.question)
    if not policy.fits(prompt):
      return []
    graded = await collect.sample_group(
      policy,
      prompt,
      index,
      settings.group_size,
      lambda completion: self._submit_grading(problem.answer, completion),
      jobs=self.context.jobs,
    )
    return [
      _trajectory(
        prompt,
        one.completion,
        self._explained(one.grade, one.completion),
        index,
      )
      for one in graded
    ]

  def observe(self, step: int, taken: StepItems, groups: Groups) -> None:
    """Records the pass rate of each problem and updates the bandit."""
    self._order.return_unused(taken.positions, groups)
    sampled = [group.trajectories for group in groups.sampled]
    indices = [taken.items[g.prompt_index] for g in groups.sampled]
    solved = [int(sum(t.reward for t in group)) for group in sampled]
    total = self.settings.group_size
    for index, correct in zip(indices, solved, strict=True):
      self._solved[index] = correct, total
    if self._bandit:
      items = [SampledItem(index, self._source_of[index]) for index in indices]
      rates = [correct / total for correct in solved]
      self._bandit.update(step, items, rates, collect.gains(sampled))

  def _submit_grading(
    self, reference: str, completion: types.Completion
  ) -> "Future[Outcome]":
    """Submits the comparison of a completion's answer with the reference."""
    settings, answer = self.settings, self._answer(completion)
    return self.context.jobs.submit(
      lambda executor: reward.submit(
        executor, reference, answer, settings.grader
      )
    )

  def _answer(self, completion: types.Completion) -> str | None:
    """Returns the answer to grade in a completion, or None."""
    return reward.find_answer(
      completion.text,
      completion.finish_reason,
      self.settings.truncated_grade,
    )

  def _explained(
    self, outcome: Outcome, completion: types.Completion
  ) -> Explained:
    return of_answer(outcome, self._answer(completion))

  def step_metrics(
    self, step: int, taken: StepItems, groups: Groups
  ) -> dict[str, float]:
    """Returns reward, length, text, curriculum and repetition metrics."""
    del step, taken
    settings, trajectories = (
      self.settings,
      groups_lib.trajectories(groups.sampled),
    )
    metrics = collect.solve_metrics(
      trajectories, "orz/solve", settings.group_size
    )
    metrics |= text_metrics.metrics(trajectories, "health/orz")
    if self._bandit:
      chosen = self._bandit.metrics().items()
      metrics |= {f"curriculum/{name}": value for name, value in chosen}
    return metrics | _repetition(trajectories)


def _scoring(settings: ORZSettings) -> SuggestedScoring:
  """Suggests the paper's benchmarks, or problems for compact prompts."""
  preset = ""
  if settings.truncated_grade == reward.INCORRECT:
    preset = "+published_code"
  if settings.prompt_format == "full":
    return SuggestedScoring(f"average16{preset}", "aime24,aime25,math500")
  return SuggestedScoring(f"problems_tiny{preset}", "problems")


def _sources(settings: ORZSettings) -> list[list[Problem]]:
  return sources.read_each(
    settings.data, settings.counts, settings.data_seed, settings.language
  )


def _trajectory(
  prompt: types.Prompt,
  completion: types.Completion,
  explained: Explained,
  index: int,
) -> types.Trajectory:
  outcome, said = explained
  is_formatted = prompts.well_formatted(completion.text)
  return types.Trajectory(
    prompt=prompt,
    completion=completion,
    reward=float(bool(outcome)),
    group_id=("solve", index),
    metrics={
      **collect.outcome_metrics(outcome),
      "formatted": float(is_formatted),
    },
    repetition_onset=text_metrics.repetition_onset(completion.token_ids),
    feedback=collect.feedback(outcome, is_formatted or bool(outcome), said),
    reference=prompt.task.answer,
  )


def _repetition(
  trajectories: Sequence[types.Trajectory],
) -> dict[str, float]:
  """Returns the fraction of repeated tokens and their mean GRPO advantage.

  The advantage is left out if no tokens repeat. The critic's counterpart is
  `critic/advantage_on_repetition` (ORZ, figure 5). Both are normalized over the
  tokens of the batch.
  """
  rewards = [t.reward for t in trajectories]
  lengths = np.array([len(t.completion.token_ids) for t in trajectories])
  repeated = np.array(
    [
      0 if t.repetition_onset is None else length - t.repetition_onset
      for t, length in zip(trajectories, lengths, strict=True)
    ]
  )
  metrics = {
    "health/orz/repeated_token_fraction": float(repeated.sum() / lengths.sum())
  }
  if repeated.any():
    groups = [t.group_id for t in trajectories]
    grpo = advantages.estimate(
      "grpo", rewards, groups, lengths.tolist(), normalize=True
    )
    metrics["health/orz/grpo_advantage_on_repetition"] = float(
      np.average(grpo, weights=repeated)
    )
  return metrics
