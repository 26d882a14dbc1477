"""Dynamic sampling: prompts whose responses have one reward are replaced.

A group of equal rewards has zero advantage, so nothing is learned from it. As
soon as such a group is complete, another prompt is sampled for its index in the
batch, in slots that are free while other groups decode. No index waits for
another one.

A step indexes its prompts: index j of a batch of P groups samples the prompts
j, P + j, 2 P + j ... until the rewards of a group differ or `max_prompts` were
sampled. So which prompts are sampled follows from indices and rewards, not from
which group was complete first. An index without any group whose rewards differ
keeps the last one, so the shape of the batch is constant.

Paper: DAPO (arXiv 2503.14476), section 3.2. Its published code samples whole
batches until enough groups have come, and drops those that are too many.
"""

import dataclasses
import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.config.settings import Settings, setting
from azr_jax.learner import advantages
from azr_jax.rollout.policy import Policy
from azr_jax.systems import partial

# Separates the random numbers of replacement prompts from others of a step.
_PURPOSE = b"refill"


@dataclasses.dataclass(frozen=True)
class DynamicSamplingSettings(Settings):
  """Dynamic sampling, which the papers of the systems do not have."""

  max_prompts: int = setting(
    1,
    "maximum number of prompts per group of a batch, tried until the rewards "
    "of one differ; 1: groups of equal reward stay, and DAPO's scripts have 10",
    minimum=1,
  )

  @property
  def is_enabled(self) -> bool:
    """Whether prompts are replaced."""
    return self.max_prompts > 1

  def check_groups(self, system_settings: Settings, group_size: int) -> None:
    """Raises `Invalid` if every group would have one reward."""
    if self.is_enabled and group_size < 2:
      raise system_settings.invalid(
        "group_size",
        f"at least 2 with dynamic_sampling.max_prompts={self.max_prompts}",
      )


@dataclasses.dataclass(frozen=True)
class Group:
  """The responses to a prompt.

  Attributes:
    prompt_index: the index of the prompt in its step.
    trajectories: all responses; () if the prompt was too long to sample from,
      or the group is paused.
    is_paused: whether the next step resumes it.
  """

  prompt_index: int
  trajectories: Sequence[types.Trajectory] = ()
  is_paused: bool = False

  @property
  def has_signal(self) -> bool:
    """Whether the rewards differ by more than rounding."""
    rewards = np.array([t.reward for t in self.trajectories], np.float64)
    return len(rewards) > 1 and not advantages.are_equal(rewards)


@dataclasses.dataclass(frozen=True)
class Groups:
  """The prompts of a step.

  Attributes:
    by_batch_index: the groups of each index of the batch, in order.
    max_prompts: maximum number of groups of an index.
    carried: number of first indices whose groups an earlier step has started.
  """

  by_batch_index: Sequence[Sequence[Group]]
  max_prompts: int
  carried: int = 0

  @property
  def tried(self) -> list[Group]:
    """All groups by prompt index, also those whose prompts were too long."""
    every = itertools.chain(*self.by_batch_index)
    return sorted(every, key=lambda group: group.prompt_index)

  @property
  def sampled(self) -> list[Group]:
    """The groups with responses, by prompt index."""
    return [group for group in self.tried if group.trajectories]

  @property
  def kept(self) -> list[Group]:
    """The groups to train on, by index in the batch."""
    sampled = [
      [g for g in groups if g.trajectories]
      for groups in self.by_batch_index
      if not groups[-1].is_paused
    ]
    return [groups[-1] for groups in sampled if groups]

  def metrics(self, system: str) -> dict[str, float]:
    """Returns counts of prompts, and what their replacement cost.

    Args:
      system: the part of the metrics' names after the family.
    """
    tried, sampled, kept = self.tried, self.sampled, self.kept
    too_long = [g for g in tried if not (g.trajectories or g.is_paused)]
    metrics = {f"count/{system}/too_long": float(len(too_long))}
    if self.max_prompts == 1:
      return metrics
    indices = len(self.by_batch_index)
    kept_indices = {group.prompt_index for group in kept}
    dropped = [g for g in sampled if g.prompt_index not in kept_indices]
    tokens = sum(
      int(t.completion.loss_mask.sum())
      for group in dropped
      for t in group.trajectories
    )
    budget = (indices - self.carried) * (self.max_prompts - 1)
    return metrics | {
      f"dynamic_sampling/{system}/sampled": float(len(sampled)),
      f"dynamic_sampling/{system}/dropped_fraction": len(dropped)
      / len(sampled),
      f"dynamic_sampling/{system}/budget_fraction": (len(tried) - indices)
      / budget,
      f"dynamic_sampling/{system}/no_signal_fraction": float(
        np.mean([not group.has_signal for group in kept])
      ),
      f"dynamic_sampling/{system}/tokens_per_dropped": tokens
      / max(len(dropped), 1),
    }


