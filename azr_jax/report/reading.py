"""What a run's folder holds, read for people."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from azr_jax.evals import registry
from azr_jax.run import metrics, storage, text_monitor

# What `azr_jax.evaluate` writes.
_RESULTS = "results.json"
_LARGEST = 1e100  # Of a metric; larger ones (and no numbers) are not drawn.
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
  paths: Sequence[str],
  scores: Sequence[str] | None = None,
  most_texts: int = 300,
) -> list[Run]:
  """Reads run folders.

  Args:
    paths: of the folders, or URLs of an object store.
    scores: a folder of `azr_jax.evaluate` for each; None: `PATH_scores` where
      it is there.
    most_texts: of a run's samples, and of its flagged texts; evenly over the
      steps.

  Raises:
    ValueError: a folder holds no metrics.
  """
  found = [storage.resolve(path.rstrip("/")) for path in paths]
  beside = [folder.with_name(f"{folder.name}_scores") for folder in found]
  if scores is not None:
    beside = [storage.resolve(path) for path in scores]
  return [
    _read_run(folder, name, read_scores(own), most_texts)
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
  folder: pathlib.Path,
  name: str,
  scores: dict[str, tuple[float, float]],
  most_texts: int,
) -> Run:
  path = folder / metrics.METRICS
  lines = _json_lines(path) if path.exists() else []
  lines = [line for line in lines if isinstance(line.get("step"), int)]
  if not lines:
    raise ValueError(f"{path}: expected the metrics of a run")
  names = dict.fromkeys(key for line in lines for key in line if key != "step")
  config_path = folder / "config.json"
  config = next(iter(_json(config_path)), {}) if config_path.exists() else {}
  return Run(
    name=name,
    config=_flat(config),
    steps=[line["step"] for line in lines],
    values={
      key: [_number(line.get(key)) for line in lines] for key in sorted(names)
    },
    samples=_texts(folder / metrics.SAMPLES, most_texts),
    flagged=_texts(folder / text_monitor.FOLDER, most_texts),
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


def _number(value: Any) -> float | None:
  """What can be drawn."""
  is_number = isinstance(value, int | float) and abs(value) < _LARGEST
  return float(value) if is_number else None


def _texts(folder: pathlib.Path, most: int) -> list[dict[str, Any]]:
  """The records of files called by their step: about so many, evenly.

  Only as many files as that are read: there may be one for each of thousands of
  steps, in an object store.
  """
  if not folder.exists() or not most:
    return []
  paths = [path for path in folder.glob("*.jsonl") if path.stem.isdecimal()]
  paths = sorted(paths, key=lambda path: path.name)
  if not paths:
    return []
  # Whole files, so that no group of texts is left out; the last for certain.
  each = max(len(_json_lines(paths[-1])), 1)
  count = min(max(most // each, 1), len(paths))
  chosen = [paths[-1 - i * len(paths) // count] for i in range(count)]
  records = [
    {"step": int(path.stem)} | record
    for path in reversed(chosen)
    for record in _json_lines(path)
  ]
  return records[-most:]


def _json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
  """The objects of a file's lines, of which the last may be half written."""
  return list(_json(path, lines=True))


def _json(path: pathlib.Path, lines: bool = False) -> Iterator[dict[str, Any]]:
  """The objects in a file's lines, or in all of it; leaves out what is none."""
  text = path.read_bytes().decode("utf-8", "replace")
  for part in text.split("\n") if lines else [text]:
    try:
      record = json.loads(part)
    except (ValueError, RecursionError):
      continue
    if isinstance(record, dict):
      yield record


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
    scores = next(_json(path), {}).get("scores", {})
    for name, value in scores.items():
      if match := _PASS.fullmatch(name):
        error = scores.get(f"{name}_error", 0.0)
        found[match[1] + within] = (value, error)
  averages = registry.averages({name: v for name, (v, _) in found.items()})
  return found | {name: (value, 0.0) for name, value in averages.items()}
