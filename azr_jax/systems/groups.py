"""Base class of systems that sample a group of responses per item.

The life of a step (`GroupSystem.collect`):
1. `take` chooses the items, such as problems. Items whose groups the previous
   step paused are appended.
2. `sample_group` samples and grades the responses to each item. A group with
   equal rewards may be replaced (`dynamic_sampling.py`).
3. Once earlier steps are complete, `complete` and `observe` receive all groups:
   they finish grading and update curricula.
4. The responses become trajectories.
"""

import abc
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from azr_jax import types
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.policy import Policy
from azr_jax.systems import dynamic_sampling
from azr_jax.systems.dynamic_sampling import Groups
from azr_jax.systems.system import About, StepLoad, System


@dataclasses.dataclass
class StepItems:
  """The items of one step. Subclass it to carry more data through a step.

  Attributes:
    items: one JSON value per prompt index.
    positions: the items' positions in an `EpochOrder`; empty if a curriculum
      chose them.
  """

  items: Sequence[Any]
  positions: Sequence[int] = ()


Items = TypeVar("Items", bound=StepItems)


class GroupSystem(System, Generic[Items]):
  """A system with the settings `prompts`, `group_size`, `dynamic_sampling`."""

  @classmethod
  def about(cls, settings: Any) -> About:
    """Returns the load of a step that trains on all responses."""
    return About(
      load=StepLoad.of_groups(settings.prompts, settings.group_size),
      can_pause=True,
    )

  @abc.abstractmethod
  async def take(self, policy: Policy, step: int) -> Items:
    """Returns `max_prompts` items for each group of the step's batch.

    Claim per-step items, such as the next problems of an epoch, before the
    first await.
    """

  @abc.abstractmethod
  async def sample_group(
    self, policy: Policy, taken: Items, index: int
  ) -> list[types.Trajectory]:
    """Returns the graded responses to an item; [] if its prompt is too long.

    Args:
      policy: the policy to sample from.
      taken: the items of the step, including those of carried groups.
      index: the item's index in `taken`, also used as the prompt's number.
    """

  def complete(self, groups: Groups) -> Groups:
    """Finishes grading that needs all groups of the step; returns them."""
    return groups

  def observe(self, step: int, taken: Items, groups: Groups) -> None:
    """Updates the state from which later steps choose items."""

  @abc.abstractmethod
  def step_metrics(
    self, step: int, taken: Items, groups: Groups
  ) -> dict[str, float]:
    """Returns metrics over all sampled groups, including replaced ones."""

  def batch(
    self, step: int, taken: Items, groups: Groups
  ) -> list[types.Trajectory]:
    """Returns the trajectories to train on."""
    del step, taken
    return trajectories(groups.kept)

  async def collect(self, policy: Policy, step: int) -> types.RolloutBatch:
    """Collects one step; the module docstring lists its stages.

    Raises:
      ValueError: no prompt of the step fits the largest bucket.
    """
    max_prompts = self.settings.dynamic_sampling.max_prompts
    taken = await self.take(policy, step)
    batch_size = len(taken.items) // max_prompts
    taken.items = [*taken.items, *policy.partial.items]
    groups = await dynamic_sampling.sample_groups(
      policy,
      batch_size,
      max_prompts,
      lambda index: self.sample_group(policy, taken, index),
      taken.items,
    )
    await policy.earlier_steps()
    groups = self.complete(groups)
    self.observe(step, taken, groups)
    if not groups.sampled:
      raise policy_lib.no_prompt_fits("this step", policy)
    metrics = self.step_metrics(step, taken, groups)
    metrics |= groups.metrics(self.name)
    return types.RolloutBatch(self.batch(step, taken, groups), metrics)


def trajectories(
  groups: Sequence[dynamic_sampling.Group],
) -> list[types.Trajectory]:
  """Returns the trajectories of groups, group after group."""
  return list(itertools.chain(*(group.trajectories for group in groups)))
