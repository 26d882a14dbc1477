"""What a run's folder holds, read for people."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from azr_jax import folders, metrics, safety
from azr_jax.benchmarks import registry

# What `azr_jax.evaluate` writes.
_RESULTS = "results.json"
_PASS = re.compile(r"(\w+)/pass@1/unbiased")


@dataclasses.dataclass(frozen=True)
class Run:
  """A run, as far as it has come.

  Attributes:
    name: of its folder, with as many parents' as it takes to tell runs apart.
    config: its configuration, flat: values by dotted key.
    steps: the steps that have metrics.
    values: by metric, a value for each of `steps`, or None.
    samples: the texts kept, oldest first; each says its `step`.
    flagged: those that a rule found, alike.
    scores: pass@1 by benchmark, each with its standard error.
  """

  name: str
  config: dict[str, Any]
  steps: list[int]
  values: dict[str, list[float | None]]
  samples: list[dict[str, Any]]
  flagged: list[dict[str, Any]]
  scores: dict[str, tuple[float, float]]

  def series(
    self, pattern: str, apart_from: Collection[str] = ()
  ) -> dict[str, list[float | None]]:
    """Metrics by label.

    Args:
      pattern: of their whole names; its groups are the label.
      apart_from: metrics that are left out.
    """
    found = {
      name: re.fullmatch(pattern, name)
      for name in self.values
      if name not in apart_from
    }
    return {
      " ".join(match.groups()): self.values[name]
      for name, match in found.items()
      if match
    }


def read_runs(
  paths: Sequence[str], scores: Sequence[str] | None = None
) -> list[Run]:
  """Reads run folders.

  Args:
    paths: of the folders, or URLs of an object store.
    scores: a folder of `azr_jax.evaluate` for each; None: `PATH_scores` where
      it is there.

  Raises:
    ValueError: a folder holds no metrics.
  """
  found = [folders.resolve(path.rstrip("/")) for path in paths]
  beside = [folder.with_name(f"{folder.name}_scores") for folder in found]
  if scores is not None:
    beside = [folders.resolve(path) for path in scores]
  return [
    _read_run(folder, name, read_scores(own))
    for folder, name, own in zip(found, _names(found), beside, strict=True)
  ]


def _names(paths: Sequence[pathlib.Path]) -> list[str]:
  """The shortest ends of the paths that differ."""
  for length in range(1, max(len(path.parts) for path in paths) + 1):
    names = ["/".join(path.parts[-length:]) for path in paths]
    if len({*names}) == len(names):
      return names
  return [f"{path.name} ({place})" for place, path in enumerate(paths, 1)]


def _read_run(
  folder: pathlib.Path, name: str, scores: dict[str, tuple[float, float]]
) -> Run:
  path = folder / metrics.METRICS
  lines = _json_lines(path) if path.exists() else []
  if not lines:
    raise ValueError(f"{path}: expected the metrics of a run")
  names = dict.fromkeys(key for line in lines for key in line if key != "step")
  config_path = folder / "config.json"
  config = {}
  if config_path.exists():
    config = _flat(json.loads(config_path.read_text(encoding="utf-8")))
  return Run(
    name=name,
    config=config,
    steps=[line["step"] for line in lines],
    values={key: [line.get(key) for line in lines] for key in sorted(names)},
    samples=_texts(folder / metrics.SAMPLES),
    flagged=_texts(folder / safety.FOLDER),
    scores=scores,
  )


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
  found: dict[str, Any] = {}
  for key, value in config.items():
    if isinstance(value, dict):
      found |= _flat(value, f"{prefix}{key}.")
    else:
      found[prefix + key] = value
  return found


def _texts(folder: pathlib.Path) -> list[dict[str, Any]]:
  """The records of files that are called by their step."""
  if not folder.exists():
    return []
  paths = sorted(folder.glob("*.jsonl"), key=lambda path: path.name)
  return [
    {"step": int(path.stem)} | record
    for path in paths
    if path.stem.isdigit()
    for record in _json_lines(path)
  ]


def _json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
  """The whole lines; the last may be one that is being written."""
  found = []
  for line in path.read_text(encoding="utf-8").split("\n"):
    try:
      record = json.loads(line)
    except ValueError:
      continue
    if isinstance(record, dict):
      found.append(record)
  return found


def read_scores(folder: pathlib.Path) -> dict[str, tuple[float, float]]:
  """Scores of a folder of `azr_jax.evaluate`, and of those within it.

  Returns:
    By benchmark, and by average of `registry`, pass@1 and its standard error,
    0 for an average; {} where there are none.
  """
  found: dict[str, tuple[float, float]] = {}
  if not folder.exists():
    return found
  paths = [folder / _RESULTS, *sorted(folder.glob(f"*/{_RESULTS}"))]
  for path in filter(lambda path: path.exists(), paths):
    within = "" if path.parent == folder else f" ({path.parent.name})"
    scores = json.loads(path.read_text(encoding="utf-8"))["scores"]
    for name, value in scores.items():
      if match := _PASS.fullmatch(name):
        error = scores.get(f"{name}_error", 0.0)
        found[match[1] + within] = (value, error)
  averages = registry.averages({name: v for name, (v, _) in found.items()})
  return found | {name: (value, 0.0) for name, value in averages.items()}
