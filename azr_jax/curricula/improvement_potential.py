"""Improvement potential: what a model gains most from (seed 001, section 3.3).

Of a question that a share p of answers gets right, the potential is
4 p (1 - p): the variance of the reward, which bounds the gradient, scaled to 1
at p = 1/2. Questions are put into four groups by it, and a stage of training
takes them group by group.

| order | groups by | a stage's questions |
| --- | --- | --- |
| `potential` | potential, highest first | groups 1 to the stage |
| `potential_alone` | the same | the group of the stage |
| `online_merge` | the same, measured anew before each stage | 1 to the stage |
| `online_unmerge` | likewise | the group of the stage |
| `difficulty` | p, easiest first | groups 1 to the stage |
| `none` | | all |

A stage that has fewer questions than a step takes more groups, easier ones to
learn from first.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

ONLINE = ("online_merge", "online_unmerge")
_ALONE = ("potential_alone", "online_unmerge")
ORDERS = ("potential", "potential_alone", *ONLINE, "difficulty", "none")
GROUPINGS = ("thresholds", "quantiles")
STAGES = 4
# Least potential of groups 1 to 3, in percent; the rest are group 4.
THRESHOLDS = (64, 48, 32)


@dataclasses.dataclass(frozen=True)
class Measured:
  """How a question was answered: `right` of `asked` answers."""

  right: int
  asked: int

  @property
  def potential(self) -> float:
    """4 p (1 - p)."""
    p = self.right / self.asked
    return 4.0 * p * (1.0 - p)


def group_by_thresholds(measured: Sequence[Measured]) -> list[int]:
  """Group 1 to 4 of each question, by the paper's printed ranges.

  Counts are compared, not shares: of 20 answers 4 and 16 right are a potential
  of 0.64 exactly, which floating point would miss.
  """
  groups = []
  for one in measured:
    percent = 400 * one.right * (one.asked - one.right)
    above = sum(percent >= t * one.asked**2 for t in THRESHOLDS)
    groups.append(STAGES - above)
  return groups


def group_by_quantiles(keys: Sequence[float], seed: int) -> list[int]:
  """Four groups of one size, by falling key; equal ones in a drawn order."""
  shuffled = np.random.default_rng((seed, 0)).permutation(len(keys))
  order = shuffled[np.argsort(-np.asarray(keys)[shuffled], kind="stable")]
  groups = np.empty(len(keys), int)
  groups[order] = 1 + np.arange(len(keys)) * STAGES // max(len(keys), 1)
  return groups.tolist()


def make_groups(
  measured: Sequence[Measured], order: str, grouping: str, seed: int
) -> list[int]:
  """The group of each question, in which a stage of its number first has it.

  Args:
    measured: how each question was answered.
    order: one of `ORDERS`.
    grouping: one of `GROUPINGS`; difficulty has no thresholds.
    seed: breaks ties between quantiles.

  Raises:
    ValueError: the order or grouping is unknown, or they do not go together.
  """
  if order not in ORDERS or grouping not in GROUPINGS:
    raise ValueError(
      f"order={order!r}, grouping={grouping!r}: expected one of {ORDERS} and "
      f"one of {GROUPINGS}"
    )
  if order == "none":
    return [1] * len(measured)
  if order == "difficulty":
    if grouping == "thresholds":
      raise ValueError("order='difficulty': expected grouping='quantiles'")
    return group_by_quantiles([m.right / m.asked for m in measured], seed)
  if grouping == "thresholds":
    return group_by_thresholds(measured)
  return group_by_quantiles([m.potential for m in measured], seed)


def pool(
  groups: Sequence[int], order: str, stage: int, least: int = 1
) -> list[int]:
  """The questions of a stage, from 1 on; all of them once all groups are in.

  Args:
    groups: of each question.
    order: one of `ORDERS`.
    stage: from 1 on.
    least: if there are fewer, those of earlier groups come in, then later ones.
  """
  own = [i for i, group in enumerate(groups) if group == stage]
  if order in _ALONE and len(own) >= least:
    return own
  for last in range(stage, STAGES + 1):
    merged = [i for i, group in enumerate(groups) if group <= last]
    if len(merged) >= least:
      return merged
  return list(range(len(groups)))


def stage_of(step: int, stage_steps: int) -> int:
  """The stage of a step, both from 1 on; the last goes on for ever."""
  return min(1 + (step - 1) // stage_steps, STAGES)
