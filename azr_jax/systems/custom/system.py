"""A user's own rewards on a user's own data.

One step, as `GroupSystem.collect`:
1. it takes the next rows; every epoch has another order, or a curriculum
   chooses them (`sampling_order.py`);
2. it samples several responses to each prompt. Rewards run in processes of
   their own, or in the sandbox, while others are sampled (`rewards.py`); the
   reward of a response is their weighted sum. A prompt whose responses have one
   reward may be replaced by another one (`systems/dynamic_sampling.py`);
3. every response becomes a trajectory, whose baseline is the rest of its group.

A reward that fails is reported in a line and counted. A reward that fails for
all responses of a step ends the run, because nothing is learned from it.
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
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.event_loop import Awaited
from azr_jax.rollout.policy import Policy
from azr_jax.run import console
from azr_jax.systems import collect, text_metrics
from azr_jax.systems import groups as groups_lib
from azr_jax.systems import scores as scores_lib
from azr_jax.systems.custom import judge, sampling_order
from azr_jax.systems.custom.rewards import Rewards, parse
from azr_jax.systems.custom.sampling_order import SamplingOrder
from azr_jax.systems.custom.settings import DROP, EXECUTOR, CustomSettings
from azr_jax.systems.dynamic_sampling import Group, Groups
from azr_jax.systems.groups import GroupSystem
from azr_jax.systems.scores import Score, ScoredItems
from azr_jax.systems.system import About, Context
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.table import prompts, reading
from azr_jax.tasks.table.reading import Row

# The prefix of `data` that rows have which were passed to `azr_jax.api`.
GIVEN_DATA = "given:"
_NAME = "custom"
_SOLVE = f"{_NAME}/solve"
# The metric of trajectories with a failed reward.
_FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class Given:
  """Rows and functions that the caller of `azr_jax.api` passed.

  Attributes:
    rows: to train on; None: those of `custom.data`.
    eval_rows: to evaluate on; None: those of `custom.eval_data`.
    functions: by name.
  """

  rows: Sequence[Row] | None = None
  eval_rows: Sequence[Row] | None = None
  functions: Mapping[str, Function] = dataclasses.field(default_factory=dict)


class Custom(GroupSystem[ScoredItems]):
  """The system; its state is that of the order of prompts."""

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
      settings: how it prompts and samples.
      context: what the trainer gives.
      rows: to train on.
      eval_rows: to evaluate on; (): there are none.
      rewards: loaded.
    """
    super().__init__(settings, context)
    self._rows, self._eval_rows = list(rows), list(eval_rows)
    self._rewards = rewards
    self._order = SamplingOrder(settings, context, self._rows)
    self._digest = reading.digest(self._rows)
    self._jobs = _jobs(settings, context)

  @classmethod
  def build(cls, settings: CustomSettings, context: Context) -> Self:
    """Reads the rows, loads the rewards and makes the system.

    Raises:
      ValueError: there are fewer rows than a step needs, a prompt cannot be
        written, or a reward cannot be loaded.
    """
    cls.check_start(settings)
    try:
      rows, eval_rows = _read(settings, cls.given, context.seed)
      if len(rows) < settings.prompts:
        raise ValueError(
          f"config.{cls.name}.data: {len(rows)} rows to train on: expected at "
          f"least custom.prompts={settings.prompts}"
        )
      _check_prompts(rows, settings, context.tokenizer)
      columns = {name for row in (*rows, *eval_rows) for name in row.columns}
      rewards = Rewards(settings, columns, cls.given.functions)
    except Invalid as error:
      raise error.inside(f"config.{cls.name}") from None
    return cls(settings, context, rows, eval_rows, rewards)

  @classmethod
  def check_start(cls, settings: CustomSettings) -> None:
    """Refuses a run without data or rewards, before any device work."""
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
    """Returns what commands around the system need to know of it."""
    has_rows = cls.given.eval_rows is not None
    return dataclasses.replace(
      super().about(settings),
      metrics={
        "metric": "what rewards return besides, by the reward's name",
        "failed": "calls of rewards that failed, by the reward's name: 0",
        "curriculum": "probability of each bucket",
        "health": "truncated_fraction, repeat_score near 0",
      },
      has_evaluation=has_rows
      or bool(settings.eval_data or settings.eval_fraction),
      evaluation_keys=(f"{_NAME}.eval_data", f"{_NAME}.eval_fraction"),
    )

  def close(self) -> None:
    """Ends the processes of the rewards."""
    self._rewards.close()

  def state_dict(self) -> dict[str, Any]:
    """Returns the state of the order, and what identifies the data."""
    return {"order": self._order.state_dict(), "data": self._digest}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned.

    Raises:
      ValueError: the data have changed since.
    """
    if state["data"] != self._digest:
      raise ValueError(
        f"config.{_NAME}.data={self.settings.data!r}: its rows are not those "
        "that the run began with: expected the same rows, or another --workdir"
      )
    self._order.load_state_dict(state["order"])

  async def take(self, policy: Policy, step: int) -> ScoredItems:
    """Takes the next rows."""
    del policy
    return self._order.take(step)

  async def sample_group(
    self, policy: Policy, taken: ScoredItems, index: int
  ) -> list[types.Trajectory]:
    """Returns the graded responses to a row, whose scores `taken` keeps."""
    row = self._rows[sampling_order.row_of(taken.items[index])]
    prompt = policy.prompt(
      prompts.text(row, self.settings, self.context.tokenizer), row
    )
    if not policy.fits(prompt):
      return []
    trajectories, taken.scores[index] = await self._sample_group(
      policy, prompt, index
    )
    return trajectories

  def complete(self, groups: Groups) -> Groups:
    """Counts a response as incorrect if no reward says that it is correct."""
    return complete_grades(groups)

  def observe(self, step: int, taken: ScoredItems, groups: Groups) -> None:
    """Reports failures, and updates the order of rows."""
    scores_lib.report(
      self.context.hosts, step, taken.sampled(groups), self._rewards.names
    )
    self._order.update(step, taken, groups)

  def batch(
    self, step: int, taken: ScoredItems, groups: Groups
  ) -> list[types.Trajectory]:
    """Returns the trajectories to train on, perhaps without failed ones."""
    kept = super().batch(step, taken, groups)
    if self.settings.on_failure != DROP:
      return kept
    kept = [t for t in kept if not t.metrics[_FAILED]]
    if not kept:
      raise RuntimeError(
        f"step {step}: each response has a failed reward, and "
        f"custom.on_failure={DROP!r} leaves nothing to learn from"
      )
    return kept

  async def _sample_group(
    self,
    policy: Policy,
    prompt: types.Prompt,
    prompt_seed: int,
    n: int = 0,
    jobs: SharedJobs | None = None,
  ) -> tuple[list[types.Trajectory], list[list[Score]]]:
    """Returns graded responses to a prompt, and the scores of each.

    Args:
      policy: the policy to sample from.
      prompt: a prompt whose task is its row.
      prompt_seed: part of the random key.
      n: number of responses; 0: `group_size`.
      jobs: spread the rewards over hosts; None: the jobs of training.
    """
    jobs = jobs or self._jobs
    row: Row = prompt.task
    graded = await collect.sample_group(
      policy,
      prompt,
      prompt_seed,
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
          group_id=("solve", prompt_seed),
          metrics=self._trajectory_metrics(scores),
          repetition_onset=text_metrics.repetition_onset(
            one.completion.token_ids
          ),
        )
      )
    return trajectories, every

  def _trajectory_metrics(self, scores: Sequence[Score]) -> dict[str, float]:
    """Returns the rewards of a response by name, and `correct` if one says."""
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
    """Returns rewards, their parts, lengths and text metrics."""
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
    """Returns how long rewards were waited for, if they have own jobs."""
    if self._jobs is self.context.jobs:
      return {}
    metrics = self._jobs.metrics()
    return {
      "time/reward_wait": metrics["time/verification_wait"],
      "time/reward_early_fraction": metrics["time/verified_early_fraction"],
    }

  async def evaluate(
    self, policy: Policy, limit: int, samples: int
  ) -> dict[str, float]:
    """Returns mean rewards on the evaluation's rows; see `System.evaluate`."""
    rows = self._eval_rows[: limit or None]
    jobs = SharedJobs(self.context.executor, self.context.hosts)
    found = [
      policy.prompt(
        prompts.text(row, self.settings, self.context.tokenizer), row
      )
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
  """Returns groups whose responses all say whether they are correct.

  A response of which no reward says so is incorrect.

  Args:
    groups: of a step; where no response says so, they stay as they are.
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
    rewards: what graded them.
    too_long: prompts that were not sampled.

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
  """Returns the rows to train on, and those to evaluate on."""
  rows = given.rows
  if rows is None:
    if settings.data.startswith(GIVEN_DATA):
      raise Invalid(
        "data",
        f"={settings.data!r}: these rows were passed to azr_jax.api: expected "
        "the same call again",
      )
    rows = reading.read(settings)
  rows, eval_rows = reading.hold_out(rows, settings.eval_fraction, seed)
  if given.eval_rows is not None:
    return rows, given.eval_rows
  if settings.eval_data:
    return rows, reading.read(settings, settings.eval_data)
  return rows, eval_rows


def _check_prompts(
  rows: Sequence[Row], settings: CustomSettings, tokenizer: Tokenizer
) -> None:
  """Writes the first prompt, and reports what prompts leave out or change.

  Raises:
    ValueError: the first prompt cannot be written.
  """
  prompts.text(rows[0], settings, tokenizer)
  if prompts.is_chat(settings, tokenizer):
    Chat(tokenizer, settings.arguments, rows[0].prefill).check()
  count = reading.answers_left_out(rows, settings)
  if count:
    console.print_status(
      f"{count} of {len(rows)} rows end with the assistant's message, which is "
      f"left out; {_NAME}.continue_final_message=True continues it instead"
    )


def _jobs(settings: CustomSettings, context: Context) -> SharedJobs:
  """Returns the jobs that spread rewards over hosts.

  The trainer's jobs are taken after a fixed number of calls of the decode loop,
  because in its systems verdicts decide which prompts are sampled next. Where
  they decide nothing, a slow reward need not hold up decoding.
  """
  decides = settings.dynamic_sampling.is_enabled or (
    context.clock.delay_calls is not None
  )
  if decides or settings.where == EXECUTOR:
    return context.jobs
  return SharedJobs(None, context.hosts)
