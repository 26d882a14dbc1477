"""Sends metrics to experiment trackers, in addition to the run's files.

The run's own files have everything. So a tracker that cannot be opened stops
the run before its first step, but one that fails later is dropped with a
message and the run continues.

A run keeps its id in a tracker, so a resumed run continues the same curves. It
repeats the steps after its last checkpoint; the later value of a step is the
one in the run's files.
"""

import dataclasses
import importlib
import json
import pathlib
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from azr_jax.config import user_files
from azr_jax.config.settings import Invalid, Settings, setting
from azr_jax.run import folder as folder_lib
from azr_jax.run import storage
from azr_jax.run.console import print_status

WANDB, TRACKIO = TRACKERS = ("wandb", "trackio")
# A file in a run's folder with the run's id in the trackers.
_IDS = "trackers.json"


@dataclasses.dataclass(frozen=True)
class TrackerSettings(Settings):
  """Section `train.trackers`: where metrics go besides the run's folder."""

  names: tuple[str, ...] = setting(
    (), "trackers to send metrics to", subset_of=TRACKERS
  )
  project: str = setting(
    "azr_jax", "name of the project in the trackers", expert=True
  )


class Tracker(Protocol):
  """A run in a tracker."""

  def write(self, step: int, metrics: Mapping[str, float]) -> None:
    """Sends the metrics of a step."""
    ...

  def close(self) -> None:
    """Sends pending metrics, and ends the run in the tracker."""
    ...


class _Wandb:
  """A run in Weights & Biases."""

  def __init__(
    self, project: str, run_id: str, path: pathlib.Path, config: dict[str, Any]
  ):
    wandb = importlib.import_module("wandb")
    # wandb cannot write its own files to an object store.
    is_local = not storage.is_object_store(path)
    self._run = wandb.init(
      project=project,
      name=path.name,
      id=run_id,
      resume="allow",
      dir=str(path) if is_local else tempfile.mkdtemp(),
      config=config,
    )
    # wandb's own step counter cannot go back, as a resumed run does.
    self._run.define_metric("step")
    self._run.define_metric("*", step_metric="step")

  def write(self, step: int, metrics: Mapping[str, float]) -> None:
    self._run.log({"step": step, **metrics})

  def close(self) -> None:
    self._run.finish()


class _Trackio:
  """A run in Trackio, whose database is local unless configured otherwise."""

  def __init__(
    self, project: str, run_id: str, path: pathlib.Path, config: dict[str, Any]
  ):
    trackio = importlib.import_module("trackio")
    # Trackio identifies runs by name alone.
    self._run = trackio.init(
      project=project,
      name=f"{path.name}-{run_id}",
      config=config,
      resume="allow",
      embed=False,
    )

  def write(self, step: int, metrics: Mapping[str, float]) -> None:
    self._run.log(dict(metrics), step=step)

  def close(self) -> None:
    self._run.finish()


_CLASSES: Mapping[str, Callable[..., Tracker]] = {
  WANDB: _Wandb,
  TRACKIO: _Trackio,
}
_HINTS = {
  WANDB: "`wandb login`, WANDB_API_KEY, or WANDB_MODE=offline",
  TRACKIO: "a writable database or server",
}


class Trackers:
  """The trackers of a run, on its primary host."""

  def __init__(self, names: Sequence[str], project: str, path: pathlib.Path):
    """Opens the run in each tracker.

    Args:
      names: some of `TRACKERS`.
      project: the name of the project in the trackers.
      path: the run's folder.

    Raises:
      Invalid: a tracker cannot be opened.
      ModuleNotFoundError: the package of a tracker is not installed.
    """
    self._open: dict[str, Tracker] = {}
    if not names:
      return
    run_id, config = _run_id(path), folder_lib.read_config(path)
    for name in names:
      try:
        self._open[name] = _CLASSES[name](project, run_id, path, config)
      except ModuleNotFoundError:
        raise
      except Exception as error:
        reason = " ".join(str(error).split())
        raise Invalid(
          "train.trackers.names",
          f"={name!r}: expected {_HINTS[name]} ({reason})",
        ) from error

  def write(self, step: int, metrics: Mapping[str, float]) -> None:
    """Sends a step's metrics to each tracker that still works."""
    for name, tracker in list(self._open.items()):
      try:
        tracker.write(step, metrics)
      except Exception as error:  # noqa: BLE001 - trackers may raise anything.
        del self._open[name]
        print_status(f"{name} receives no more metrics of this run: {error}")

  def close(self) -> None:
    """Ends the run in each tracker."""
    for name, tracker in self._open.items():
      try:
        tracker.close()
      except Exception as error:  # noqa: BLE001 - trackers may raise anything.
        print_status(f"{name} may lack the last metrics of this run: {error}")


def _run_id(path: pathlib.Path) -> str:
  """Returns the run's tracker id, creating one for a new folder."""
  file = path / _IDS
  if file.exists():
    return str(user_files.read_object(file)["id"])
  run_id = uuid.uuid4().hex[:8]
  storage.write_atomically(file, json.dumps({"id": run_id}) + "\n")
  return run_id
