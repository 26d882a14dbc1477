"""Metrics of the styles of a step's responses, by `train.style`.

| metric | value |
| --- | --- |
| `style/ROLE/NAME_fraction` | responses of a role in this style, of all |
| `style/ROLE/NAME_reward` | their mean reward |

A role is `solve`, or a task type and a role, such as `deduction/solve`. Styles
beyond the `MAX_STYLES` most frequent ones of a role are joined as `others`.
"""

import collections
import itertools
import re
from collections.abc import Sequence

import numpy as np

from azr_jax import types
from azr_jax.evals.styles import StyleRule

# The style of a response for which the rule fails.
FAILED = "failed"
OTHERS = "others"
MAX_STYLES = 8
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")


def of_step(
  rule: StyleRule | None, trajectories: Sequence[types.Trajectory]
) -> dict[str, float]:
  """Returns the metrics of the module's table; {} without a rule.

  Args:
    rule: from `styles.open_rule`, with `FAILED` on failure.
    trajectories: the responses of a step.
  """
  if rule is None:
    return {}
  by_role = collections.defaultdict(list)
  for trajectory in trajectories:
    by_role[_role(trajectory)].append(trajectory)
  found: dict[str, float] = {}
  for role, members in by_role.items():
    of_prompts = itertools.groupby(members, key=lambda one: one.prompt.text)
    names = [
      _NOT_IN_NAMES.sub("_", name)
      for _, answers in of_prompts
      for name in rule(_record(role, [*answers]))
    ]
    counts = collections.Counter(names)
    kept = {name for name, _ in counts.most_common(MAX_STYLES)}
    rewards = collections.defaultdict(list)
    for name, trajectory in zip(names, members, strict=True):
      rewards[name if name in kept else OTHERS].append(trajectory.reward)
    for name in sorted(rewards):
      prefix = f"style/{role}/{name}"
      found[f"{prefix}_fraction"] = len(rewards[name]) / len(members)
      found[f"{prefix}_reward"] = float(np.mean(rewards[name]))
  return found


def _role(trajectory: types.Trajectory) -> str:
  """Returns the names in a trajectory's group, without numbers."""
  group = trajectory.group_id
  parts = group if isinstance(group, tuple) else (group,)
  names = [str(part) for part in parts if not isinstance(part, int)]
  return "/".join(names) or "all"


def _record(
  role: str, answers: Sequence[types.Trajectory]
) -> dict[str, object]:
  """Returns what a rule reads of the answers to a prompt."""
  return {
    "id": role,
    "question": answers[0].prompt.text,
    "subset": role,
    "responses": [one.prompt.begun(one.completion).text for one in answers],
    "num_tool_calls": [_num_outputs(one.completion) for one in answers],
  }


def _num_outputs(completion: types.Completion) -> int:
  """Returns the number of tool outputs: runs of tokens of somebody else."""
  is_foreign = np.concatenate([[False], ~completion.loss_mask])
  return int(np.count_nonzero(np.diff(is_foreign.astype(np.int8)) == 1))