async def sample_groups(
  policy: Policy,
  batch_size: int,
  settings: DynamicSamplingSettings,
  sample_group: Callable[[int], Coroutine[Any, Any, list[types.Trajectory]]],
  items: Sequence[Any] = (),
) -> Groups:
  """Samples prompts until each group of a batch has one to learn from.

  Args:
    policy: samples for all indices of the batch concurrently.
    batch_size: P, groups of the step.
    settings: how many prompts a group may try.
    sample_group: the index of a prompt, below P `max_prompts` or of `items`
      -> its graded responses; none if the prompt is too long.
    items: the item of each prompt index, for `partial.gather`. A group that the
      previous step has paused is not replaced.
  """
  first = batch_size * settings.max_prompts
  tried: dict[int, list[Group]] = {}

  def prompts_of(index: int) -> Sequence[int]:
    return range(index, first, batch_size) if index < batch_size else (index,)

  async def until_signal(index: int) -> list[Group]:
    # A group that was paused is the next one.
    groups = tried.setdefault(index, [])
    for prompt in prompts_of(index)[len(groups) :]:
      groups.append(Group(prompt, await sample_group(prompt)))
      if groups[-1].has_signal:
        break
    return [group for group in groups if group.trajectories]

  ended = await partial.gather(policy, until_signal, batch_size, items)
  carried = range(first, first + len(policy.partial.carried))
  indices = [*carried, *range(batch_size)]
  for index, groups_of in zip(indices, ended, strict=True):
    if groups_of is None:
      prompt = prompts_of(index)[len(tried[index])]
      tried[index].append(Group(prompt, is_paused=True))
  return Groups(
    [tried[index] for index in indices], settings.max_prompts, len(carried)
  )


def generators(
  settings: DynamicSamplingSettings, seeds: Sequence[int]
) -> list[np.random.Generator]:
  """Returns the generators of a step's prompts and of each replacement round.

  A curriculum draws the last round first, so that its metrics are those of the
  first prompts.
  """
  return [
    np.random.default_rng((*seeds, *_PURPOSE, attempt) if attempt else seeds)
    for attempt in range(settings.max_prompts)
  ]


class EpochOrder:
  """Chooses the positions of endless epochs that a step samples.

  Without replacements a step's positions follow from its number. With them it
  takes as many as it may need, and returns the unused ones for later steps. So
  an epoch still has every item once.
  """

  def __init__(self, batch_size: int, settings: DynamicSamplingSettings):
    self._batch_size, self._settings = batch_size, settings
    self._epochs_of = 0
    self._next = 0
    self._returned: list[int] = []

  def take(self, steps_before: int, epochs_of: int = 0) -> list[int]:
    """Returns the position of each prompt that a step may sample.

    It is called before the step's first await.

    Args:
      steps_before: how many steps had these epochs before this one.
      epochs_of: identifies the items of the epochs, which restart where it
        changes.
    """
    first = steps_before * self._batch_size
    if not self._settings.is_enabled:
      return list(range(first, first + self._batch_size))
    if self._epochs_of != epochs_of:
      self._epochs_of, self._next, self._returned = epochs_of, 0, []
    count = self._batch_size * self._settings.max_prompts
    taken, self._returned = self._returned[:count], self._returned[count:]
    end = self._next + count - len(taken)
    taken += range(self._next, end)
    self._next = end
    return taken

  def return_unused(
    self, taken: Sequence[int], groups: Groups, epochs_of: int = 0
  ) -> None:
    """Returns the positions that a step took and did not sample.

    Args:
      taken: what `take` returned.
      groups: the prompts of the step.
      epochs_of: as for `take`.
    """
    if epochs_of != self._epochs_of:
      return
    tried = {group.prompt_index for group in groups.tried}
    unused = [p for index, p in enumerate(taken) if index not in tried]
    self._returned = sorted(self._returned + unused)

  def state_dict(self) -> dict[str, Any]:
    """Returns what changes between steps, as JSON values; {}: nothing does."""
    if not self._settings.is_enabled:
      return {}
    return {
      "epochs_of": self._epochs_of,
      "next": self._next,
      "returned": self._returned,
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    if self._settings.is_enabled and state:
      self._epochs_of, self._next = state["epochs_of"], state["next"]
      self._returned = list(state["returned"])
