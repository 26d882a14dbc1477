"""Everything that a run owns, saved and restored together, with Orbax.

Saves are asynchronous and atomic: a checkpoint that was cut off by a kill is
never seen. A checkpoint holds the device state (parameters, optimizer, step,
and where they exist the critic's and the coefficient of the entropy), the
system's host state (task buffers and, with `rollout.max_staleness` or
`rollout.step_tokens`, the tokens of what is under way) of the same step, the
metrics since the checkpoint before it, and checksums. A damaged one is passed
over for the one before it; it is never deleted. `checkpoint_reading.py` reads
the checkpoints of another run.
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

# The name of the folder of checkpoints in a run's folder, and of the folder
# that a run moves its damaged ones to.
FOLDER, DAMAGED = "checkpoints", "damaged_checkpoints"
# The items of a checkpoint that hold the device state, and metrics.
# Orbax reads an item "metrics" of every step before we can look for damage.
_STATE, _ROWS = "state", "rows"
# How long a host of a shared disk may take to see what another has finished.
_SEEN_S = 60.0
# The device state of a run: any pytree of arrays.
State = TypeVar("State")


class Checkpointer:
  """Saves and restores a run folder's checkpoints.

  It is a context manager that waits for saves under way, also after an error,
  which no error of a save replaces.
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
      keep: how many checkpoints stay, the newest; None: all.
      create: whether this process trains the run and holds its folder, which
        is made if it is missing. What killed saves have left is removed.
      with_checksums: whether saves write checksums.
      hosts: the processes that write them together; None: this one writes all.
    """
    if not storage.is_object_store(workdir):
      workdir = workdir.absolute()
    self._workdir, self._folder = workdir, workdir / FOLDER
    self._hosts, self._with_checksums = hosts, with_checksums
    self._background = concurrent.futures.ThreadPoolExecutor(1, "checksums")
    self._checksums: concurrent.futures.Future[None] | None = None
    self._manager = ocp.CheckpointManager(
      self._folder,
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
    """Returns the steps of all finished checkpoints, in order."""
    return sorted(self._manager.all_steps())

  @functools.partial(jax.profiler.annotate_function, name="save")
  def save(
    self,
    step: int,
    state: Any,
    system: dict[str, Any],
    rows: Sequence[dict[str, Any]] = (),
  ) -> None:
    """Starts saving; returns once the device state has been copied.

    Args:
      step: the step that is done; later than those of all checkpoints.
      state: the device state, a tree of arrays.
      system: the host's state, as JSON.
      rows: the metrics of the steps since the last save.

    Raises:
      OSError: the disk is full; perhaps that of the save before this one.
      RuntimeError: there is a checkpoint of this step or a later one.
    """
    with self._disk_errors():
      self._wait()
      is_begun = self._manager.save(
        step,
        args=ocp.args.Composite(
          state=ocp.args.StandardSave(state),
          system=ocp.args.JsonSave(system),
          **{_ROWS: ocp.args.JsonSave({"rows": list(rows)})},
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
    """Waits for the save under way and its checksums; raises their errors."""
    written, self._checksums = self._checksums, None
    self._manager.wait_until_finished()
    if written is not None:
      written.result()

  def _write_checksums(self, step: int) -> None:
    """Writes this host's checksums of a step, once its save is finished.

    The save itself has a time limit, in which reading all files has no place.
    A checkpoint that is finished may be used without them.
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
      # No host may end, or remove a checkpoint, while another still reads.
      self._hosts.barrier(f"checksums of step {step} are written")

  @contextlib.contextmanager
  def _disk_errors(self) -> Iterator[None]:
    """Raises OSError for errors of the context that mean a full disk."""
    try:
      yield
    except Exception as error:
      number = _disk_error(error)
      if not number:
        raise
      # Orbax's message lists every tensor that failed; this one is short.
      raise OSError(number, os.strerror(number), str(self._folder)) from error

  def restore(
    self, step: int, abstract_state: State
  ) -> tuple[State, dict[str, Any]]:
    """Restores a step straight into its shards.

    Args:
      step: a step of `steps`.
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
    # A manager keeps the handler with which it first restored an item, so this
    # partial restore has its own.
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
    """Restores the metrics that were saved with a step, if there are any."""
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
      hosts: the processes that read the files together; all of them call this,
        and see the same checkpoints. None: this process reads all.

    Returns:
      The step, 0 if there is no checkpoint; and for each later checkpoint,
      newest first, what is wrong with it.

    Raises:
      ValueError: there are checkpoints, and all are damaged.
    """
    damages: list[str] = []
    for step in reversed(self.steps()):
      damage = self._damage(step, hosts)
      if not damage:
        return step, damages
      damages.append(f"the checkpoint of step {step} is damaged ({damage})")
    if damages:
      raise ValueError(
        f"{'; '.join(damages)}: no other is left in {self._folder}; "
        "expected a whole one, or another --workdir"
      )
    return 0, []

  def _damage(self, step: int, hosts: Hosts | None) -> str:
    """Returns what is wrong with a checkpoint, the same on all hosts."""
    folder = self._folder / str(step)
    if hosts is None or hosts.count == 1:
      return checksums.find_damage(folder)
    mine = checksums.find_damage(folder, hosts.index, hosts.count)
    found = hosts.all_gather(f"checksums of step {step}", mine.encode())
    return next((text.decode() for text in found if text), "")

  def move_damaged(self, after: int, hosts: Hosts) -> None:
    """Moves the checkpoints after a step to the folder of damaged ones.

    Saves of the same steps would replace them.

    Args:
      after: the last step that stays.
      hosts: the processes of the run; all of them call this.
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
    """Restores the system's host state alone."""
    restored = self._manager.restore(
      step, args=ocp.args.Composite(system=ocp.args.JsonRestore())
    )
    return restored["system"]


def _disk_error(error: BaseException) -> int:
  """Returns the number of the system's error if a disk is full, else 0."""
  full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
  if isinstance(error, OSError) and error.errno in full:
    return error.errno
  text = str(error)
  return next((number for number in full if os.strerror(number) in text), 0)
