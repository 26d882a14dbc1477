"""Reads the checkpoints of another run, which may still be training.

Nothing is written to the run's folder.
"""

import contextlib
import pathlib
from collections.abc import Iterator

import orbax.checkpoint as ocp

from azr_jax.parallel.hosts import Hosts
from azr_jax.run import checksums
from azr_jax.run.checkpoint import FOLDER, Checkpointer
from azr_jax.run.console import print_status


def newest_step(
  workdir: pathlib.Path, hosts: Hosts | None = None
) -> int | None:
  """Returns the step of a folder's newest undamaged checkpoint, or None.

  Nothing is written to the folder. Damaged checkpoints are reported.

  Args:
    workdir: the folder of a run, which may still be training.
    hosts: see `Checkpointer.newest_undamaged`.

  Raises:
    ValueError: all checkpoints are damaged.
  """
  if not (workdir / FOLDER).is_dir():
    return None
  with Checkpointer(workdir, None, create=False) as opened:
    step, damages = opened.newest_undamaged(hosts)
  for damage in damages if hosts is None or hosts.is_primary else ():
    print_status(f"{workdir}: {damage}; step {step} is read instead")
  return step or None


def require_undamaged(workdir: pathlib.Path, step: int) -> None:
  """Raises ValueError with the file's name if a checkpoint is damaged."""
  damage = checksums.find_damage(workdir / FOLDER / str(step))
  if damage:
    raise ValueError(
      f"{workdir}: the checkpoint of step {step} is damaged ({damage}): "
      "expected the one that this run started from"
    )


def find_damage(
  workdir: pathlib.Path, step: int, hosts: Hosts | None = None
) -> str:
  """Returns what is wrong with a checkpoint of a folder, "" if nothing is.

  Args:
    workdir: the folder of a run, which may still be training.
    step: the step of the checkpoint.
    hosts: see `Checkpointer.newest_undamaged`.
  """
  with Checkpointer(workdir, None, create=False) as opened:
    return opened.find_damage(step, hosts)


def finished_steps(workdir: pathlib.Path) -> list[int]:
  """Returns the steps of a folder's finished checkpoints, damaged or not."""
  if not (workdir / FOLDER).is_dir():
    return []
  found = ocp.path.step.standard_name_format().find_all(workdir / FOLDER)
  return sorted(step.step for step in found)


@contextlib.contextmanager
def open_to_read(
  workdir: pathlib.Path, step: int | None = None
) -> Iterator[tuple[Checkpointer, int]]:
  """Yields a run's checkpoints to restore from, and the step to restore.

  Args:
    workdir: the folder of the run, which may still be training. Nothing is
      written to it.
    step: the step to restore, from `newest_step`. None looks it up.

  Raises:
    ValueError: the folder has no such checkpoint, or only damaged ones.
  """
  if step is None:
    step = newest_step(workdir)
  if step is None:
    raise ValueError(f"{workdir} holds no finished checkpoint")
  with Checkpointer(workdir, None, create=False) as opened:
    steps = opened.steps()
    if step not in steps:
      raise ValueError(
        f"{workdir} no longer holds the checkpoint of step {step}: expected "
        f"one of {steps}"
      )
    yield opened, step
