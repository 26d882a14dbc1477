"""Saves and restores everything that a run owns, together, with Orbax.

Saves are asynchronous and atomic: if the process is killed, readers never see
the unfinished checkpoint. A checkpoint holds:
- the device state: parameters, optimizer, step, and if they exist the critic's
  state and the entropy coefficient;
- the system's host state: task buffers and, with `rollout.max_staleness` or
  `rollout.step_tokens`, the tokens in flight;
- the metrics since the previous checkpoint, and checksums.

A damaged checkpoint is skipped in favour of the one before it, and never
deleted. `checkpoint_reading.py` reads the checkpoints of another run.
"""

import concurrent.futures
import contextlib
import errno
import functools
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import jax
import orbax.checkpoint as ocp

from azr_jax.parallel.hosts import Hosts
from azr_jax.run import checksums, storage
from azr_jax.run.console import print_status
from azr_jax.types import Params

# Names in a run's folder: the folder of checkpoints, and the folder that
# damaged checkpoints are moved to.
FOLDER, DAMAGED = "checkpoints", "damaged_checkpoints"
# The items of a checkpoint: device state, the system's state, and metrics.
# Orbax reads an item named "metrics" of every step, before we can look for
# damage.
_STATE, _SYSTEM, _ROWS = "state", "system", "rows"
# How long a host may take to see a file that another host has finished on a
# shared disk, in seconds.
_SEEN_S = 60.0
# A run's device state: any pytree of arrays.
State = TypeVar("State")


