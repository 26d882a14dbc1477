"""Dynamic sampling: prompts whose responses have one reward are replaced.

A group of equal rewards has no advantage, so nothing is learned from it. As
soon as such a group is complete, its place in the step asks another prompt,
which takes slots that are free while other places sample. No place waits for
another one.

A step of P places numbers its prompts: place j asks j, P + j, 2 P + j ... until
the rewards of a group differ or `max_prompts` were asked. So which prompts are
asked follows from numbers and rewards, not from which group was complete first.
A place without any group whose rewards differ keeps the last one, and the batch
its shape.

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
from azr_jax.rollout.policy import Policy

# The draws of the prompts that replace others, among all of a step.
_PURPOSE = b"refill"


@dataclasses.dataclass(frozen=True)
class RefillSettings(Settings):
  """Dynamic sampling, which the papers of the systems do not have."""

  max_prompts: int = setting(
    1,
    "prompts that each place of a step asks at most, until the rewards of one "
    "differ; 1: groups of equal reward stay, and DAPO's scripts have 10",
    at_least=1,
  )

  @property
  def replaces(self) -> bool:
    """Whether prompts are replaced."""
    return self.max_prompts > 1

  def check_groups(self, of_system: Settings, group_size: int) -> None:
    """Raises `Invalid` if every group would have one reward."""
    if self.replaces and group_size < 2:
      raise of_system.invalid(
        "group_size", f"at least 2 with refill.max_prompts={self.max_prompts}"
      )


@dataclasses.dataclass(frozen=True)
class Group:
  """The responses to a prompt.

  Attributes:
    number: of the prompt in its step.
    trajectories: of all responses; (): the prompt was too long to be asked.
  """

  number: int
  trajectories: Sequence[types.Trajectory] = ()

  @property
  def has_signal(self) -> bool:
    """Whether the rewards differ."""
    return len({t.reward for t in self.trajectories}) > 1


@dataclasses.dataclass(frozen=True)
class Groups:
  """The prompts of a step.

  Attributes:
    by_place: the groups of each place, in the order in which it asked them.
    max_prompts: most groups of a place.
  """

  by_place: Sequence[Sequence[Group]]
  max_prompts: int

  @property
  def tried(self) -> list[Group]:
    """All prompts by number, also those that were too long."""
    every = itertools.chain(*self.by_place)
    return sorted(every, key=lambda group: group.number)

  @property
  def asked(self) -> list[Group]:
    """The groups that were sampled, by number, for metrics and curricula."""
    return [group for group in self.tried if group.trajectories]

  @property
  def kept(self) -> list[Group]:
    """The groups to train on, place after place."""
    asked = [[g for g in groups if g.trajectories] for groups in self.by_place]
    return [groups[-1] for groups in asked if groups]

  def metrics(self, system: str) -> dict[str, float]:
    """Returns counts of prompts, and what their replacement cost.

    Args:
      system: the part of the metrics' names after the family.
    """
    tried, asked, kept = self.tried, self.asked, self.kept
    metrics = {f"count/{system}/too_long": float(len(tried) - len(asked))}
    if self.max_prompts == 1:
      return metrics
    places = len(self.by_place)
    numbers = {group.number for group in kept}
    dropped = [group for group in asked if group.number not in numbers]
    tokens = sum(
      int(t.completion.loss_mask.sum())
      for group in dropped
      for t in group.trajectories
    )
    budget = places * (self.max_prompts - 1)
    return metrics | {
      f"refill/{system}/asked": float(len(asked)),
      f"refill/{system}/dropped_share": len(dropped) / len(asked),
      f"refill/{system}/budget_share": (len(tried) - places) / budget,
      f"refill/{system}/unfilled_share": float(
        np.mean([not group.has_signal for group in kept])
      ),
      f"refill/{system}/tokens_per_dropped": tokens / max(len(dropped), 1),
    }


async def fill(
  policy: Policy,
  places: int,
  settings: RefillSettings,
  ask: Callable[[int], Coroutine[Any, Any, list[types.Trajectory]]],
) -> Groups:
  """Asks prompts until each place of a step has one to learn from.

  Args:
    policy: runs the places beside each other.
    places: P, prompts of the step.
    settings: how many prompts a place may ask.
    ask: the number of a prompt, below P `max_prompts` -> its graded responses;
      none if the prompt is too long.

  Raises:
    ValueError: no prompt of the step fits the largest bucket.
  """

  async def fill_place(place: int) -> list[Group]:
    groups: list[Group] = []
    for turn in range(settings.max_prompts):
      number = turn * places + place
      groups.append(Group(number, await ask(number)))
      if groups[-1].has_signal:
        break
    return groups

  by_place = await policy.gather(fill_place(place) for place in range(places))
  groups = Groups(by_place, settings.max_prompts)
  if not groups.asked:
    raise ValueError(
      "no prompt of this step fits the last of rollout.prompt_buckets: "
      "expected a larger bucket"
    )
  return groups


def generators(
  settings: RefillSettings, seeds: Sequence[int]
) -> list[np.random.Generator]:
  """Returns the generator of a step's first prompts, and of each next turn's.

  A curriculum draws the last turn first, so that its metrics are those of the
  first one.
  """
  return [
    np.random.default_rng((*seeds, *_PURPOSE, turn) if turn else seeds)
    for turn in range(settings.max_prompts)
  ]


class EpochOrder:
  """Says which positions of endless epochs a step asks.

  Without replacements a step's positions follow from its number. With them it
  takes as many as it may ask, and gives those back that it did not ask, for the
  steps after it. So an epoch still has every item once.
  """

  def __init__(self, places: int, settings: RefillSettings):
    self._places, self._settings = places, settings
    self._epochs_of = 0
    self._next = 0
    self._returned: list[int] = []

  def take(self, steps_before: int, epochs_of: int = 0) -> list[int]:
    """Returns the position of each number that a step may ask.

    It is called before the step's first await.

    Args:
      steps_before: how many steps had these epochs before this one.
      epochs_of: what the epochs are over; they begin anew where it changes.
    """
    first = steps_before * self._places
    if not self._settings.replaces:
      return list(range(first, first + self._places))
    if self._epochs_of != epochs_of:
      self._epochs_of, self._next, self._returned = epochs_of, 0, []
    count = self._places * self._settings.max_prompts
    taken, self._returned = self._returned[:count], self._returned[count:]
    end = self._next + count - len(taken)
    taken += range(self._next, end)
    self._next = end
    return taken

  def give_back(
    self, taken: Sequence[int], groups: Groups, epochs_of: int = 0
  ) -> None:
    """Notes which of the positions that a step took it has not asked.

    Args:
      taken: what `take` returned.
      groups: the prompts of the step.
      epochs_of: as for `take`.
    """
    if epochs_of != self._epochs_of:
      return
    tried = {group.number for group in groups.tried}
    rest = [one for number, one in enumerate(taken) if number not in tried]
    self._returned = sorted(self._returned + rest)

  def state_dict(self) -> dict[str, Any]:
    """Returns what changes between steps, as JSON values; {}: nothing does."""
    if not self._settings.replaces:
      return {}
    return {
      "epochs_of": self._epochs_of,
      "next": self._next,
      "returned": self._returned,
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    if self._settings.replaces and state:
      self._epochs_of, self._next = state["epochs_of"], state["next"]
      self._returned = list(state["returned"])
