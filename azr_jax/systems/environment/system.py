"""Environments of several turns, of one's own or of public kits.

One step, as `EnvironmentSystem.collect`:
1. it takes the next tasks; every epoch has another order;
2. it samples several episodes of each task: the model replies, the environment
   answers, until one of them is done (`conversations.py`). A task whose
   episodes have one reward may be replaced by another one
   (`systems/dynamic_sampling.py`);
3. every episode becomes a trajectory. Its reward is the sum over its turns, and
   the `loss_mask` of what the environment wrote is false.

The environment runs in processes of its own (`environments/`). An episode that
fails has the reward 0, is reported in a line and counted; if all of a step
fail, the run ends, because nothing is learned from it.
"""

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.curricula import passes
from azr_jax.environments.client import Episodes
from azr_jax.environments.server import EpisodeServer
from azr_jax.executor import futures
from azr_jax.functions.pool import Answer
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.tool_runner import split_responses
from azr_jax.systems import collect, dynamic_sampling, scores
from azr_jax.systems.environment.conversations import Conversations
from azr_jax.systems.environment.settings import EnvironmentSettings
from azr_jax.systems.environment.turns import TurnWriter
from azr_jax.systems.scores import Score
from azr_jax.systems.system import Context, StepLoad, System
from azr_jax.types import RolloutBatch

Task = Mapping[str, Any]
_NAME = "environment"
_SOLVE = f"{_NAME}/solve"
_ORDER = "order"
_FAILED = "failed"


