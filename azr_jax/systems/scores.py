"""What rewards return, and what becomes of a response's rewards.

| a function returns | its reward is |
| --- | --- |
| a number | the number |
| `{"reward": 0.5, "length": 12}` | the number; the others are metrics |
| `None` | none: it does not apply to this prompt, and counts as 0 |
| a list of these, or a dictionary of lists | that of each response, for a
  function of `completions` |

Anything else is a failure of that call, and so are exceptions, NaN, numbers
above `MAX_REWARD`, timeouts and dead processes.
"""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.evals import statistics
from azr_jax.functions.pool import WRONG_TYPE, CallResult
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import console
from azr_jax.systems.dynamic_sampling import Groups
from azr_jax.systems.groups import StepItems

WRONG_SHAPE, NOT_FINITE = "wrong_shape", "not_finite"
TOO_LARGE = "too_large"
# The largest reward. The squares of a million advantages of this size sum to
# 1e36, which float32 holds; gradients of larger ones would overflow.
MAX_REWARD = 1e15
# The largest metric is that of float32, so that means in float64 are finite.
_MAX_METRIC = float(np.finfo(np.float32).max)
_REWARD = "reward"
_EXPECTED = f"expected a number, or a dictionary with {_REWARD!r}"


@dataclasses.dataclass(frozen=True)
class Score:
  """What one reward gives to one response.

  Attributes:
    value: the reward; None: it does not apply, or it failed.
    metrics: further numbers by name.
    failure: the kind of failure; "": there was none.
    message: of a failure, one line.
  """

  value: float | None = None
  metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
  failure: str = ""
  message: str = ""


@dataclasses.dataclass
class ScoredItems(StepItems):
  """The items of a step, with the scores of their responses.

  Attributes:
    scores: for each prompt index, the scores of each response by each reward.
  """

  scores: dict[int, list[list[Score]]] = dataclasses.field(default_factory=dict)

  def sampled(self, groups: Groups) -> list[list[Score]]:
    """Returns the scores of all responses of sampled groups."""
    return [
      by_reward
      for group in groups.sampled
      for by_reward in self.scores[group.prompt_index]
    ]


def of_one(answer: CallResult) -> Score:
  """Returns the score by a function of one completion."""
  if answer.failure:
    return Score(failure=answer.failure, message=answer.message)
  return _score(answer.value)


def of_group(answer: CallResult, count: int) -> list[Score]:
  """Returns the scores by a function of `count` completions."""
  if answer.failure:
    return [Score(failure=answer.failure, message=answer.message)] * count
  values = answer.value
  if isinstance(values, Mapping):
    values = _by_response(values)
  if not isinstance(values, Sequence) or isinstance(values, str):
    message = f"returned {answer.value!r:.60}: expected a list of {count}"
    return [Score(failure=WRONG_SHAPE, message=message)] * count
  if len(values) != count:
    message = f"returned {len(values)} values for {count} completions"
    return [Score(failure=WRONG_SHAPE, message=message)] * count
  return [_score(value) for value in values]


def _by_response(values: Mapping[str, Any]) -> list[dict[str, Any]] | None:
  """Returns {name: list} as a list of {name: value}; None: lengths differ."""
  columns = list(values.values())
  if not columns or not all(isinstance(column, list) for column in columns):
    return None
  if len({len(column) for column in columns}) > 1:
    return None
  return [
    dict(zip(values, row, strict=True)) for row in zip(*columns, strict=True)
  ]


def _score(value: Any) -> Score:
  """Returns the score of a returned value."""
  if value is None:
    return Score()
  named: dict[str, Any] = {_REWARD: value}
  if isinstance(value, Mapping):
    named = {str(k): v for k, v in value.items() if v is not None}
    if _REWARD not in value:
      message = f"returned {sorted(named)}: {_EXPECTED}"
      return Score(failure=WRONG_TYPE, message=message)
  if isinstance(named.get(_REWARD), list):
    message = f"returned a list of {len(named[_REWARD])}: {_EXPECTED}"
    return Score(failure=WRONG_SHAPE, message=message)
  for name, number in named.items():
    failure, expected = _failure(name, number)
    if failure:
      message = f"{name} is {number!r:.60}{expected}"
      return Score(failure=failure, message=message)
  numbers = {name: float(number) for name, number in named.items()}
  return Score(numbers.pop(_REWARD, None), numbers)


