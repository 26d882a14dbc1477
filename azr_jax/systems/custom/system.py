"""Trains on user data with user-defined rewards.

The life of a step (`GroupSystem.collect`):
1. Take the next rows. Every epoch is shuffled differently, or a curriculum
   chooses the rows (`sampling_order.py`).
2. Sample several responses to each prompt. Rewards run in their own processes,
   or in the sandbox, while other responses are sampled (`rewards.py`). The
   reward of a response is their weighted sum. A prompt whose responses have
   equal rewards may be replaced (`systems/dynamic_sampling.py`).
3. Every response becomes a trajectory, whose baseline is the rest of its group.

Failed reward calls are printed and counted. If a reward fails for all responses
of a step, the run stops, because the step has no signal.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.functions.spec import Function
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Policy
from azr_jax.systems import collect, text_metrics
from azr_jax.systems import groups as groups_lib
from azr_jax.systems import scores as scores_lib
from azr_jax.systems.custom import judge, sampling_order
from azr_jax.systems.custom.build import build_curriculum, build_rewards
from azr_jax.systems.custom.rewards import Rewards, parse
from azr_jax.systems.custom.sampling_order import SamplingOrder
from azr_jax.systems.custom.settings import DROP, EXECUTOR, CustomSettings
from azr_jax.systems.dynamic_sampling import Group, Groups
from azr_jax.systems.groups import GroupSystem
from azr_jax.systems.scores import Score, ScoredItems
from azr_jax.systems.system import About, Context
from azr_jax.tasks.table import reading
from azr_jax.tasks.table.reading import Row

# Prefix of `data` for rows passed to `azr_jax.api`.
GIVEN_DATA = "given:"
_NAME = "custom"
_SOLVE = f"{_NAME}/solve"
# The metric of trajectories with a failed reward.
_FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class Given:
  """Rows and functions that the caller of `azr_jax.api` passed.

  Attributes:
    rows: training rows. None reads `custom.data`.
    eval_rows: evaluation rows. None reads `custom.eval_data`.
    functions: reward functions by name.
  """

  rows: Sequence[Row] | None = None
  eval_rows: Sequence[Row] | None = None
  functions: Mapping[str, Function] = dataclasses.field(default_factory=dict)


class Custom(GroupSystem[ScoredItems]):
  """The custom system. Its state is the sampling order of prompts."""

  name = _NAME
  Settings = CustomSettings
  settings: CustomSettings
  given: ClassVar[Given] = Given()

  def __init__(
    self,
    settings: CustomSettings,
    context: Context,
    rows: Sequence[Row],
    eval_rows: Sequence[Row],
    rewards: Rewards,
  ):
    """Makes the system.

    Args:
      context: the resources of the run.
      rows: the training rows.
      eval_rows: the evaluation rows; may be empty.
      rewards: the loaded rewards.
    """
    super().__init__(settings, context)
    self._rows, self._eval_rows = list(rows), list(eval_rows)
    self._rewards = rewards
    self._writer = settings.writer
    self._order = SamplingOrder(
      len(self._rows),
      settings.prompts,
      settings.dynamic_sampling.max_prompts,
      context.seed,
      build_curriculum(settings, self._rows),
    )
    self._digest = reading.digest(self._rows)
    self._jobs = _jobs(settings, context)

  @classmethod
  def build(cls, settings: CustomSettings, context: Context) -> Self:
    """Reads the rows, loads the rewards and makes the system.

    Raises:
      ValueError: there are fewer rows than a step needs, the first prompt
        cannot be rendered, or a reward cannot be loaded.
    """
    cls.check_start(settings)
    try:
      rows, eval_rows = _read(settings, cls.given, context.seed)
      if len(rows) < settings.prompts:
        raise ValueError(
          f"config.{cls.name}.data: {len(rows)} rows to train on: expected "
          f"at least {cls.name}.prompts={settings.prompts}, the prompts of a "
          "step"
        )
      _check_prompts(rows, settings, context)
      columns = {name for row in (*rows, *eval_rows) for name in row.columns}
      rewards = build_rewards(settings, columns, cls.given.functions)
    except Invalid as error:
      raise error.inside(f"config.{cls.name}") from None
    return cls(settings, context, rows, eval_rows, rewards)

  @classmethod
  def check_start(cls, settings: CustomSettings) -> None:
    """Rejects a run without data or rewards, before any device work."""
    if not settings.data:
      raise Invalid(
        f"config.{cls.name}.data", "='': expected a file of rows, or a source"
      )
    try:
      parts = parse(settings.reward)
      if any(part.spec == judge.NAME for part in parts):
        settings.judge.check_start()
    except Invalid as error:
      raise error.inside(f"config.{cls.name}") from None
    for part in parts:
      place, _, _ = part.spec.rpartition(":")
      if (
        place.endswith(".py") and not pathlib.Path(place).expanduser().is_file()
      ):
        raise Invalid(
          f"config.{cls.name}.reward",
          f"={settings.reward!r}: there is no file {place}",
        )

  @classmethod
  def about(cls, settings: CustomSettings) -> About:
    """Returns facts about the system under these settings."""
    has_rows = cls.given.eval_rows is not None
    return dataclasses.replace(
      super().about(settings),
      metrics={
        "metric": "further numbers that rewards return, by reward name",
        "failed": "failed reward calls, by reward name: 0",
        "curriculum": "probability of each bucket",
        "health": "truncated_fraction, repeat_score near 0",
      },
      has_evaluation=has_rows
      or bool(settings.eval_data or settings.eval_fraction),
      evaluation_keys=(f"{_NAME}.eval_data", f"{_NAME}.eval_fraction"),
    )

  def close(self) -> None:
    """Stops the reward processes."""
    self._rewards.close()

  def state_dict(self) -> dict[str, Any]:
    """Returns the state of the order, and a digest of the data."""
    return {"order": self._order.state_dict(), "data": self._digest}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned.

    Raises:
      ValueError: the data have changed since the state was saved.
    """
    if state["data"] != self._digest:
      raise ValueError(
        f"config.{_NAME}.data={self.settings.data!r}: its rows differ from "
        "the rows of this run: expected the same rows, or another --workdir"
      )
    self._order.load_state_dict(state["order"])

  async def take(self, policy: Policy, step: int) -> ScoredItems:
    """Takes the next rows of the sampling order."""
    del policy
    return self._order.take(step)

  async def sample_group(
    self, policy: Policy, taken: ScoredItems, index: int
  ) -> list[types.Trajectory]:
    """Returns graded responses to a row; stores their scores in `taken`."""
    row = self._rows[sampling_order.row_of(taken.items[index])]
    prompt = policy.prompt(
      self._writer.text(row, self.context.tokenizer), row, row.question
    )
    if not policy.fits(prompt):
      return []
    trajectories, taken.scores[index] = await self._sample_group(
      policy, prompt, index
    )
    return trajectories

  def complete(self, groups: Groups) -> Groups:
    """Marks responses without a `correct` metric as incorrect."""
    return complete_grades(groups)

  def observe(self, step: int, taken: ScoredItems, groups: Groups) -> None:
    """Reports failures and updates the sampling order."""
    scores_lib.report(
      self.context.say, step, taken.sampled(groups), self._rewards.names
    )
    self._order.update(step, taken, groups)

  def batch(
    self, step: int, taken: ScoredItems, groups: Groups
  ) -> list[types.Trajectory]:
    """Returns the trajectories to train on, per `custom.on_failure`."""
    kept = super().batch(step, taken, groups)
    if self.settings.on_failure != DROP:
      return kept
    kept = [t for t in kept if not t.metrics[_FAILED]]
    if not kept:
      raise RuntimeError(
        f"step {step}: every response has a failed reward, and "
        f"custom.on_failure={DROP!r} leaves nothing to train on"
      )
    return kept

  async def _sample_group(
    self,
    policy: Policy,
    prompt: types.Prompt,
    prompt_number: int,
    n: int = 0,
    jobs: SharedJobs | None = None,
  ) -> tuple[list[types.Trajectory], list[list[Score]]]:
    """Returns graded responses to a prompt, and the scores of each.

    Args:
      policy: the policy to sample from.
      prompt: a prompt whose task is its row.
      prompt_number: a part of the random key.
      n: the number of responses; 0 means `group_size`.
      jobs: distributes reward calls over hosts. None uses the training jobs.
    """
    jobs = jobs or self._jobs
    row: Row = prompt.task
    graded = await collect.sample_group(
      policy,
      prompt,
      prompt_number,
      n or self.settings.group_size,
      lambda completion: self._rewards.submit_one(jobs, row, completion),
      jobs=jobs,
    )
    completions = [one.completion for one in graded]
    of_group = await Awaited(
      self._rewards.submit_group(jobs, row, completions), jobs
    )
    trajectories, every = [], []
    for index, one in enumerate(graded):
      known = one.grade | {k: v[index] for k, v in of_group.items()}
      scores = [known[name] for name in self._rewards.names]
      every.append(scores)
      trajectories.append(
        types.Trajectory(
          prompt=prompt,
          completion=one.completion,
          reward=scores_lib.total(scores, self._rewards.weights),
          group_id=("solve", prompt_number),
          metrics=self._trajectory_metrics(scores),
          repetition_onset=text_metrics.repetition_onset(
            one.completion.token_ids
          ),
          feedback=scores_lib.joined(s.feedback for s in scores),
          reference=scores_lib.joined(s.reference for s in scores),
        )
      )
    return trajectories, every

  def _trajectory_metrics(self, scores: Sequence[Score]) -> dict[str, float]:
    """Returns a response's rewards by name, and `correct` if reported."""
    named = zip(self._rewards.names, scores, strict=True)
    found = {f"reward_{name}": s.value or 0.0 for name, s in named}
    found[_FAILED] = float(any(score.failure for score in scores))
    for score in scores:
      if collect.CORRECT in score.metrics:
        found[collect.CORRECT] = score.metrics[collect.CORRECT]
    return found

  def step_metrics(
    self, step: int, taken: ScoredItems, groups: Groups
  ) -> dict[str, float]:
    """Returns metrics of rewards, lengths, texts and the curriculum."""
    del step
    settings = self.settings
    trajectories = groups_lib.trajectories(groups.sampled)
    metrics = collect.solve_metrics(trajectories, _SOLVE, settings.group_size)
    metrics |= scores_lib.metrics(
      taken.sampled(groups), self._rewards.names, _NAME
    )
    metrics |= text_metrics.metrics(trajectories, f"health/{_NAME}")
    return metrics | self._order.metrics() | self._job_metrics()

  def _job_metrics(self) -> dict[str, float]:
    """Returns how long verdicts were waited for, if rewards have own jobs."""
    if self._jobs is self.context.jobs:
      return {}
    metrics = self._jobs.metrics()
    return {k: v for k, v in metrics.items() if k.startswith("time/")}

  async def evaluate(
    self, policy: Policy, limit: int, samples: int
  ) -> dict[str, float]:
    """Returns mean rewards on the evaluation rows; see `System.evaluate`."""
    rows = self._eval_rows[: limit or None]
    jobs = SharedJobs(self.context.executor, self.context.hosts)
    found = [
      policy.prompt(self._writer.text(row, self.context.tokenizer), row)
      for row in rows
    ]
    fitting = [
      (i, prompt) for i, prompt in enumerate(found) if policy.fits(prompt)
    ]
    if found and not fitting:
      raise policy_lib.no_prompt_fits("the evaluation's rows", policy)
    graded = await policy.gather(
      self._sample_group(policy, prompt, index, samples, jobs)
      for index, prompt in fitting
    )
    return evaluation_scores(graded, self._rewards, len(found) - len(fitting))


