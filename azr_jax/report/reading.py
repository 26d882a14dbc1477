"""Reads a run folder: its config, metrics, sampled texts and scores.

Partial lines and files of a run that is training or was killed are skipped.
"""

import dataclasses
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from azr_jax.evals import registry
from azr_jax.run import json_lines, metrics, storage, text_monitor
from azr_jax.run.starts import STARTS

_RESULTS = "results.json"  # written by `azr_jax.evaluate`
_MAX_VALUE = 1e100  # larger metric values are not drawn
_PASS_AT_1 = re.compile(r"(\w+)/pass@1/unbiased")


@dataclasses.dataclass(frozen=True)
class LoggedRun:
  """A run, up to its last logged step.

  Attributes:
    name: the shortest end of its path that distinguishes it from other runs.
    folder: the run folder.
    config: the config as values by dotted key.
    steps: the steps that have metrics.
    values: for each metric, one value or None per entry of `steps`.
    samples: records of sampled texts with their `step`, oldest first.
    flagged: records of texts flagged by the text monitor, likewise.
    scores: for each benchmark, pass@1 and its standard error.
    scores_folder: the folder with the results of `azr_jax.evaluate`.
    starts: records of `run/starts.py`, oldest first.
    updated: when the metrics were last written, in seconds since 1970.
  """

  name: str
  folder: pathlib.Path
  config: dict[str, Any]
  steps: list[int]
  values: dict[str, list[float | None]]
  samples: list[dict[str, Any]]
  flagged: list[dict[str, Any]]
  scores: dict[str, tuple[float, float]]
  scores_folder: pathlib.Path
  starts: list[dict[str, Any]]
  updated: float

  @property
  def done(self) -> int:
    """The last training step; later lines only have final scores."""
    trained = self.values.get("time/step", [])
    steps = [s for s, v in zip(self.steps, trained, strict=False) if v]
    return steps[-1] if steps else self.steps[-1]

  def up_to(self, name: str, step: int) -> list[float | None]:
    """Returns the values of a metric up to a step."""
    count = sum(one <= step for one in self.steps)
    return self.values[name][:count]

  def names(
    self, pattern: str, apart_from: Collection[str] = ()
  ) -> dict[str, str]:
    """Returns the metrics that match a pattern, by label; see `series`."""
    matches = {
      name: re.fullmatch(pattern, name)
      for name in self.values
      if name not in apart_from
    }
    return {
      " ".join(match.groups()): name for name, match in matches.items() if match
    }

  def series(
    self, pattern: str, apart_from: Collection[str] = ()
  ) -> dict[str, list[float | None]]:
    """Returns the values of the metrics that match a pattern.

    Args:
      pattern: a regular expression that matches whole metric names. Its groups,
        joined by spaces, are the label.
      apart_from: metrics to leave out.

    Returns:
      For each label, one value or None per step.
    """
    return {
      label: self.values[name]
      for label, name in self.names(pattern, apart_from).items()
    }


def read_runs(
  paths: Sequence[str],
  scores: Sequence[str] | None = None,
  max_texts: int = 300,
) -> list[LoggedRun]:
  """Reads run folders.

  Args:
    paths: the folders, as local paths or URLs of an object store.
    scores: a folder of `azr_jax.evaluate` per run. None looks for
      `PATH_scores`.
    max_texts: the maximum number of samples and of flagged texts per run,
      spread evenly over the steps.

  Raises:
    ValueError: a folder has no metrics.
  """
  # A path such as "." has no name of its own.
  folders = [storage.absolute(path.rstrip("/")) for path in paths]
  if scores is None:
    score_folders = [
      folder.with_name(f"{folder.name}_scores") for folder in folders
    ]
  else:
    score_folders = [storage.resolve(path) for path in scores]
  return [
    _read_run(folder, name, score_folder, max_texts)
    for folder, name, score_folder in zip(
      folders, _names(folders), score_folders, strict=True
    )
  ]