def _failure(name: str, number: Any) -> tuple[str, str]:
  """Returns the kind of failure of a number, and what was expected instead.

  Both are "" for a number that can be used. An integer is compared before it
  becomes a float, because `float(10**400)` raises OverflowError.
  """
  if not isinstance(number, int | float):
    return WRONG_TYPE, f" of type {type(number).__name__}: {_EXPECTED}"
  if isinstance(number, float) and not math.isfinite(number):
    return NOT_FINITE, ": expected a finite number"
  largest = MAX_REWARD if name == _REWARD else _MAX_METRIC
  if abs(number) > largest:
    return TOO_LARGE, f": expected at most {largest:.3g} in size"
  return "", ""


def total(scores: Sequence[Score], weights: Sequence[float]) -> float:
  """Returns the weighted sum of a response's rewards."""
  pairs = zip(scores, weights, strict=True)
  return float(sum((s.value or 0.0) * weight for s, weight in pairs))


def metrics(
  by_response: Sequence[Sequence[Score]], names: Sequence[str], system: str
) -> dict[str, float]:
  """Returns means and failures of each reward, and means of its metrics.

  Args:
    by_response: for each response, the score by each reward.
    names: of the rewards.
    system: the part of the metrics' names after the family.
  """
  values: dict[str, float] = {}
  for name, scores in zip(names, zip(*by_response, strict=True), strict=True):
    known = [score.value for score in scores if score.value is not None]
    if known:
      values[f"reward/{system}/{name}/mean"] = float(np.mean(known))
      values[f"reward/{system}/{name}/std"] = float(np.std(known))
    failures = collections.Counter(s.failure for s in scores if s.failure)
    values[f"failed/{name}/fraction"] = failures.total() / len(scores)
    for kind, count in sorted(failures.items()):
      values[f"failed/{name}/{kind}"] = float(count)
    found: dict[str, list[float]] = collections.defaultdict(list)
    for score in scores:
      for key, number in score.metrics.items():
        found[key].append(number)
    for key, numbers in found.items():
      values[f"metric/{name}/{key}"] = float(np.mean(numbers))
  return values


def mean_reward(
  groups: Sequence[Sequence[types.Trajectory]], name: str
) -> dict[str, float]:
  """Returns the mean reward of an evaluation, with its standard error.

  Args:
    groups: the responses to each prompt, at least one of them.
    name: the part of the scores' names before the family.

  Returns:
    `NAME/reward`, and `NAME/reward_stderr` over prompts.
  """
  means = np.array([np.mean([t.reward for t in group]) for group in groups])
  return {
    f"{name}/reward": float(means.mean()),
    f"{name}/reward_stderr": statistics.standard_error(means),
  }


def report(
  hosts: Hosts,
  step: int,
  by_response: Sequence[Sequence[Score]],
  names: Sequence[str],
) -> None:
  """Prints the failures of a step, on the primary host.

  Args:
    hosts: the processes of the run.
    step: the step.
    by_response: for each response, the score by each reward; may be empty.
    names: names of the rewards.

  Raises:
    RuntimeError: a reward failed for all responses, so that nothing is learned.
  """
  if not by_response:
    return
  broken = _broken(by_response, names)
  if broken:
    raise RuntimeError(f"step {step}: {broken}; the same command resumes")
  if hosts.is_primary:
    for line in _failures(by_response, names):
      console.print_status(f"step {step}: {line}")


def _failures(
  by_response: Sequence[Sequence[Score]], names: Sequence[str]
) -> list[str]:
  """Returns a line for each reward and kind of failure."""
  lines = []
  for name, scores in zip(names, zip(*by_response, strict=True), strict=True):
    by_kind: dict[str, list[str]] = collections.defaultdict(list)
    for score in scores:
      if score.failure:
        by_kind[score.failure].append(score.message)
    for kind, messages in sorted(by_kind.items()):
      lines.append(
        f"reward {name} failed ({kind}) for {len(messages)} of {len(scores)} "
        f"responses: {messages[0]}"
      )
  return lines


def _broken(
  by_response: Sequence[Sequence[Score]], names: Sequence[str]
) -> str:
  """Returns the failures of a reward that failed for all; "": none did."""
  for name, scores in zip(names, zip(*by_response, strict=True), strict=True):
    if all(score.failure for score in scores):
      return _failures([[score] for score in scores], [name])[0]
  return ""
