"""Systems whose step samples a group of responses to each of its items.

One step, as `GroupSystem.collect`:
1. `take` chooses the items, such as problems; those whose groups the previous
   step has paused come last;
2. `sample_group` samples and grades the responses to each item. A group of
   equal rewards may be replaced (`dynamic_sampling.py`);
3. `complete` and `observe` see all groups: they finish grading and update
   curricula;
4. the responses become trajectories.
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
  """The items of one step. A system may subclass it to keep more of the step.

  Attributes:
    items: one JSON value per prompt index.
    positions: their positions in the epochs of an `EpochOrder`; () if a
      curriculum chose them.
  """

  items: Sequence[Any]
  positions: Sequence[int] = ()


Items = TypeVar("Items", bound=StepItems)


class GroupSystem(System, Generic[Items]):
  """A system with settings `prompts`, `group_size` and `dynamic_sampling`."""

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

    Items that no other step may have, such as the next problems of an epoch,
    are taken before the first await.
    """

  @abc.abstractmethod
  async def sample_group(
    self, policy: Policy, taken: Items, index: int
  ) -> list[types.Trajectory]:
    """Returns the graded responses to an item; [] if its prompt is too long.

    Args:
      policy: the policy to sample from.
      taken: the items of the step, with those of paused groups.
      index: the index of the item in them, and the seed of its prompt.
    """

  def complete(self, groups: Groups) -> Groups:
    """Returns the groups after grading that needs all of the step's groups."""
    return groups

  def observe(self, step: int, taken: Items, groups: Groups) -> None:
    """Updates the state by which later steps choose items."""

  @abc.abstractmethod
  def step_metrics(
    self, step: int, taken: Items, groups: Groups
  ) -> dict[str, float]:
    """Returns metrics of all groups that were sampled."""

  def batch(
    self, step: int, taken: Items, groups: Groups
  ) -> list[types.Trajectory]:
    """Returns the trajectories to train on."""
    del step, taken
    return trajectories(groups.kept)

  async def collect(self, policy: Policy, step: int) -> types.RolloutBatch:
    """Collects one step, as the module's docstring says.

    Raises:
      ValueError: no prompt of the step fits the largest bucket.
    """
    settings = self.settings.dynamic_sampling
    taken = await self.take(policy, step)
    batch_size = len(taken.items) // settings.max_prompts
    taken.items = [*taken.items, *policy.partial.items]
    groups = await dynamic_sampling.sample_groups(
      policy,
      batch_size,
      settings,
      lambda index: self.sample_group(policy, taken, index),
      taken.items,
    )
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
