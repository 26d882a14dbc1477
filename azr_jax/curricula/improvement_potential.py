"""Improvement potential of questions (R1-CI, section 3.3).

A question with pass rate p has potential 4 p (1 - p): the variance of the
reward, which bounds the gradient, scaled to 1 at p = 1/2. Questions are sorted
into four groups by potential, and training proceeds in stages that add or
replace groups.

| curriculum | groups are made by | questions of stage s |
| --- | --- | --- |
| `potential` | potential, highest first | groups 1 to s |
| `potential_alone` | potential, highest first | group s |
| `online_merge` | potential, estimated before each stage | groups 1 to s |
| `online_unmerge` | potential, estimated before each stage | group s |
| `difficulty` | pass rate, highest first | groups 1 to s |
| `none` | one group | all |

If a stage has fewer questions than a step needs, it also uses other groups, in
ascending order of their numbers.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose

ONLINE = ("online_merge", "online_unmerge")
_ONE_GROUP_PER_STAGE = ("potential_alone", "online_unmerge")
# Curricula whose pass rates are estimated before training.
OFFLINE = ("potential", "potential_alone", "difficulty")
CURRICULA = ("potential", "potential_alone", *ONLINE, "difficulty", "none")
GROUPINGS = ("thresholds", "quantiles")
STAGES = 4
# The groups that figure 14 trains on alone.
EQUAL_GROUPS = (1, 2, 3)
# Minimum potential of groups 1 to 3, in percent; the rest is in group 4.
THRESHOLDS = (64, 48, 32)


@dataclasses.dataclass(frozen=True)
class PassRate:
  """Number of correct responses to a question.

  Attributes:
    num_correct: number of correct responses.
    num_samples: number of responses, at least 1.
  """

  num_correct: int
  num_samples: int

  @property
  def rate(self) -> float:
    """The fraction of correct responses."""
    return self.num_correct / self.num_samples

  @property
  def potential(self) -> float:
    """The improvement potential, 4 p (1 - p)."""
    return 4.0 * self.rate * (1.0 - self.rate)


def group_by_thresholds(pass_rates: Sequence[PassRate]) -> list[int]:
  """Returns each question's group, 1 to 4, by the paper's thresholds.

  Compares integers, because 4 or 16 correct responses of 20 have a potential
  of exactly 0.64, which floating point would miss.
  """
  groups = []
  for rate in pass_rates:
    correct, samples = rate.num_correct, rate.num_samples
    percent = 400 * correct * (samples - correct)
    passed = sum(percent >= t * samples**2 for t in THRESHOLDS)
    groups.append(STAGES - passed)
  return groups


def group_by_quantiles(keys: Sequence[float], seed: int) -> list[int]:
  """Returns each question's group, in four groups of equal size.

  Args:
    keys: the sort key of each question; group 1 has the largest keys.
    seed: breaks ties randomly.
  """
  shuffled = streams.generator(seed, Purpose.TIES).permutation(len(keys))
  order = shuffled[np.argsort(-np.asarray(keys)[shuffled], kind="stable")]
  groups = np.empty(len(keys), int)
  groups[order] = 1 + np.arange(len(keys)) * STAGES // max(len(keys), 1)
  return groups.tolist()


def equal_group(
  pass_rates: Sequence[PassRate],
  tasks: Sequence[str],
  group: int,
  seed: int,
) -> list[int]:
  """Returns the indices of one of three groups of equal size (figure 14).

  The groups are 1 to 3 of the paper's thresholds. Each has the same number of
  questions of each task: as many as the smallest of the three has.

  Args:
    pass_rates: the pass rate of each question.
    tasks: the task of each question.
    group: 1 to 3.
    seed: chooses among a task's questions.
  """
  groups = group_by_thresholds(pass_rates)
  rng = streams.generator(seed, Purpose.EQUAL_GROUPS, group)
  chosen: list[int] = []
  for task in sorted({*tasks}):
    of_task = [
      [i for i, at in enumerate(groups) if at == one and tasks[i] == task]
      for one in EQUAL_GROUPS
    ]
    size = min(map(len, of_task))
    members = of_task[EQUAL_GROUPS.index(group)]
    chosen += rng.permutation(members)[:size].tolist()
  return sorted(chosen)


def make_groups(
  pass_rates: Sequence[PassRate], curriculum: str, grouping: str, seed: int
) -> list[int]:
  """Returns each question's group, 1 to 4; stage g introduces group g.

  Args:
    pass_rates: the pass rate of each question.
    curriculum: one of `CURRICULA`.
    grouping: one of `GROUPINGS`; `difficulty` needs `quantiles`.
    seed: breaks ties at quantile boundaries.

  Raises:
    ValueError: the curriculum or the grouping is unknown, or they cannot be
      combined.
  """
  if curriculum not in CURRICULA or grouping not in GROUPINGS:
    raise ValueError(
      f"curriculum={curriculum!r}, grouping={grouping!r}: expected one of "
      f"{CURRICULA} and one of {GROUPINGS}"
    )
  if curriculum == "none":
    return [1] * len(pass_rates)
  if curriculum == "difficulty":
    if grouping == "thresholds":
      raise ValueError("curriculum='difficulty': expected grouping='quantiles'")
    return group_by_quantiles([p.rate for p in pass_rates], seed)
  if grouping == "thresholds":
    return group_by_thresholds(pass_rates)
  return group_by_quantiles([p.potential for p in pass_rates], seed)


def stage_questions(
  groups: Sequence[int], curriculum: str, stage: int, min_count: int = 1
) -> list[int]:
  """Returns the indices of a stage's questions.

  Args:
    groups: the group of each question.
    curriculum: one of `CURRICULA`.
    stage: the stage, from 1.
    min_count: if the stage has fewer questions, all earlier groups are added,
      then later ones in order, until there are enough or no groups are left.
  """
  stage_group = [i for i, group in enumerate(groups) if group == stage]
  if curriculum in _ONE_GROUP_PER_STAGE and len(stage_group) >= min_count:
    return stage_group
  for last in range(stage, STAGES + 1):
    merged = [i for i, group in enumerate(groups) if group <= last]
    if len(merged) >= min_count:
      return merged
  return list(range(len(groups)))


def stage_of(step: int, stage_steps: int) -> int:
  """Returns the stage of a step, both from 1; the last stage never ends."""
  return min(1 + (step - 1) // stage_steps, STAGES)
