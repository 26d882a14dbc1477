"""Metrics of the styles of a step's responses, by `train.style`.

| metric | value |
| --- | --- |
| `style/ROLE/NAME_fraction` | fraction of the role's responses in this style |
| `style/ROLE/NAME_reward` | their mean reward, before `shaping` |

A role is `solve`, or a task type and a role, such as `deduction/solve`. Counted
are the responses that are trained on. Styles with less than `MIN_FRACTION` of a
role's responses are joined as `others`. Responses for which the rule raises, or
returns no short text, are `failed`. If the rule hangs or ends its process, it
is not called again.
"""

import collections
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import numpy as np

from azr_jax import types
from azr_jax.evals import styles
from azr_jax.evals.styles import StyleRule
from azr_jax.functions.pool import RAISED, WRONG_TYPE, CallResult
from azr_jax.run import metrics

OTHERS, FAILED = "others", "failed"
MIN_FRACTION = 0.02
# Devices may be waiting, and one response that takes longer ends the rule.
_TIMEOUT_S = 3.0


class StyleMetrics:
  """Names styles with a rule until it hangs or ends its process."""

  def __init__(self, name: str, say: Callable[[str], None]):
    """Creates the metrics of a rule that `open` has not opened yet.

    Args:
      name: a rule, as in `evals/styles.py`; "" for none.
      say: prints a status line.
    """
    self._name, self._say = name, say
    self._rule: StyleRule | None = None
    self._failure: CallResult | None = None

  @classmethod
  @contextmanager
  def open(cls, name: str, say: Callable[[str], None]) -> Iterator[Self]:
    """Yields the metrics of a rule, whose process ends with the context.

    Args:
      name: as in the constructor.
      say: as in the constructor.
    """
    found = cls(name, say)
    with styles.open_rule(name, found._on_failure, _TIMEOUT_S) as rule:
      found._rule = rule
      yield found

  def of_step(
    self, step: int, trajectories: Sequence[types.Trajectory]
  ) -> dict[str, float]:
    """Returns the metrics of the module's table; {} without a rule.

    Args:
      step: the step, for messages.
      trajectories: the responses of the step, with unshaped rewards.
    """
    by_role = collections.defaultdict(list)
    if self._rule is not None:
      for trajectory in trajectories:
        by_role[metrics.role_of(trajectory) or "all"].append(trajectory)
    self._failure = None
    found: dict[str, float] = {}
    for role, members in by_role.items():
      names = self._names(role, members)
      if names is None:
        break
      found |= _metrics(f"style/{role}", names, [t.reward for t in members])
    if self._failure is not None:
      self._say(
        f"step {step}: train.style={self._name!r}: {self._failure.message}"
        + ("" if self._rule else "; it is not called again")
      )
    return found if self._rule else {}

  def _names(
    self, role: str, members: Sequence[types.Trajectory]
  ) -> list[str] | None:
    """Returns the style of each response; None if the rule was dropped."""
    names: list[str] = []
    for _, group in itertools.groupby(members, lambda t: t.prompt.text):
      if self._rule is None:
        return None
      names += self._rule(_record(role, [*group]))
    return None if self._rule is None else names

  def _on_failure(self, answer: CallResult) -> str:
    """Keeps a step's first failure, and drops a rule that hangs or dies."""
    self._failure = self._failure or answer
    if answer.failure not in (RAISED, WRONG_TYPE):
      self._rule, self._failure = None, answer
    return FAILED


def _metrics(
  prefix: str, names: Sequence[str], rewards: Sequence[float]
) -> dict[str, float]:
  """Returns fraction and mean reward of each style."""
  counts = collections.Counter(names)
  of_style = collections.defaultdict(list)
  for name, reward in zip(names, rewards, strict=True):
    is_rare = counts[name] < MIN_FRACTION * len(names)
    of_style[OTHERS if is_rare else metrics.plain_name(name)].append(reward)
  found = {}
  for name in sorted(of_style):
    found[f"{prefix}/{name}_fraction"] = len(of_style[name]) / len(names)
    found[f"{prefix}/{name}_reward"] = float(np.mean(of_style[name]))
  return found


def _record(
  role: str, responses: Sequence[types.Trajectory]
) -> dict[str, object]:
  """Returns what a rule reads of the responses to a prompt."""
  return {
    "id": role,
    "question": responses[0].prompt.text,
    "subset": role,
    "responses": [one.completion.text for one in responses],
    "num_tool_calls": [_num_outputs(one.completion) for one in responses],
  }


def _num_outputs(completion: types.Completion) -> int:
  """Returns the number of runs of tokens that the model did not write."""
  is_foreign = np.concatenate([[False], ~completion.loss_mask])
  return int(np.count_nonzero(np.diff(is_foreign.astype(np.int8)) == 1))
