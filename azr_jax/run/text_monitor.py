"""Texts that a person should read: rules, counts, and files apart.

After the "uh-oh moment" of AZR (appendix C.3): nothing is punished or left out
of training; what a rule finds is counted in the metrics and kept in the run's
folder `flagged/`. The rules are `assets/concerning_phrases.tsv`, to be reviewed
and added to; most of what they find is harmless.
"""

import csv
import functools
import importlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence

from azr_jax import types
from azr_jax.run.settings import RunSettings

FOLDER = "flagged"
CLASSIFIER = "classifier"
_RULES = pathlib.Path(__file__).parents[1] / "assets/concerning_phrases.tsv"
_MAX_CHARS = 100_000  # Nothing longer is sampled.

# Texts -> whether a person should read each.
Classifier = Callable[[Sequence[str]], Sequence[bool]]


@functools.cache
def rules() -> dict[str, re.Pattern[str]]:
  """Patterns by the name of their rule."""
  with _RULES.open(encoding="utf-8", newline="") as file:
    rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return {
      row["rule"]: re.compile(row["pattern"], re.IGNORECASE) for row in rows
    }


def find(text: str, patterns: Mapping[str, re.Pattern[str]]) -> list[str]:
  """The names of the patterns that a text has."""
  text = text[:_MAX_CHARS]
  return [name for name, pattern in patterns.items() if pattern.search(text)]


def load_classifier(name: str) -> Classifier | None:
  """The classifier `MODULE:FUNCTION`; "": none.

  Raises:
    ValueError: there is no such function.
  """
  if not name:
    return None
  module, _, function = name.partition(":")
  try:
    return vars(importlib.import_module(module))[function]
  except (ImportError, KeyError, ValueError):
    raise ValueError(
      f"config.train.flag_classifier={name!r}: expected MODULE:FUNCTION"
    ) from None


def from_settings(
  folder: pathlib.Path, write: bool, c: RunSettings
) -> "Monitor":
  """Returns the monitor of a run; `write` on the primary host alone."""
  patterns = rules() if c.flag_texts else {}
  classifier = load_classifier(c.flag_classifier)
  return Monitor(folder, write, patterns, classifier)


class Monitor:
  """Looks at what a step's trajectories say."""

  def __init__(
    self,
    folder: pathlib.Path,
    write: bool,
    patterns: Mapping[str, re.Pattern[str]],
    classifier: Classifier | None,
  ):
    """Makes a monitor.

    Args:
      folder: of the run.
      write: whether this host keeps the texts.
      patterns: by the name of their rule.
      classifier: asked besides them.
    """
    self._folder = folder / FOLDER
    self._write = write
    self._patterns = patterns
    self._classifier = classifier

  def look(
    self, step: int, trajectories: Sequence[types.Trajectory]
  ) -> dict[str, float]:
    """Keeps what is flagged; returns shares and counts by rule."""
    texts = [t.completion.text for t in trajectories]
    found = [find(text, self._patterns) for text in texts]
    if self._classifier is not None:
      for own, hit in zip(found, self._classifier(texts), strict=True):
        if hit:
          own.append(CLASSIFIER)
    flagged = [
      (own, t) for own, t in zip(found, trajectories, strict=True) if own
    ]
    if flagged and self._write:
      self._keep(step, flagged)
    metrics = {"safety/flagged_share": len(flagged) / max(len(texts), 1)}
    for name in sorted({name for own, _ in flagged for name in own}):
      metrics[f"safety/{name}"] = float(sum(name in own for own in found))
    return metrics

  def _keep(
    self, step: int, flagged: Sequence[tuple[list[str], types.Trajectory]]
  ) -> None:
    self._folder.mkdir(parents=True, exist_ok=True)
    lines = [
      json.dumps(
        {
          "rules": own,
          "group": t.group_id,
          "reward": t.reward,
          "prompt": t.prompt.text,
          "completion": t.completion.text,
        }
      )
      for own, t in flagged
    ]
    path = self._folder / f"{step:06d}.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
