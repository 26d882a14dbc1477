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
from azr_jax.systems.custom import judge
from azr_jax.systems.custom.judge import (
  Grades,
  Judge,
  JudgeServer,
  JudgeSettings,
)
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
  c: CustomSettings,
  columns: Iterable[str],
  given: Mapping[str, Function] | None = None,
) -> Rewards:
  """Starts the worker processes and loads the rewards.

  Args:
    c: section `custom`.
    columns: the names of the rows' columns.
    given: functions passed to `azr_jax.api`, by name.

  Raises:
    ValueError: a function cannot be loaded, or has a required parameter that
      the rows lack.
  """
  parts = parse(c.reward)
  judged = build_judge(c.judge, c.concurrency)
  functions = {
    part.name: _function(part, judged, given or {})
    for part in parts
    if c.where != EXECUTOR or part.spec == judge.NAME
  }
  pool = None
  if functions:
    pool = FunctionPool(
      list(functions.values()),
      c.workers,
      c.timeout_s,
      c.concurrency,
      c.memory_gib,
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


def build_judge(c: JudgeSettings, concurrency: int) -> Judge:
  """Builds a judge, which does not connect yet.

  Args:
    c: section `custom.judge`.
    concurrency: the maximum number of concurrent requests.
  """
  request: dict[str, Any] = {"model": c.model}
  grades = None
  if c.endpoint == judge.CHAT:
    request |= {"temperature": c.temperature, "max_tokens": c.max_tokens}
    grades = Grades(c.pattern, c.lowest, c.highest)
  server = JudgeServer(c.url, c.key_variable, c.timeout_s, c.retries)
  return Judge(server, c.template, request, grades, concurrency)


def build_curriculum(
  c: CustomSettings, rows: Sequence[Row]
) -> Curriculum | None:
  """Builds the curriculum over rows; None if epochs visit them in turn.

  Raises:
    ValueError: the rows lack `custom.bucket_column`.
  """
  if c.curriculum == EPOCHS:
    return None
  buckets = _buckets(c.bucket_column, rows)
  chosen: Curriculum
  if c.curriculum == ADAPTIVE:
    chosen = adaptive.Adaptive(buckets, **vars(c.adaptive))
  elif c.curriculum == BANDIT:
    chosen = bandit.Bandit(buckets, **vars(c.bandit))
  elif named.is_spec(c.curriculum):
    chosen = curriculum.make(c.curriculum, buckets)
  else:
    chosen = mixture.Mixture(buckets, mixture.proportional(buckets))
  if c.replay.fraction:
    chosen = replay.Replay(chosen, **vars(c.replay))
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
