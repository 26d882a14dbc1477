"""Converts the return values of reward functions to scores.

| return value | meaning |
| --- | --- |
| a number | the reward |
| `{"reward": 0.5, "length": 12}` | the reward; other keys are metrics |
| `{"reward": 0, "feedback": "..."}` | the reward, and a text for the teacher of
  distillation; so is `"reference"`, the right answer |
| `None` | the reward does not apply to this prompt, and counts as 0 |
| a list of these, or a dictionary of lists | one entry per response, for a
  function of `completions` |

Any other value is a failure of that call, and so are exceptions, NaN, numbers
above `MAX_REWARD`, timeouts and dead processes.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.evals import statistics
from azr_jax.functions.pool import WRONG_TYPE, CallResult
from azr_jax.systems.dynamic_sampling import Groups
from azr_jax.systems.groups import StepItems

WRONG_SHAPE, NOT_FINITE = "wrong_shape", "not_finite"
TOO_LARGE = "too_large"
# The largest accepted reward. The squares of a million advantages of this size
# sum to 1e36, which fits float32; gradients of larger ones would overflow.
MAX_REWARD = 1e15
# Metrics are limited to float32's range, so that float64 means stay finite.
_MAX_METRIC = float(np.finfo(np.float32).max)
_REWARD = "reward"
# Keys of texts.
_TEXTS = "feedback", "reference"
_EXPECTED = f"expected a number, or a dictionary with {_REWARD!r}"


@dataclasses.dataclass(frozen=True)
class Score:
  """The result of one reward function for one response.

  Attributes:
    value: the reward. None if it does not apply or the call failed.
    metrics: further numbers by name.
    feedback: what a teacher reads about the response; "" if nothing.
    reference: the right answer, for a teacher; "" if unknown.
    failure: the kind of failure; empty if the call succeeded.
    message: a one-line description of the failure.
  """

  value: float | None = None
  metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
  feedback: str = ""
  reference: str = ""
  failure: str = ""
  message: str = ""


@dataclasses.dataclass
class ScoredItems(StepItems):
  """The items of a step, with the scores of their responses.

  Attributes:
    scores: {prompt index: [[score for each reward] for each response]}.
  """

  scores: dict[int, list[list[Score]]] = dataclasses.field(default_factory=dict)

  def sampled(self, groups: Groups) -> list[list[Score]]:
    """Returns the scores of all responses in the sampled groups."""
    return [
      by_reward
      for group in groups.sampled
      for by_reward in self.scores[group.prompt_index]
    ]


def of_one(answer: CallResult) -> Score:
  """Returns the score from a function of one completion."""
  if answer.failure:
    return Score(failure=answer.failure, message=answer.message)
  return _score(answer.value)


def of_group(answer: CallResult, count: int) -> list[Score]:
  """Returns the scores from a function of `count` completions."""
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
  """Returns {name: list} as a list of {name: value}; None if lengths differ."""
  columns = list(values.values())
  if not columns or not all(isinstance(column, list) for column in columns):
    return None
  if len({len(column) for column in columns}) > 1:
    return None
  return [
    dict(zip(values, row, strict=True)) for row in zip(*columns, strict=True)
  ]


def _score(value: Any) -> Score:
  """Converts a return value for one completion to its score."""
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
  texts = {name: named.pop(name) for name in _TEXTS if name in named}
  for name, found in (texts | named).items():
    failure, expected = _failure(name, found)
    if failure:
      message = f"{name} is {found!r:.60}{expected}"
      return Score(failure=failure, message=message)
  numbers = {name: float(number) for name, number in named.items()}
  return Score(numbers.pop(_REWARD, None), numbers, **texts)


def _failure(name: str, number: Any) -> tuple[str, str]:
  """Returns the kind of failure of a value, and what was expected instead.

  Both are empty for a valid number, or a text where one belongs. Integers are
  compared before conversion, because `float(10**400)` raises OverflowError.
  """
  if name in _TEXTS:
    if isinstance(number, str):
      return "", ""
    return WRONG_TYPE, f" of type {type(number).__name__}: expected a text"
  if not isinstance(number, int | float):
    return WRONG_TYPE, f" of type {type(number).__name__}: {_EXPECTED}"
  if isinstance(number, float) and not math.isfinite(number):
    return NOT_FINITE, ": expected a finite number"
  largest = MAX_REWARD if name == _REWARD else _MAX_METRIC
  if abs(number) > largest:
    return TOO_LARGE, f": expected at most {largest:.3g} in size"
  return "", ""


def joined(texts: Iterable[str]) -> str:
  """Returns the texts of a response's rewards as one."""
  return "\n".join(filter(None, texts))


def total(scores: Sequence[Score], weights: Sequence[float]) -> float:
  """Returns the weighted sum of a response's rewards."""
  pairs = zip(scores, weights, strict=True)
  return float(sum((s.value or 0.0) * weight for s, weight in pairs))


def metrics(
  by_response: Sequence[Sequence[Score]], names: Sequence[str], system: str
) -> dict[str, float]:
  """Returns the mean and failures of each reward, and the means of its metrics.

  Args:
    by_response: [[score for each reward] for each response].
    names: the rewards' names.
    system: the part of the metric names after the family.
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
    groups: the responses to each prompt; at least one prompt.
    name: the first part of the score names.

  Returns:
    `NAME/reward`, and `NAME/reward_stderr` over prompts.
  """
  means = np.array([np.mean([t.reward for t in group]) for group in groups])
  return {
    f"{name}/reward": float(means.mean()),
    f"{name}/reward_stderr": statistics.standard_error(means),
  }


def report(
  say: Callable[[str], None],
  step: int,
  by_response: Sequence[Sequence[Score]],
  names: Sequence[str],
) -> None:
  """Prints the failures of a step.

  Args:
    say: prints a line.
    step: the step's number, for the message.
    by_response: [[score for each reward] for each response]; may be empty.
    names: the rewards' names.

  Raises:
    RuntimeError: a reward failed for all responses, so the step has no signal.
  """
  if not by_response:
    return
  broken = _broken(by_response, names)
  if broken:
    raise RuntimeError(f"step {step}: {broken}; the same command resumes")
  for line in _failures(by_response, names):
    say(f"step {step}: {line}")


def _failures(
  by_response: Sequence[Sequence[Score]], names: Sequence[str]
) -> list[str]:
  """Returns one line per reward and kind of failure."""
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
  """Describes a reward that failed for all responses; "" if none did."""
  for name, scores in zip(names, zip(*by_response, strict=True), strict=True):
    if all(score.failure for score in scores):
      return _failures([[score] for score in scores], [name])[0]
  return ""
