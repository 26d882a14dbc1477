"""Dynamic sampling: replaces prompts whose responses all have equal rewards.

A group of equal rewards has zero advantage and teaches nothing. As soon as such
a group is complete, the next prompt is sampled for its index in the batch, in
slots that are free while other groups decode. Indices do not wait for each
other.

Index j of a batch of P groups samples the prompts j, P + j, 2 P + j, ... until
the rewards of a group differ or `max_prompts` prompts were tried. The choice of
prompts therefore depends on indices and rewards only, not on which group
finished first. An index that never gets a group with different rewards keeps
its last group, so the batch shape is constant.

Paper: DAPO (arXiv 2503.14476), section 3.2. Its published code instead samples
whole batches until it has enough groups, and discards the surplus.
"""

import dataclasses
import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.config.settings import Settings, setting
from azr_jax.learner import advantages
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout.policy import Policy
from azr_jax.systems import partial


@dataclasses.dataclass(frozen=True)
class DynamicSamplingSettings(Settings):
  """Dynamic sampling (DAPO); the papers of the systems do not use it."""

  max_prompts: int = setting(
    1,
    "maximum number of prompts to try per group until the rewards differ; "
    "1 keeps groups of equal reward; DAPO's scripts use 10",
    minimum=1,
  )

  @property
  def is_enabled(self) -> bool:
    """Whether prompts are replaced."""
    return self.max_prompts > 1

  def check_groups(self, system_settings: Settings, group_size: int) -> None:
    """Raises `Invalid` if groups are too small for rewards to differ."""
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
    trajectories: all responses. Empty if the prompt was too long or the group
      is paused.
    is_paused: whether the next step resumes it.
  """

  prompt_index: int
  trajectories: Sequence[types.Trajectory] = ()
  is_paused: bool = False

  @property
  def has_signal(self) -> bool:
    """Whether the rewards differ by more than a rounding error."""
    rewards = np.array([t.reward for t in self.trajectories], np.float64)
    return len(rewards) > 1 and not advantages.are_equal(rewards)


@dataclasses.dataclass(frozen=True)
class Groups:
  """All groups of a step.

  Attributes:
    by_batch_index: the groups tried at each index of the batch, in order.
    max_prompts: the maximum number of groups per index.
    carried: the number of leading indices whose groups an earlier step started.
  """

  by_batch_index: Sequence[Sequence[Group]]
  max_prompts: int
  carried: int = 0

  @property
  def tried(self) -> list[Group]:
    """All groups by prompt index, including prompts that were too long."""
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
    """Returns prompt counts and the cost of replacing prompts.

    Args:
      system: the part of the metric names after the family.
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
  max_prompts: int,
  sample_group: Callable[[int], Coroutine[Any, Any, list[types.Trajectory]]],
  items: Sequence[Any] = (),
) -> Groups:
  """Samples groups; replaces a group without signal by the next prompt's.

  An index of the batch tries at most `max_prompts` prompts. Groups carried over
  from the previous step are not replaced.

  Args:
    policy: samples for all indices of the batch concurrently.
    batch_size: P, the number of groups in the step.
    max_prompts: the maximum number of prompts to try per group.
    sample_group: maps a prompt index to the prompt's graded responses; empty if
      the prompt is too long. The argument is an index below P x `max_prompts`,
      or that of a carried group.
    items: the item of each prompt index, for `partial.gather`.
  """
  first = batch_size * max_prompts
  tried: dict[int, list[Group]] = {}

  def prompts_of(index: int) -> Sequence[int]:
    return range(index, first, batch_size) if index < batch_size else (index,)

  async def until_signal(index: int) -> list[Group]:
    # On resume, continue with the prompt whose group paused.
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
  return Groups([tried[index] for index in indices], max_prompts, len(carried))


def generators(
  max_prompts: int, seed: int, step: int
) -> list[np.random.Generator]:
  """Returns generators for a step's prompts and for each replacement round.

  Draw the last round first: a curriculum reports metrics of its latest draw,
  which should be the step's first prompts.
  """
  return [
    streams.generator(seed, Purpose.CURRICULUM, step, attempt)
    for attempt in range(max_prompts)
  ]


class EpochOrder:
  """Assigns positions of an endless sequence of epochs to steps.

  Without dynamic sampling, positions follow from the step's number. With it, a
  step takes as many positions as it could need and returns the unused ones to
  later steps, so an epoch still covers every item once.
  """

  def __init__(self, batch_size: int, max_prompts: int):
    self._batch_size, self._max_prompts = batch_size, max_prompts
    self._epochs_of = 0
    self._next = 0
    self._returned: list[int] = []

  def take(self, steps_before: int, epochs_of: int = 0) -> list[int]:
    """Takes a position for each prompt that a step may sample.

    Call this before the step's first await.

    Args:
      steps_before: the number of earlier steps with the same `epochs_of`.
      epochs_of: identifies the set of items. Epochs restart when it changes.
    """
    first = steps_before * self._batch_size
    if self._max_prompts == 1:
      return list(range(first, first + self._batch_size))
    if self._epochs_of != epochs_of:
      self._epochs_of, self._next, self._returned = epochs_of, 0, []
    count = self._batch_size * self._max_prompts
    taken, self._returned = self._returned[:count], self._returned[count:]
    end = self._next + count - len(taken)
    taken += range(self._next, end)
    self._next = end
    return taken

  def return_unused(
    self, taken: Sequence[int], groups: Groups, epochs_of: int = 0
  ) -> None:
    """Gives back positions that a step took but did not sample.

    Args:
      taken: the positions that `take` returned.
      groups: the groups of the step.
      epochs_of: see `take`.
    """
    if epochs_of != self._epochs_of:
      return
    tried = {group.prompt_index for group in groups.tried}
    unused = [p for index, p in enumerate(taken) if index not in tried]
    self._returned = sorted(self._returned + unused)

  def state_dict(self) -> dict[str, Any]:
    """Returns the state as JSON values; {} without dynamic sampling."""
    if self._max_prompts == 1:
      return {}
    return {
      "epochs_of": self._epochs_of,
      "next": self._next,
      "returned": self._returned,
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    if self._max_prompts > 1 and state:
      self._epochs_of, self._next = state["epochs_of"], state["next"]
      self._returned = list(state["returned"])