class EnvironmentSystem(System):
  """The system; its state is the order of the tasks."""

  name = _NAME
  can_pause = True
  evaluation_keys = ("environment.evaluation_tasks",)
  Settings = EnvironmentSettings
  settings: EnvironmentSettings
  METRICS = {
    "turns": "replies of an episode: as many as the task needs",
    "metric": "what the environment counts besides, by name",
    "failed": "episodes that the environment failed to play: 0",
  }

  def __init__(
    self,
    settings: EnvironmentSettings,
    context: Context,
    episodes: Episodes,
    tasks: Sequence[Task],
    evaluation_tasks: Sequence[Task] = (),
  ):
    """Makes the system.

    Args:
      settings: its config section.
      context: the resources of the run.
      episodes: the processes that play.
      tasks: to train on.
      evaluation_tasks: of periodic evaluations.
    """
    super().__init__(settings, context)
    self._episodes = episodes
    self._tasks, self._evaluation_tasks = tasks, evaluation_tasks
    self._order = dynamic_sampling.EpochOrder(
      settings.prompts, settings.dynamic_sampling
    )
    self._writer = TurnWriter(
      context.tokenizer,
      settings.max_output_tokens,
      settings.system_prompt,
      settings,
    )
    self._conversations = self._make_conversations(context.clock)

  @classmethod
  def build(
    cls, settings: EnvironmentSettings, context: Context
  ) -> "EnvironmentSystem":
    """Loads the environment, and reads its tasks.

    Raises:
      ValueError: it cannot be loaded, or has too few tasks.
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
    """Refuses a run without an environment, before any device work."""
    if not settings.spec:
      raise Invalid(
        f"config.{_NAME}.spec", "='': expected an environment, as FILE.py:CLASS"
      )

  @classmethod
  def check(
    cls, settings: EnvironmentSettings, rollout: SamplerSettings
  ) -> None:
    """Refuses several turns without `rollout.extend_chunk`."""
    if settings.max_turns > 1 and not rollout.extend_chunk:
      raise Invalid(
        "rollout.extend_chunk",
        "=0: expected at least 1, because turns extend the slots",
      )

  @classmethod
  def step_load(cls, settings: EnvironmentSettings) -> StepLoad:
    """Returns the load of a step."""
    return StepLoad.of_groups(settings.prompts, settings.group_size)

  @classmethod
  def has_evaluation(cls, settings: EnvironmentSettings) -> bool:
    """Returns whether tasks are held out."""
    return bool(settings.evaluation_tasks)

  def close(self) -> None:
    """Ends the processes of the environment."""
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
    """Returns what plays episodes.

    Args:
      clock: of the event loop that they are sampled on; None: turns come when
        they are there.
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

  async def collect(self, policy: Policy, step: int) -> RolloutBatch:
    """Collects one step, as the module's docstring says."""
    settings = self.settings
    positions = self._order.take(step - 1)
    indices = passes.epoch_indices(
      (self.context.seed,), len(self._tasks), positions
    )
    indices = [*indices, *policy.partial.items]
    by_number: dict[int, list[Score]] = {}
    unplayed: list[Score] = []

    async def sample_group(number: int) -> list[types.Trajectory]:
      task = self._tasks[indices[number]]
      trajectories, graded = await self._play(
        policy,
        task,
        number,
        settings.group_size,
        self._conversations,
        self.context.jobs,
      )
      if trajectories:
        by_number[number] = graded
      else:
        unplayed.extend(graded)
      return trajectories

    try:
      groups = await dynamic_sampling.sample_groups(
        policy,
        settings.prompts,
        settings.dynamic_sampling,
        sample_group,
        indices,
      )
    except ValueError:
      if unplayed:  # No task began.
        self._report(step, unplayed)
      raise
    self._order.return_unused(positions, groups)
    sampled = list(itertools.chain(*(g.trajectories for g in groups.sampled)))
    graded = list(
      itertools.chain(*(by_number[group.number] for group in groups.sampled))
    )
    self._report(step, [*graded, *unplayed])
    metrics = self._metrics(sampled, graded, len(unplayed))
    metrics |= groups.metrics(_NAME)
    kept = itertools.chain(*(group.trajectories for group in groups.kept))
    return RolloutBatch(list(kept), metrics)

  async def _play(
    self,
    policy: Policy,
    task: Task,
    number: int,
    n: int,
    conversations: Conversations,
    jobs: SharedJobs,
  ) -> tuple[list[types.Trajectory], list[Score]]:
    """Returns n episodes of a task, with their scores.

    Args:
      policy: replies.
      task: of the environment.
      number: of the task in its step.
      n: episodes.
      conversations: play them.
      jobs: begin and end them.

    Returns:
      No trajectories if the prompt is too long, and then no scores, or if the
      environment failed to begin, and then that failure.
    """
    began: Answer = await Awaited(
      jobs.submit(lambda _: self._episodes.begin(task)), jobs
    )
    if began.failure:
      return [], [scores.of_one(began)]
    text = self._writer.prompt(began.value["messages"], began.value["tools"])
    prompt = policy.prompt(text, task)
    if not policy.fits(prompt):
      return [], []

    def grade(completion: types.Completion) -> "Future[Score]":
      return jobs.submit(
        lambda _: futures.then(conversations.finish(task, completion), _score)
      )

    graded = await collect.sample_group(
      policy, prompt, number, n, grade, jobs=jobs, tool_runner=conversations
    )
    trajectories = [
      _trajectory(prompt, one.completion, one.grade, number) for one in graded
    ]
    return trajectories, [one.grade for one in graded]

  def _report(self, step: int, graded: Sequence[Score]) -> None:
    by_response = [[score] for score in graded]
    scores.report(self.context.hosts, step, by_response, [_NAME])

  def _metrics(
    self,
    trajectories: Sequence[types.Trajectory],
    graded: Sequence[Score],
    unplayed: int,
  ) -> dict[str, float]:
    """Returns rewards, lengths, turns, and what the environment counts."""
    metrics = collect.solve_metrics(
      trajectories, _SOLVE, self.settings.group_size
    )
    turns = [t.metrics["turns"] for t in trajectories]
    metrics[f"turns/{_SOLVE}/mean"] = float(np.mean(turns))
    ended = [t.completion.finish_reason == "turns" for t in trajectories]
    metrics[f"turns/{_SOLVE}/limit_fraction"] = float(np.mean(ended))
    metrics[f"failed/{_NAME}/unplayed"] = float(unplayed)
    by_response = [[score] for score in graded]
    return metrics | scores.metrics(by_response, [_NAME], _NAME)

  async def evaluate(
    self, policy: Policy, limit: int, samples: int
  ) -> dict[str, float]:
    """Returns mean rewards of held-out tasks; see `System.evaluate`.

    They are played on another event loop than steps, by whose clock nothing
    would come before all of them have stopped decoding.
    """
    tasks = self._evaluation_tasks[: limit or None]
    conversations = self._make_conversations()
    jobs = SharedJobs(None, self.context.hosts)
    played = await policy.gather(
      self._play(policy, task, number, samples, conversations, jobs)
      for number, task in enumerate(tasks)
    )
    if tasks and not any(group or grades for group, grades in played):
      raise policy_lib.no_prompt_fits("the evaluation's tasks", policy)
    groups = [group for group, _ in played if group]
    found = {f"{_NAME}/items": float(len(groups))}
    if not groups:
      return found
    found |= scores.mean_reward(groups, _NAME)
    every = itertools.chain(*groups)
    turns = [t.metrics["turns"] for t in every]
    found[f"{_NAME}/turns"] = float(np.mean(turns))
    return found


def _score(answer: Answer) -> Score:
  """Returns the score of an episode's last turn."""
  if answer.failure:
    return scores.of_one(answer)
  value = {"reward": answer.value["reward"]}
  return scores.of_one(Answer(answer.value["metrics"] | value))


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
  )