def _names(paths: Sequence[pathlib.Path]) -> list[str]:
  """Returns the shortest suffixes of the paths that are distinct."""
  for length in range(1, max(len(path.parts) for path in paths) + 1):
    names = ["/".join(path.parts[-length:]) for path in paths]
    if len({*names}) == len(names):
      return names
  return [f"{path.name} ({number})" for number, path in enumerate(paths, 1)]


def _read_run(
  folder: pathlib.Path,
  name: str,
  scores_folder: pathlib.Path,
  max_texts: int,
) -> LoggedRun:
  path = folder / metrics.METRICS
  if not path.exists():
    raise ValueError(f"{path}: there is no such file; expected a run's folder")
  lines = json_lines.read(path)
  lines = [line for line in lines if isinstance(line.get("step"), int)]
  if not lines:
    raise ValueError(f"{path}: expected the metrics of a run")
  names = dict.fromkeys(key for line in lines for key in line if key != "step")
  config_path = folder / "config.json"
  config = json_lines.read_one(config_path)
  return LoggedRun(
    name=name,
    folder=folder,
    config=_flat(config),
    steps=[line["step"] for line in lines],
    values={
      key: [_number(line.get(key)) for line in lines] for key in sorted(names)
    },
    samples=_texts(folder / metrics.SAMPLES, max_texts),
    flagged=_texts(folder / text_monitor.FOLDER, max_texts),
    scores=read_scores(scores_folder),
    scores_folder=scores_folder,
    starts=json_lines.read(folder / STARTS)
    if (folder / STARTS).exists()
    else [],
    updated=_written(path),
  )


def _written(path: pathlib.Path) -> float:
  """Returns when a file was last written, locally or in an object store."""
  status: Any = path.stat()
  return float(getattr(status, "st_mtime", None) or getattr(status, "mtime", 0))


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
  """Returns the values of a nested config by dotted key."""
  values: dict[str, Any] = {}
  for key, value in config.items():
    if isinstance(value, dict):
      values |= _flat(value, f"{prefix}{key}.")
    else:
      values[prefix + key] = value
  return values


def _number(value: Any) -> float | None:
  """Returns a value that can be drawn, or None."""
  is_number = isinstance(value, int | float) and abs(value) < _MAX_VALUE
  return float(value) if is_number else None


def _texts(folder: pathlib.Path, max_texts: int) -> list[dict[str, Any]]:
  """Reads about `max_texts` records of a folder, evenly over the steps.

  Each file is named by its step. No more files are read than needed, because an
  object store may hold thousands.
  """
  if not folder.exists() or not max_texts:
    return []
  paths = [path for path in folder.glob("*.jsonl") if path.stem.isdecimal()]
  paths = sorted(paths, key=lambda path: path.name)
  if not paths:
    return []
  # Read whole files, so that no group of texts is incomplete. The last file is
  # always included.
  per_file = max(len(json_lines.read(paths[-1])), 1)
  count = min(max(max_texts // per_file, 1), len(paths))
  chosen = [paths[-1 - i * len(paths) // count] for i in range(count)]
  records = [
    {"step": int(path.stem)} | record
    for path in reversed(chosen)
    for record in json_lines.read(path)
  ]
  return records[-max_texts:]


def read_scores(folder: pathlib.Path) -> dict[str, tuple[float, float]]:
  """Reads the scores in a folder of `azr_jax.evaluate` and its subfolders.

  Returns:
    For each benchmark, pass@1 and its standard error, plus the averages of
    `registry.averages` with error 0. {} if there are no scores.
  """
  passes: dict[str, tuple[float, float]] = {}
  if not folder.exists():
    return passes
  paths = [folder / _RESULTS, *sorted(folder.glob(f"*/{_RESULTS}"))]
  for path in filter(lambda path: path.exists(), paths):
    subfolder = "" if path.parent == folder else f" ({path.parent.name})"
    scores = json_lines.read_one(path).get("scores", {})
    for name, value in scores.items():
      if match := _PASS_AT_1.fullmatch(name):
        error = scores.get(f"{name}_stderr", 0.0)
        passes[match[1] + subfolder] = (value, error)
  averages = registry.averages({name: v for name, (v, _) in passes.items()})
  return passes | {name: (value, 0.0) for name, value in averages.items()}
