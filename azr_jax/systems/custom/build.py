"""Builds the parts of the custom system from its config section."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from azr_jax.config import named
from azr_jax.config.settings import Invalid
from azr_jax.curricula import adaptive, bandit, curriculum, mixture, replay
from azr_jax.curricula.curriculum import Buckets, Curriculum
from azr_jax.functions import by_value
from azr_jax.functions.pool import FunctionPool
from azr_jax.functions.spec import Function
from azr_jax.systems.chat_server import ChatServer
from azr_jax.systems.custom import judge
from azr_jax.systems.custom.judge import Grades, Judge, JudgeSettings
from azr_jax.systems.custom.rewards import GIVEN, RewardPart, Rewards, parse
from azr_jax.systems.custom.settings import (
  ADAPTIVE,
  BANDIT,
  EPOCHS,
  EXECUTOR,
  CustomSettings,
)
from azr_jax.tasks.table.reading import Row


def build_rewards(
  settings: CustomSettings,
  columns: Iterable[str],
  given: Mapping[str, Function] | None = None,
) -> Rewards:
  """Starts the worker processes and loads the rewards.

  Args:
    settings: section `custom`.
    columns: the names of the rows' columns.
    given: functions passed to `azr_jax.api`, by name.

  Raises:
    ValueError: a function cannot be loaded, or has a required parameter that
      the rows lack.
  """
  parts = parse(settings.reward)
  judged = build_judge(settings.judge, settings.concurrency)
  functions = {
    part.name: _function(part, judged, given or {})
    for part in parts
    if settings.where != EXECUTOR or part.spec == judge.NAME
  }
  pool = None
  if functions:
    pool = FunctionPool(
      list(functions.values()),
      settings.workers,
      settings.timeout_s,
      settings.concurrency,
      settings.memory_gib,
    )
  return Rewards(parts, columns, pool, list(functions), judged.limit_s)


def _function(
  part: RewardPart, judged: Judge, given: Mapping[str, Function]
) -> Function:
  """Returns a reward as a `Function` for the process pool."""
  if part.spec == judge.NAME:
    return Function(part.name, data=by_value.dumps(judged))
  if not part.spec.startswith(GIVEN):
    return Function(part.name, part.spec)
  name = part.spec.removeprefix(GIVEN)
  if name not in given:
    raise Invalid(
      "reward",
      f": {part.spec!r} was passed to azr_jax.api: expected the same call",
    )
  return dataclasses.replace(given[name], name=part.name)


def build_judge(settings: JudgeSettings, concurrency: int) -> Judge:
  """Builds a judge, which does not connect yet.

  Args:
    settings: section `custom.judge`.
    concurrency: the maximum number of concurrent requests.
  """
  request: dict[str, Any] = {"model": settings.model}
  grades = None
  if settings.endpoint == judge.CHAT:
    request |= {
      "temperature": settings.temperature,
      "max_tokens": settings.max_tokens,
    }
    grades = Grades(settings.pattern, settings.lowest, settings.highest)
  server = ChatServer(
    settings.url, settings.key_variable, settings.timeout_s, settings.retries
  )
  return Judge(server, settings.template, request, grades, concurrency)


def build_curriculum(
  settings: CustomSettings, rows: Sequence[Row]
) -> Curriculum | None:
  """Builds the curriculum over rows; None if epochs visit them in turn.

  Raises:
    ValueError: the rows lack `custom.bucket_column`.
  """
  if settings.curriculum == EPOCHS:
    return None
  buckets = _buckets(settings.bucket_column, rows)
  chosen: Curriculum
  if settings.curriculum == ADAPTIVE:
    chosen = adaptive.Adaptive(buckets, **vars(settings.adaptive))
  elif settings.curriculum == BANDIT:
    chosen = bandit.Bandit(buckets, **vars(settings.bandit))
  elif named.is_spec(settings.curriculum):
    chosen = curriculum.make(settings.curriculum, buckets)
  else:
    chosen = mixture.Mixture(buckets, mixture.proportional(buckets))
  if settings.replay.fraction:
    chosen = replay.Replay(chosen, **vars(settings.replay))
  return chosen


def _buckets(column: str, rows: Sequence[Row]) -> Buckets:
  """Returns buckets of rows, by source or by the value of a column."""
  if not column:
    numbers = [row.source for row in rows]
    names = [f"source{number}" for number in range(max(numbers) + 1)]
    return Buckets(names, numbers)
  lacking = [i for i, row in enumerate(rows) if column not in row.columns]
  if lacking:
    raise ValueError(
      f"config.custom.bucket_column={column!r}: row {lacking[0] + 1} lacks it: "
      f"expected one of {list(rows[lacking[0]].columns)}"
    )
  values = [str(row.columns[column]) for row in rows]
  names = sorted({*values})
  return Buckets(names, [names.index(value) for value in values])
