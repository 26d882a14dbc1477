"""Groups of a step of which some are paused, or were by the step before."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from azr_jax.rollout.partial_rollouts import GroupPaused, PausedGroup
from azr_jax.rollout.policy import Policy

Out = TypeVar("Out")


async def gather(
  policy: Policy,
  play: Callable[[int], Coroutine[Any, Any, Out]],
  count: int,
  items: Sequence[Any] = (),
) -> list[Out | None]:
  """Plays the groups of a step beside each other.

  Groups that the step before has paused come first. If none of the step has
  ended when all are paused, they go on at once, because an update needs a
  batch.

  Args:
    policy: samples for all groups.
    play: index of a group -> what became of it, false if the batch gets nothing
      of it. It raises `GroupPaused` where it is paused.
    count: groups that the step begins, whose indices are below.
    items: for each number of a prompt that a group samples, the JSON value from
      which a later step can play it. Those of groups of the step before are the
      last ones, as in `policy.partial.carried`, and their index is this number.

  Returns:
    For each group that came from the step before, then for each one that the
    step has begun, what became of it; None if it is paused.
  """
  partial = policy.partial
  first = len(items) - len(partial.carried)
  carried = {first + i: group for i, group in enumerate(partial.carried)}
  if carried:
    policy.resume_groups({n: group.sequences for n, group in carried.items()})
  indices = [*carried, *range(count)]
  ended: dict[int, Out] = {}
  # Index of a paused group -> the number of the prompt that it samples.
  paused: dict[int, int] = {}

  async def attempt(index: int) -> None:
    try:
      ended[index] = await play(index)
    except GroupPaused as error:
      paused[index] = error.number

  await policy.gather(map(attempt, indices))
  while paused and not any(ended.values()):
    again = [(index, paused.pop(index)) for index in sorted(paused)]
    policy.resume_groups(
      {number: policy.partial_samples(number) for _, number in again}
    )
    partial.budgets += 1
    await policy.gather(attempt(index) for index, _ in again)
  partial.paused = [
    PausedGroup(items[paused[index]], policy.partial_samples(paused[index]))
    for index in indices
    if index in paused
  ]
  return [ended.get(index) for index in indices]
