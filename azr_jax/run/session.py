"""A run: its locked folder, its hosts, its checkpoints, and its end.

Every command that writes a folder over many steps or records opens a run:

  with session.open_run(workdir, config, timeout_s) as run:
    ...

The folder is locked for one process and one configuration, and hosts agree on
both. SIGTERM asks the run to stop after its step (`save_schedule.py`). Only the
primary host writes files and prints.
"""

import contextlib
import dataclasses
import datetime
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Shaped

from azr_jax.parallel.hosts import Hosts
from azr_jax.run import (
  checkpoint,
  checkpoint_reading,
  console,
  dates,
  sigterm,
  storage,
)
from azr_jax.run import folder as folder_lib
from azr_jax.run.checkpoint import Checkpointer

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Run:
  """A locked folder and the processes that work on it.

  Attributes:
    folder: the run's folder, local or in an object store.
    hosts: the hosts of the run, as seen from this process.
    preempted: set once SIGTERM has arrived.
    date: the date of the run's first start, which its chat templates show.
  """

  folder: pathlib.Path
  hosts: Hosts
  preempted: threading.Event
  date: datetime.datetime

  @property
  def is_primary(self) -> bool:
    """Whether this process writes files and prints."""
    return self.hosts.is_primary

  def print_status(self, text: str) -> None:
    """Prints a status line on the primary host."""
    if self.is_primary:
      console.print_status(text)

  def keep_config(self, config: Mapping[str, Any]) -> None:
    """Rewrites the folder's config, with the sizes that the run chose."""
    self.hosts.assert_equal("chosen config", config)
    if self.is_primary:
      folder_lib.write_config(self.folder, config)

  def build(self, what: str, make: Callable[[], T]) -> T:
    """Calls `make` on the primary host first, then on the others.

    So other hosts find the files that the primary one writes to a shared disk.
    """
    return self.hosts.primary_first(what, make)

  def barrier(self, what: str) -> None:
    """Waits for all hosts. If a host is too slow, the error names it."""
    self.hosts.barrier(what)

  def assert_same(self, what: str, *arrays: Shaped[np.ndarray, "..."]) -> None:
    """Raises RuntimeError with the hosts' names unless all arrays are equal."""
    self.hosts.assert_equal_arrays(what, *arrays)

  def open_checkpoints(
    self, keep: int, with_checksums: bool = True
  ) -> Checkpointer:
    """Opens the run's checkpoints, of which only the newest `keep` are kept."""
    return Checkpointer(
      self.folder, keep, with_checksums=with_checksums, hosts=self.hosts
    )

  def latest_step(self, checkpoints: Checkpointer) -> int:
    """Returns the step to resume from, the same on all hosts; 0 if none.

    Prints the step. Damaged later checkpoints are reported and moved away.

    Raises:
      RuntimeError: hosts see different checkpoints.
      ValueError: all checkpoints are damaged.
    """
    self.hosts.assert_equal("checkpoints", checkpoints.steps())
    step, damages = checkpoints.newest_undamaged(self.hosts)
    for damage in damages:
      self.print_status(
        f"{damage}: it is moved to {self.folder / checkpoint.DAMAGED}, and "
        f"step {step} is used instead"
      )
    if damages:
      checkpoints.move_damaged(step, self.hosts)
    if step:
      self.print_status(
        f"resuming after step {step} of the run in {self.folder}"
      )
    return step

  def any_host(self, what: str, *mine: bool) -> list[bool]:
    """Returns for each flag whether any host has set it."""
    return self.hosts.any_of_each(what, mine)


@contextlib.contextmanager
def open_run(
  workdir: str,
  config: Mapping[str, Any],
  timeout_s: float,
  mutable_keys: Sequence[str] = folder_lib.MUTABLE_KEYS,
  marker_files: Sequence[str] = folder_lib.RUN_FILES,
  section: str = "config.",
  stops_after_step: bool = True,
  defaults: Mapping[str, Any] | None = None,
) -> Iterator[Run]:
  """Opens a run.

  Args:
    workdir: the folder, local or as gs://BUCKET/FOLDER. Created if missing.
    config: everything that the folder's contents depend on, nested.
    timeout_s: seconds that hosts wait for one another.
    mutable_keys: the keys that a resumed run may change; see `folder.lock`.
    marker_files: patterns of files that exist once a run has started.
    section: the prefix of keys of `config` in error messages.
    stops_after_step: whether SIGTERM stops the command at the end of its step,
      not at once. If at once, pending files are uploaded to an object store
      first.
    defaults: defaults of `config`; see `folder.lock`.

  Raises:
    ValueError: the folder is in use, or belongs to another config.
    RuntimeError: hosts do not agree.
    TimeoutError: a host did not arrive in time.
    KeyboardInterrupt: after Ctrl-C. Its note says what is saved.
  """
  folder = storage.resolve(workdir)
  hosts = Hosts(timeout_s)
  if hosts.is_primary and hosts.count > 1:
    names = ", ".join(map(hosts.name, range(hosts.count)))
    console.print_status(f"{hosts.count} processes have joined: {names}")
  with (
    folder_lib.lock(
      folder, config, hosts, mutable_keys, marker_files, section, defaults
    ),
    sigterm.watch_for_sigterm(
      stops_after_step, storage.is_object_store(folder)
    ) as preempted,
  ):
    run = Run(folder, hosts, preempted, dates.first_start(folder, hosts))
    try:
      yield run
    except KeyboardInterrupt as interruption:
      if run.is_primary:
        records = (
          f"every finished record is saved in {folder}; the same command"
        )
        interruption.add_note(
          _saved_step(folder) if stops_after_step else f"{records} resumes"
        )
      raise


def _saved_step(folder: pathlib.Path) -> str:
  """Describes which step of a run is saved, and how to continue."""
  steps = checkpoint_reading.finished_steps(folder)
  if not steps:
    return f"no step is saved yet in {folder}; the same command starts over"
  return (
    f"step {max(steps)} is saved in {folder}; the same command resumes after it"
  )
