"""Rejects proposals that differ from a known task only in names or layout.

An environment is known if another has the same instances and answers.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from azr_jax.rollout.event_loop import Awaited
from azr_jax.systems.azr.proposer import Proposal
from azr_jax.tasks.programs import buffer as buffer_lib


class Duplicates:
  """Finds proposals that repeat a buffered task or a new task of the step."""

  def __init__(
    self,
    buffers: Mapping[str, buffer_lib.TaskBuffer],
    task_types: Sequence[str],
  ):
    """Reads the buffers.

    Args:
      buffers: the tasks of earlier steps, by type.
      task_types: the type of each proposal.
    """
    self._known = {name: buffer.keys() for name, buffer in buffers.items()}
    self._task_types = task_types
    self._decided: list[Future[None]] = [Future() for _ in task_types]

  async def reject(self, index: int, proposal: Proposal) -> None:
    """Rejects a task that a buffer or an earlier proposal already has.

    Waits for earlier proposals of the type, so that the first is kept.
    Keeps tasks of types whose buffers it has not read.

    Args:
      index: the index of the proposal in the step.
      proposal: a validated proposal.
    """
    try:
      if proposal.task is None or proposal.task_type not in self._known:
        return
      for earlier in range(index):
        if self._task_types[earlier] == proposal.task_type:
          await Awaited(self._decided[earlier])
      known = self._known[proposal.task_type]
      key = buffer_lib.task_key(proposal.task)
      if key in known:
        proposal.reject_duplicate()
      else:
        known.add(key)
    finally:
      self._decided[index].set_result(None)
