"""Sends metrics to experiment trackers, besides the files of a run.

The run's own files have everything. So a tracker that cannot be opened stops a
run before its first step, and one that fails later is left out with a line on
the terminal, and the run goes on.

A run keeps its number in a tracker, so a resumed run continues the same curves.
It repeats the steps after its last checkpoint; the later value of a step is
the one that the run's files have.
"""

import dataclasses
import importlib
import json
import pathlib
import tempfile
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from azr_jax.config import user_files
from azr_jax.config.settings import Invalid, Settings, setting
from azr_jax.run import folder as folder_lib
from azr_jax.run import storage
from azr_jax.run.console import print_status

WANDB, TRACKIO = TRACKERS = ("wandb", "trackio")
# The file of a run's folder that says how trackers know the run.
_IDS = "trackers.json"


@dataclasses.dataclass(frozen=True)
class TrackerSettings(Settings):
  """Section `train.trackers`: where metrics go besides the run's folder."""

  names: tuple[str, ...] = setting(
    (), "trackers that get the metrics", subset_of=TRACKERS
  )
  project: str = setting(
    "azr_jax", "the project that the run belongs to there", expert=True
  )


class Tracker(Protocol):
  """A run in a tracker."""

  def write(self, step: int, metrics: Mapping[str, float]) -> None:
    """Sends the metrics of a step."""
    ...

  def close(self) -> None:
    """Sends what is left, and ends the run there."""
    ...


class _Wandb:
  """A run in Weights & Biases."""

  def __init__(
    self, project: str, run_id: str, path: pathlib.Path, config: dict[str, Any]
  ):
    wandb = importlib.import_module("wandb")
    # Its own files cannot lie in an object store.
    is_local = not storage.is_object_store(path)
    self._run = wandb.init(
      project=project,
      name=path.name,
      id=run_id,
      resume="allow",
      dir=str(path) if is_local else tempfile.mkdtemp(),
      config=config,
    )
    # Its own counter of steps cannot go back, as a resumed run does.
    self._run.define_metric("step")
    self._run.define_metric("*", step_metric="step")

  def write(self, step: int, metrics: Mapping[str, float]) -> None:
    self._run.log({"step": step, **metrics})

  def close(self) -> None:
    self._run.finish()


class _Trackio:
  """A run in Trackio, whose data base is on this machine unless it is told."""

  def __init__(
    self, project: str, run_id: str, path: pathlib.Path, config: dict[str, Any]
  ):
    trackio = importlib.import_module("trackio")
    # Trackio knows runs by their names alone.
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
  TRACKIO: "a data base or server that can be written",
}


class Trackers:
  """The trackers of a run, on its primary host."""

  def __init__(self, settings: TrackerSettings, path: pathlib.Path):
    """Opens the run in each tracker.

    Args:
      settings: which trackers.
      path: the run's folder.

    Raises:
      Invalid: a tracker cannot be opened.
      ModuleNotFoundError: its package is not installed.
    """
    self._open: dict[str, Tracker] = {}
    if not settings.names:
      return
    run_id, config = _run_id(path), folder_lib.read_config(path)
    for name in settings.names:
      try:
        self._open[name] = _CLASSES[name](
          settings.project, run_id, path, config
        )
      except ModuleNotFoundError:
        raise
      except Exception as error:
        reason = " ".join(str(error).split())
        raise Invalid(
          "train.trackers.names",
          f"={name!r}: expected {_HINTS[name]} ({reason})",
        ) from error

  def write(self, step: int, metrics: Mapping[str, float]) -> None:
    """Sends the metrics of a step to each tracker that still works."""
    for name, tracker in list(self._open.items()):
      try:
        tracker.write(step, metrics)
      except Exception as error:  # noqa: BLE001 - a library's, of any kind.
        del self._open[name]
        print_status(f"{name} gets no more metrics of this run: {error}")

  def close(self) -> None:
    """Ends the run in each tracker."""
    for name, tracker in self._open.items():
      try:
        tracker.close()
      except Exception as error:  # noqa: BLE001 - a library's, of any kind.
        print_status(f"{name} may lack the last metrics of this run: {error}")


def _run_id(path: pathlib.Path) -> str:
  """Returns the id of the run in the folder; a new one in a new folder."""
  file = path / _IDS
  if file.exists():
    return str(user_files.read_object(file)["id"])
  run_id = uuid.uuid4().hex[:8]
  storage.write_atomically(file, json.dumps({"id": run_id}) + "\n")
  return run_id
