"""Trains on multi-turn environments, your own or from public libraries.

The life of a step (`GroupSystem.collect`):
1. Take the next tasks. Every epoch is shuffled differently.
2. Sample several episodes of each task: model and environment alternate until
   one of them ends the episode (`conversations.py`). A task whose episodes have
   equal rewards may be replaced (`systems/dynamic_sampling.py`).
3. Every episode becomes a trajectory. Its reward is the sum over its turns. The
   `loss_mask` of text from the environment is false.

The environment runs in its own processes (`environments/`). A failed episode
has reward 0, and is printed and counted. If all episodes of a step fail, the
run stops, because the step has no signal.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.curricula import passes
from azr_jax.environments.client import EnvironmentTask, Episodes
from azr_jax.environments.server import EpisodeServer
from azr_jax.executor import futures
from azr_jax.functions.pool import CallResult
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.tool_runner import split_responses
from azr_jax.systems import collect, dynamic_sampling, scores
from azr_jax.systems import groups as groups_lib
from azr_jax.systems.dynamic_sampling import Groups
from azr_jax.systems.environment.conversations import Conversations
from azr_jax.systems.environment.settings import EnvironmentSettings
from azr_jax.systems.environment.turns import TurnWriter
from azr_jax.systems.groups import GroupSystem
from azr_jax.systems.scores import Score, ScoredItems
from azr_jax.systems.system import About, Context

_NAME = "environment"
_SOLVE = f"{_NAME}/solve"
_ORDER = "order"
_FAILED = "failed"


class EnvironmentSystem(GroupSystem[ScoredItems]):
  """The environment system. Its state is the order of the tasks."""

  name = _NAME
  Settings = EnvironmentSettings
  settings: EnvironmentSettings

  def __init__(
    self,
    settings: EnvironmentSettings,
    context: Context,
    episodes: Episodes,
    tasks: Sequence[EnvironmentTask],
    evaluation_tasks: Sequence[EnvironmentTask] = (),
  ):
    """Makes the system.

    Args:
      context: the resources of the run.
      episodes: the environment's processes.
      tasks: the training tasks.
      evaluation_tasks: the tasks of periodic evaluations.
    """
    super().__init__(settings, context)
    self._episodes = episodes
    self._tasks, self._evaluation_tasks = tasks, evaluation_tasks
    self._order = dynamic_sampling.EpochOrder(
      settings.prompts, settings.dynamic_sampling.max_prompts
    )
    self._writer = TurnWriter(
      context.tokenizer,
      settings.max_output_tokens,
      settings.system_prompt,
      settings.arguments,
      settings.prefill,
      context.say,
    )
    self._conversations = self._make_conversations(context.clock)

  @classmethod
  def build(
    cls, settings: EnvironmentSettings, context: Context
  ) -> "EnvironmentSystem":
    """Loads the environment and reads its tasks.

    Raises:
      ValueError: the environment cannot be loaded or has too few tasks.
    """
    key = f"config.{_NAME}.spec={settings.spec!r}"
    held_out = settings.evaluation_tasks
    wanted = settings.tasks + held_out if settings.tasks else 0
    try:
      episodes = Episodes(
        EpisodeServer(settings.spec), settings.workers, settings.timeout_s
      )
    except ValueError as error:
      raise ValueError(f"{key}: {error}") from error
    try:
      tasks = episodes.tasks(wanted)
      if len(tasks) < settings.prompts + held_out:
        raise ValueError(
          f"{len(tasks)} tasks: expected at least {_NAME}.prompts + "
          f"{_NAME}.evaluation_tasks={settings.prompts + held_out}"
        )
    except ValueError as error:
      episodes.close()
      raise ValueError(f"{key}: {error}") from error
    count = len(tasks) - held_out
    return cls(settings, context, episodes, tasks[:count], tasks[count:])

  @classmethod
  def check_start(cls, settings: EnvironmentSettings) -> None:
    """Rejects a run without an environment, before any device work."""
    if not settings.spec:
      raise Invalid(
        f"config.{_NAME}.spec", "='': expected an environment, as FILE.py:CLASS"
      )

  @classmethod
  def check(
    cls, settings: EnvironmentSettings, rollout: SamplerSettings
  ) -> None:
    """Rejects multiple turns without `rollout.extend_chunk`."""
    if settings.max_turns > 1 and not rollout.extend_chunk:
      raise Invalid(
        "rollout.extend_chunk",
        "=0: expected at least 1, because turns extend the slots",
      )

  @classmethod
  def about(cls, settings: EnvironmentSettings) -> About:
    """Returns facts about the system under these settings."""
    return dataclasses.replace(
      super().about(settings),
      metrics={
        "turns": "replies per episode: as many as the task needs",
        "metric": "further numbers that the environment reports, by name",
        "failed": "episodes in which the environment failed: 0",
      },
      has_evaluation=bool(settings.evaluation_tasks),
      evaluation_keys=(f"{_NAME}.evaluation_tasks",),
    )

  def close(self) -> None:
    """Stops the environment's processes."""
    self._episodes.close()

  def state_dict(self) -> dict[str, Any]:
    """Returns the state of the order of tasks."""
    return {_ORDER: self._order.state_dict()}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    self._order.load_state_dict(state[_ORDER])

  def _make_conversations(
    self, clock: DecodeClock | None = None
  ) -> Conversations:
    """Returns the tool runner of episodes.

    Args:
      clock: the decode clock of the sampling event loop. None takes turns as
        soon as they arrive.
    """
    context = self.context
    return Conversations(
      self._episodes,
      self._writer,
      context.tokenizer,
      SharedJobs(None, context.hosts, clock),
      self.settings.max_turns,
      self.settings.prefill,
    )

  async def take(self, policy: Policy, step: int) -> ScoredItems:
    """Takes the next tasks of the epochs."""
    del policy
    positions = self._order.take(step - 1)
    indices = passes.epoch_indices(
      self.context.seed, len(self._tasks), positions
    )
    return ScoredItems(indices, positions)

  async def sample_group(
    self, policy: Policy, taken: ScoredItems, index: int
  ) -> list[types.Trajectory]:
    """Returns the episodes of a task; stores their scores in `taken`."""
    trajectories, found = await self._run_episodes(
      policy,
      self._tasks[taken.items[index]],
      index,
      self.settings.group_size,
      self._conversations,
      self.context.jobs,
    )
    taken.scores[index] = [[score] for score in found]
    return trajectories

  def observe(self, step: int, taken: ScoredItems, groups: Groups) -> None:
    """Puts unused tasks back into the order and reports failures."""
    self._order.return_unused(taken.positions, groups)
    every = [*taken.sampled(groups), *_failed_to_start(taken, groups)]
    scores.report(self.context.say, step, every, [_NAME])

  async def _run_episodes(
    self,
    policy: Policy,
    task: EnvironmentTask,
    prompt_number: int,
    n: int,
    conversations: Conversations,
    jobs: SharedJobs,
  ) -> tuple[list[types.Trajectory], list[Score]]:
    """Runs n episodes of a task.

    Args:
      policy: the policy that replies.
      task: a task of the environment.
      prompt_number: a part of the random key.
      n: the number of episodes.
      conversations: the tool runner between replies.
      jobs: starts and grades the episodes.

    Returns:
      The trajectories and their scores. Both are empty if the prompt is too
      long. If the environment fails to start, there is no trajectory, and the
      only score is the failure.
    """
    began: CallResult = await Awaited(
      jobs.submit(lambda _: self._episodes.begin(task)), jobs
    )
    if began.failure:
      return [], [scores.of_one(began)]
    text = self._writer.prompt(began.value["messages"], began.value["tools"])
    asked = str(began.value["messages"][-1]["content"])
    prompt = policy.prompt(text, task, asked)
    if not policy.fits(prompt):
      return [], []

    def grade(completion: types.Completion) -> "Future[Score]":
      return jobs.submit(
        lambda _: futures.then(conversations.finish(task, completion), _score)
      )

    graded = await collect.sample_group(
      policy,
      prompt,
      prompt_number,
      n,
      grade,
      jobs=jobs,
      tool_runner=conversations,
    )
    trajectories = [
      _trajectory(prompt, one.completion, one.grade, prompt_number)
      for one in graded
    ]
    return trajectories, [one.grade for one in graded]

  def step_metrics(
    self, step: int, taken: ScoredItems, groups: Groups
  ) -> dict[str, float]:
    """Returns metrics of rewards, lengths, turns and the environment."""
    del step
    trajectories = groups_lib.trajectories(groups.sampled)
    metrics = collect.solve_metrics(
      trajectories, _SOLVE, self.settings.group_size
    )
    turns = [t.metrics["turns"] for t in trajectories]
    metrics[f"turns/{_SOLVE}/mean"] = float(np.mean(turns))
    ended = [t.completion.finish_reason == "turns" for t in trajectories]
    metrics[f"turns/{_SOLVE}/limit_fraction"] = float(np.mean(ended))
    failures = _failed_to_start(taken, groups)
    metrics[f"failed/{_NAME}/not_started"] = float(len(failures))
    return metrics | scores.metrics(taken.sampled(groups), [_NAME], _NAME)

  async def evaluate(
    self, policy: Policy, limit: int, samples: int
  ) -> dict[str, float]:
    """Returns mean rewards on held-out tasks; see `System.evaluate`.

    Evaluations have their own event loop, so they do not use the decode clock
    of steps: no turn would arrive until all episodes had stopped decoding.
    """
    tasks = self._evaluation_tasks[: limit or None]
    conversations = self._make_conversations()
    jobs = SharedJobs(None, self.context.hosts)
    results = await policy.gather(
      self._run_episodes(policy, task, number, samples, conversations, jobs)
      for number, task in enumerate(tasks)
    )
    if tasks and not any(group or grades for group, grades in results):
      raise policy_lib.no_prompt_fits("the evaluation's tasks", policy)
    groups = [group for group, _ in results if group]
    found = {f"{_NAME}/items": float(len(groups))}
    if not groups:
      return found
    found |= scores.mean_reward(groups, _NAME)
    every = itertools.chain(*groups)
    turns = [t.metrics["turns"] for t in every]
    found[f"{_NAME}/turns"] = float(np.mean(turns))
    return found


