"""Runs the groups of a step, some of which pause or resume."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from azr_jax.rollout.partial_rollouts import GroupPaused, PausedGroup
from azr_jax.rollout.policy import Policy

Out = TypeVar("Out")


async def gather(
  policy: Policy,
  run_group: Callable[[int], Coroutine[Any, Any, Out]],
  count: int,
  items: Sequence[Any] = (),
) -> list[Out | None]:
  """Runs a step's groups concurrently.

  Groups that the previous step paused come first. If all groups of the step
  pause, resumes them immediately: an update needs at least one group.

  Args:
    policy: samples for all groups.
    run_group: maps a group index to the group's result. The result is falsy if
      the group adds nothing to the batch. Raises `GroupPaused` if the group
      pauses.
    count: the number of groups that the step starts, with indices from 0.
    items: for each prompt index, a JSON value from which a later step can
      rebuild the prompt. Carried groups come last, in the order of
      `policy.partial.carried`; their group index equals the prompt index.

  Returns:
    The results of carried groups, then of groups that this step started. The
    result of a paused group is None.
  """
  partial = policy.partial
  first = len(items) - len(partial.carried)
  carried = {first + i: group for i, group in enumerate(partial.carried)}
  if carried:
    policy.resume_groups({n: group.sequences for n, group in carried.items()})
  indices = [*carried, *range(count)]
  ended: dict[int, Out] = {}
  # Group index -> index of the prompt during which the group paused.
  paused: dict[int, int] = {}

  async def attempt(index: int) -> None:
    try:
      ended[index] = await run_group(index)
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
