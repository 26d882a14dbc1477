"""Everything that a run owns, saved and restored together, with Orbax.

Saves are asynchronous and atomic: a checkpoint that was cut off by a kill is
never seen. A checkpoint holds the device state (parameters, optimizer, step)
and the system's host state (task buffers) of the same step.
"""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any, TypeVar

import orbax.checkpoint as ocp

from azr_jax.run import storage
from azr_jax.run.console import print_status
from azr_jax.types import Params

# The name of the folder of checkpoints in a run's folder.
FOLDER = "checkpoints"
# The name of the device state in a checkpoint.
_STATE = "state"
# The device state of a run: any pytree of arrays.
State = TypeVar("State")


class Checkpointer:
  """Saves and restores a run folder's checkpoints.

  It is a context that waits for saves under way, also where an error ends it;
  that error is not replaced by one of the saves.
  """

  def __init__(
    self, workdir: pathlib.Path, keep: int | None, create: bool = True
  ):
    """Opens `workdir/checkpoints`.

    Args:
      workdir: the folder of the run.
      keep: how many checkpoints stay, the newest; None: all.
      create: whether to make the folder of checkpoints if it is missing.
    """
    if not storage.is_object_store(workdir):
      workdir = workdir.absolute()
    self._manager = ocp.CheckpointManager(
      workdir / FOLDER,
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep, create=create, enable_async_checkpointing=True
      ),
    )

  def __enter__(self) -> "Checkpointer":
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: object,
  ) -> None:
    del kind, trace
    try:
      self._manager.wait_until_finished()
      self._manager.close()
    except Exception as unsaved:
      if error is None:
        raise
      print_status(f"the last checkpoint may be lost: {unsaved}")

  def latest_step(self) -> int | None:
    """Returns the step of the newest whole checkpoint, or None."""
    return self._manager.latest_step()

  def steps(self) -> list[int]:
    """Returns the steps of all whole checkpoints, in order."""
    return sorted(self._manager.all_steps())

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

  def restore_params(
    self, step: int, policy: Params, critic: Params | None = None
  ) -> tuple[Params, ...]:
    """Restores parameters straight into their shards, and nothing else.

    Moments are most of a checkpoint, and only training needs them.

    Args:
      step: a step of `steps`.
      policy: shapes, dtypes and shardings of the policy's parameters.
      critic: the same of the critic's; None: they are not restored.

    Returns:
      The policy's parameters, and the critic's if they are asked for and the
      run has a critic.
    """
    path = self._manager.directory / str(step) / _STATE
    saved = ocp.StandardCheckpointHandler().metadata(path).tree
    item: dict[str, Any] = {"params": policy}
    if "policy" in saved:
      item = {"policy": item}
      if critic is not None:
        item["critic"] = {"params": critic}
    args = ocp.args.PyTreeRestore(
      item,
      restore_args=ocp.checkpoint_utils.construct_restore_args(item),
      partial_restore=True,
    )
    # A manager restores an item as it did first, so this one is only for it.
    with ocp.CheckpointManager(
      self._manager.directory,
      options=ocp.CheckpointManagerOptions(create=False),
    ) as manager:
      state = manager.restore(step, args=ocp.args.Composite(state=args))[_STATE]
    if "params" in state:
      return (state["params"],)
    networks = [state[name] for name in ("policy", "critic") if name in state]
    return tuple(network["params"] for network in networks)

  def restore_system(self, step: int) -> dict[str, Any]:
    """Restores the system's host state alone."""
    restored = self._manager.restore(
      step, args=ocp.args.Composite(system=ocp.args.JsonRestore())
    )
    return restored["system"]


def newest_step(workdir: pathlib.Path) -> int | None:
  """Returns the step of a folder's newest whole checkpoint, or None."""
  if not (workdir / FOLDER).is_dir():
    return None
  with Checkpointer(workdir, None, create=False) as opened:
    return opened.latest_step()


@contextlib.contextmanager
def open_to_read(
  workdir: pathlib.Path, step: int | None = None
) -> Iterator[tuple[Checkpointer, int]]:
  """Yields a run's checkpoints to restore from, and the step to restore.

  Args:
    workdir: the folder of the run, perhaps one that still trains; nothing is
      written to it.
    step: the step to restore; None: the newest.

  Raises:
    ValueError: the folder holds no such checkpoint.
  """
  if newest_step(workdir) is None:
    raise ValueError(f"{workdir} holds no finished checkpoint")
  with Checkpointer(workdir, None, create=False) as opened:
    steps = opened.steps()
    if step is not None and step not in steps:
      raise ValueError(
        f"{workdir} no longer holds the checkpoint of step {step}: expected "
        f"one of {steps}"
      )
    yield opened, steps[-1] if step is None else step