def complete_grades(groups: Groups) -> Groups:
  """Adds the metric `correct`, 0, to the responses that lack it.

  Args:
    groups: the groups of a step. Returned unchanged if no response has the
      metric.
  """
  sampled = itertools.chain(*(group.trajectories for group in groups.sampled))
  if not any(collect.CORRECT in t.metrics for t in sampled):
    return groups

  def complete(group: Group) -> Group:
    trajectories = [
      dataclasses.replace(
        t,
        metrics={
          **t.metrics,
          collect.CORRECT: t.metrics.get(collect.CORRECT, 0.0),
        },
      )
      for t in group.trajectories
    ]
    return dataclasses.replace(group, trajectories=trajectories)

  return dataclasses.replace(
    groups,
    by_batch_index=[[*map(complete, tried)] for tried in groups.by_batch_index],
  )


def evaluation_scores(
  graded: Sequence[tuple[list[types.Trajectory], list[list[Score]]]],
  rewards: Rewards,
  too_long: int,
) -> dict[str, float]:
  """Returns the scores of an evaluation.

  Args:
    graded: the responses to each prompt, with their scores.
    rewards: the rewards that graded them.
    too_long: the number of prompts that were too long to sample.

  Returns:
    The mean reward and its standard error over prompts, the means of each
    reward and of its metrics, mean tokens, and the number of items.
  """
  found = {f"{_NAME}/items": float(len(graded)), f"{_NAME}/too_long": too_long}
  if not graded:
    return found
  trajectories = list(itertools.chain(*(group for group, _ in graded)))
  every = list(itertools.chain(*(scores for _, scores in graded)))
  found |= scores_lib.mean_reward([group for group, _ in graded], _NAME)
  for name, value in scores_lib.metrics(every, rewards.names, _NAME).items():
    family, _, rest = name.partition("/")
    if name.endswith("/std") or (
      family == "failed" and "/fraction" not in name
    ):
      continue
    rest = rest.removeprefix(f"{_NAME}/").removesuffix("/mean")
    found[f"{_NAME}/{family}/{rest}"] = value
  found[f"{_NAME}/tokens"] = float(
    np.mean([t.completion.loss_mask.sum() for t in trajectories])
  )
  return found


