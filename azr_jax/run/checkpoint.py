"""Everything a run owns, saved and restored as one thing, with Orbax.

Saves are asynchronous and atomic: a checkpoint that was cut off by a kill is
never seen. A checkpoint holds the device state (parameters, optimizer, step)
and the system's host state (task buffers) of the same step.
"""

import pathlib
from typing import Any, TypeVar

import orbax.checkpoint as ocp

from azr_jax.run import storage


# The device state of a run: any pytree of arrays.
State = TypeVar("State")


class Checkpointer:
  """Saves and restores a run folder's checkpoints."""

  def __init__(self, workdir: pathlib.Path, keep: int | None):
    """Opens `workdir/checkpoints`; the newest `keep` (None: all) stay."""
    if not storage.is_object_store(workdir):
      workdir = workdir.absolute()
    self._manager = ocp.CheckpointManager(
      workdir / "checkpoints",
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep, enable_async_checkpointing=True
      ),
    )

  def latest_step(self) -> int | None:
    """The step of the newest whole checkpoint, or None."""
    return self._manager.latest_step()

  def save(self, step: int, state: Any, system: dict[str, Any]) -> None:
    """Starts saving; returns once the device state has been copied."""
    self._manager.save(
      step,
      args=ocp.args.Composite(
        state=ocp.args.StandardSave(state), system=ocp.args.JsonSave(system)
      ),
    )

  def restore(
    self, step: int, abstract_state: State
  ) -> tuple[State, dict[str, Any]]:
    """Restores a step straight into its shards.

    Args:
      step: a step that `latest_step` named.
      abstract_state: shapes, dtypes and shardings of the device state.
    """
    restored = self._manager.restore(
      step,
      args=ocp.args.Composite(
        state=ocp.args.StandardRestore(abstract_state),
        system=ocp.args.JsonRestore(),
      ),
    )
    return restored["state"], restored["system"]

  def restore_system(self, step: int) -> dict[str, Any]:
    """Restores the system's host state alone."""
    restored = self._manager.restore(
      step, args=ocp.args.Composite(system=ocp.args.JsonRestore())
    )
    return restored["system"]

  def close(self) -> None:
    """Waits for saves under way."""
    self._manager.wait_until_finished()
    self._manager.close()