class Checkpointer:
  """Saves and restores a run folder's checkpoints.

  A context manager. At the end it waits for pending saves, also after an error.
  An error of a save never replaces the original error.
  """

  def __init__(
    self,
    workdir: pathlib.Path,
    keep: int | None,
    create: bool = True,
    with_checksums: bool = True,
    hosts: Hosts | None = None,
  ):
    """Opens `workdir/checkpoints`.

    Args:
      workdir: the folder of the run.
      keep: how many of the newest checkpoints to keep. None means all.
      create: whether this process trains the run and holds its folder. The
        folder is then created if missing, and leftovers of killed saves are
        removed.
      with_checksums: whether saves write checksums.
      hosts: the processes that write together. None means this one writes all.
    """
    if not storage.is_object_store(workdir):
      workdir = workdir.absolute()
    self._workdir, self._folder = workdir, workdir / FOLDER
    self._hosts, self._with_checksums = hosts, with_checksums
    self._background = concurrent.futures.ThreadPoolExecutor(1, "checksums")
    self._checksums: concurrent.futures.Future[None] | None = None
    self._manager = ocp.CheckpointManager(
      self._folder,
      # Compression would make the files 8 % smaller, and take two thirds of
      # the time of a save.
      item_handlers={
        _STATE: ocp.PyTreeCheckpointHandler(use_compression=False),
        _SYSTEM: ocp.JsonCheckpointHandler(),
        _ROWS: ocp.JsonCheckpointHandler(),
      },
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep,
        create=create,
        cleanup_tmp_directories=create,
        enable_async_checkpointing=True,
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
      with self._disk_errors():
        self._wait()
        self._manager.close()
    except Exception as unsaved:
      if error is None:
        raise
      print_status(f"the last checkpoint may be lost: {unsaved}")
    finally:
      self._background.shutdown(wait=False)

  def steps(self) -> list[int]:
    """Returns the steps of all finished checkpoints, ascending."""
    return sorted(self._manager.all_steps())

  @functools.partial(jax.profiler.annotate_function, name="save")
  def save(
    self,
    step: int,
    state: Any,
    system: dict[str, Any],
    rows: Sequence[dict[str, Any]] = (),
  ) -> None:
    """Starts saving. Returns once the device state has been copied.

    Args:
      step: the finished step. It must be later than those of all checkpoints.
      state: the device state, a tree of arrays.
      system: the host's state, as JSON.
      rows: the metrics of the steps since the last save.

    Raises:
      OSError: the disk is full. The error may stem from the previous save.
      RuntimeError: there is a checkpoint of this step or a later one.
    """
    with self._disk_errors():
      self._wait()
      is_begun = self._manager.save(
        step,
        args=ocp.args.Composite(
          **{
            _STATE: ocp.args.PyTreeSave(state),
            _SYSTEM: ocp.args.JsonSave(system),
            _ROWS: ocp.args.JsonSave({"rows": list(rows)}),
          }
        ),
      )
    if not is_begun:
      raise RuntimeError(
        f"step {step} cannot be saved in {self._workdir}: expected a step "
        f"after those of its checkpoints, {self.steps()}"
      )
    if self._with_checksums:
      self._checksums = self._background.submit(self._write_checksums, step)

  def _wait(self) -> None:
    """Waits for the pending save and its checksums, and raises their errors."""
    written, self._checksums = self._checksums, None
    self._manager.wait_until_finished()
    if written is not None:
      written.result()

  def _write_checksums(self, step: int) -> None:
    """Writes this host's checksums of a step, once its save is finished.

    Saves have a time limit, and reading all files would not fit into it. A
    finished checkpoint may be used without checksums.
    """
    self._manager.wait_until_finished()
    folder = self._folder / str(step)
    deadline = time.monotonic() + _SEEN_S
    while not folder.is_dir() and time.monotonic() < deadline:
      time.sleep(0.1)
    if self._hosts is None:
      checksums.write(folder)
      return
    try:
      checksums.write(folder, self._hosts.index, self._hosts.count)
    finally:
      # No host may exit, or remove a checkpoint, while another still reads it.
      self._hosts.barrier(f"checksums of step {step} are written")

  @contextlib.contextmanager
  def _disk_errors(self) -> Iterator[None]:
    """Converts errors that mean a full disk into OSError."""
    try:
      yield
    except Exception as error:
      number = _disk_error(error)
      if not number:
        raise
      # Orbax's message lists every tensor that failed. This one is short.
      raise OSError(number, os.strerror(number), str(self._folder)) from error

  def restore(
    self, step: int, abstract_state: State
  ) -> tuple[State, dict[str, Any]]:
    """Restores a step directly into its shards.

    Args:
      step: one of `steps()`.
      abstract_state: shapes, dtypes and shardings of the device state.
    """
    restored = self._manager.restore(
      step,
      args=ocp.args.Composite(
        state=ocp.args.PyTreeRestore(
          abstract_state,
          ocp.checkpoint_utils.construct_restore_args(abstract_state),
        ),
        system=ocp.args.JsonRestore(),
      ),
    )
    return restored["state"], restored["system"]

  def restore_params(
    self, step: int, policy: Params | None, critic: Params | None = None
  ) -> tuple[Params, ...]:
    """Restores only parameters, directly into their shards.

    Optimizer moments are most of a checkpoint, and only training needs them.

    Args:
      step: one of `steps()`.
      policy: shapes, dtypes and shardings of the policy's parameters. None
        skips them.
      critic: the same for the critic. None skips the critic's parameters.

    Returns:
      The policy's parameters, and the critic's, if requested and present.
    """
    path = self._manager.directory / str(step) / _STATE
    saved = ocp.PyTreeCheckpointHandler().metadata(path).tree
    item: dict[str, Any] = {"params": policy}
    if "policy" in saved:
      asked = {"policy": policy, "critic": critic}
      item = {
        name: {"params": params}
        for name, params in asked.items()
        if params is not None
      }
    elif policy is None:
      return ()
    args = ocp.args.PyTreeRestore(
      item,
      restore_args=ocp.checkpoint_utils.construct_restore_args(item),
      partial_restore=True,
    )
    # A manager keeps the handler it first restored an item with, so this
    # partial restore uses its own manager.
    with ocp.CheckpointManager(
      self._folder,
      options=ocp.CheckpointManagerOptions(create=False),
    ) as manager:
      state = manager.restore(step, args=ocp.args.Composite(state=args))[_STATE]
    if "params" in state:
      return (state["params"],)
    networks = [state[name] for name in ("policy", "critic") if name in state]
    return tuple(network["params"] for network in networks)

  def restore_rows(self, step: int) -> list[dict[str, Any]]:
    """Restores the metrics saved with a step, or [] if there are none."""
    if not (self._folder / str(step) / _ROWS).is_dir():
      return []
    restored = self._manager.restore(
      step, args=ocp.args.Composite(**{_ROWS: ocp.args.JsonRestore()})
    )
    return restored[_ROWS]["rows"]

  def newest_undamaged(
    self, hosts: Hosts | None = None
  ) -> tuple[int, list[str]]:
    """Returns the step of the newest undamaged checkpoint.

    Args:
      hosts: the processes that share the reading. All of them call this, and
        see the same checkpoints. None means this process reads everything.

    Returns:
      The step, or 0 without checkpoints; and a description of the damage of
      each later checkpoint, newest first.

    Raises:
      ValueError: there are checkpoints, and all are damaged.
    """
    damages: list[str] = []
    for step in reversed(self.steps()):
      damage = self.find_damage(step, hosts)
      if not damage:
        return step, damages
      damages.append(f"the checkpoint of step {step} is damaged ({damage})")
    if damages:
      raise ValueError(
        f"{'; '.join(damages)}: no other is left in {self._folder}; "
        "expected an undamaged one, or another --workdir"
      )
    return 0, []

  def find_damage(self, step: int, hosts: Hosts | None) -> str:
    """Returns what is wrong with a checkpoint. All hosts return the same."""
    folder = self._folder / str(step)
    if hosts is None or hosts.count == 1:
      return checksums.find_damage(folder)
    mine = checksums.find_damage(folder, hosts.index, hosts.count)
    found = hosts.all_gather(f"checksums of step {step}", mine.encode())
    return next((text.decode() for text in found if text), "")

  def move_damaged(self, after: int, hosts: Hosts) -> None:
    """Moves the checkpoints after a step to the folder of damaged ones.

    Otherwise new saves of the same steps would replace them.

    Args:
      after: the last step that stays.
      hosts: the processes of the run. All of them call this.
    """
    error = None
    if hosts.is_primary:
      try:
        for step in self.steps():
          if step > after:
            self._move_away(step)
      except OSError as caught:
        error = caught
    hosts.raise_on_all("damaged checkpoints", error)
    self._manager.reload()

  def _move_away(self, step: int) -> None:
    folder = self._workdir / DAMAGED
    folder.mkdir(exist_ok=True)
    names = {path.name for path in folder.iterdir()}
    name, number = str(step), 1
    while name in names:
      number += 1
      name = f"{step}_{number}"
    (self._folder / str(step)).rename(folder / name)

  def restore_system(self, step: int) -> dict[str, Any]:
    """Restores only the system's host state."""
    restored = self._manager.restore(
      step, args=ocp.args.Composite(system=ocp.args.JsonRestore())
    )
    return restored["system"]


def _disk_error(error: BaseException) -> int:
  """Returns the errno of a full disk if that caused an error, else 0."""
  full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
  if isinstance(error, OSError) and error.errno in full:
    return error.errno
  text = str(error)
  return next((number for number in full if os.strerror(number) in text), 0)