def _failed_to_start(taken: ScoredItems, groups: Groups) -> list[list[Score]]:
  """Returns the failures of tasks that the environment failed to start."""
  return [
    score
    for group in groups.tried
    if not group.trajectories
    for score in taken.scores.get(group.prompt_index, ())
  ]


def _score(answer: CallResult) -> Score:
  """Returns the score of an episode's last turn."""
  if answer.failure:
    return scores.of_one(answer)
  # What the last turn would have shown the model.
  said = (str(message["content"]) for message in answer.value["messages"])
  value = {"reward": answer.value["reward"], "feedback": scores.joined(said)}
  return scores.of_one(CallResult(answer.value["metrics"] | value))


def _trajectory(
  prompt: types.Prompt, completion: types.Completion, score: Score, group: int
) -> types.Trajectory:
  responses = split_responses(
    completion.token_ids.tolist(), completion.loss_mask.tolist()
  )
  metrics = {
    "turns": float(len(responses)),
    _FAILED: float(bool(score.failure)),
  }
  if collect.CORRECT in score.metrics:
    metrics[collect.CORRECT] = score.metrics[collect.CORRECT]
  return types.Trajectory(
    prompt=prompt,
    completion=completion,
    reward=score.value or 0.0,
    group_id=("solve", group),
    metrics=metrics,
    feedback=score.feedback,
  )