def _read(
  settings: CustomSettings, given: Given, seed: int
) -> tuple[Sequence[Row], Sequence[Row]]:
  """Returns the training rows and the evaluation rows."""
  rows = given.rows
  if rows is None:
    if settings.data.startswith(GIVEN_DATA):
      raise Invalid(
        "data",
        f"={settings.data!r}: these rows were passed to azr_jax.api: expected "
        "the same call again",
      )
    rows = settings.reader.read(settings.data)
  rows, eval_rows = reading.hold_out(rows, settings.eval_fraction, seed)
  if given.eval_rows is not None:
    return rows, given.eval_rows
  if settings.eval_data:
    return rows, settings.reader.read(settings.eval_data)
  return rows, eval_rows


def _check_prompts(
  rows: Sequence[Row], settings: CustomSettings, context: Context
) -> None:
  """Renders the first prompt, and warns about messages that are left out.

  Raises:
    ValueError: the first prompt cannot be rendered.
  """
  settings.writer.text(rows[0], context.tokenizer)
  settings.writer.check(rows[0], context.tokenizer, context.say)
  count = settings.reader.answers_left_out(rows)
  if count:
    context.say(
      f"{count} of {len(rows)} rows end with the assistant's message, which is "
      f"left out; {_NAME}.continue_final_message=True continues it instead"
    )


def _jobs(settings: CustomSettings, context: Context) -> SharedJobs:
  """Returns the jobs that distribute rewards over hosts.

  The trainer's jobs deliver results after a fixed number of decode calls, which
  keeps runs reproducible when verdicts decide which prompts come next. If they
  do not, separate jobs keep a slow reward from holding up decoding.
  """
  decides = settings.dynamic_sampling.is_enabled or (
    context.clock.delay_calls is not None
  )
  if decides or settings.where == EXECUTOR:
    return context.jobs
  return SharedJobs(None, context.hosts)
