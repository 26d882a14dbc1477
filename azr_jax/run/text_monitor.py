"""Flags texts that deserve human review.

AZR (appendix C.3) reports such a text, the "uh-oh moment". Flagged texts are
counted in the metrics and copied to `flagged/` in the run's folder. All
responses are checked, including those outside the loss, which have no group or
reward. Flagging changes neither rewards nor training. The rules are in
`assets/concerning_phrases.tsv`; most texts they flag are harmless.
"""

import collections
import csv
import functools
import itertools
import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence

from azr_jax import types
from azr_jax.config import named
from azr_jax.run import storage

FOLDER = "flagged"
CLASSIFIER = "classifier"
_RULES = pathlib.Path(__file__).parents[1] / "assets/concerning_phrases.tsv"
# The rules only read this many characters at the start of a text.
_MAX_CHARS = 100_000

Sample = tuple[types.Prompt, types.Completion]
# Texts -> whether each deserves human review.
Classifier = Callable[[Sequence[str]], Sequence[bool]]


@functools.cache
def rules() -> dict[str, re.Pattern[str]]:
  """Returns the patterns by rule name."""
  with _RULES.open(encoding="utf-8", newline="") as file:
    rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return {
      row["rule"]: re.compile(row["pattern"], re.IGNORECASE) for row in rows
    }


def find(text: str, patterns: Mapping[str, re.Pattern[str]]) -> list[str]:
  """Returns the names of the patterns that match a text."""
  text = text[:_MAX_CHARS]
  return [name for name, pattern in patterns.items() if pattern.search(text)]


def load_classifier(name: str) -> Classifier | None:
  """Returns the classifier `MODULE:FUNCTION`, or None for "".

  Raises:
    ValueError: there is no such function.
  """
  if not name:
    return None
  try:
    return named.find(name)
  except ValueError as error:
    raise ValueError(
      f"config.train.flag_classifier={name!r}: expected MODULE:FUNCTION "
      f"({error})"
    ) from error


def make(
  folder: pathlib.Path, write: bool, flag_texts: bool, classifier: str
) -> "Monitor":
  """Creates the monitor of a run.

  Args:
    folder: the folder of the run.
    write: whether this host writes the flagged texts.
    flag_texts: whether the rules flag texts.
    classifier: MODULE:FUNCTION that also flags texts; "" for none.
  """
  return Monitor(
    folder, write, rules() if flag_texts else {}, load_classifier(classifier)
  )


class Monitor:
  """Flags texts among a step's samples."""

  def __init__(
    self,
    folder: pathlib.Path,
    write: bool,
    patterns: Mapping[str, re.Pattern[str]],
    classifier: Classifier | None,
  ):
    """Creates a monitor.

    Args:
      folder: the folder of the run.
      write: whether this host writes the flagged texts.
      patterns: the patterns by rule name.
      classifier: also flags texts. None without a classifier.
    """
    self._folder = folder / FOLDER
    self._write = write
    self._patterns = patterns
    self._classifier = classifier

  def check(
    self,
    step: int,
    samples: Sequence[Sample],
    trajectories: Sequence[types.Trajectory] = (),
    extra: Sequence[Sample] = (),
  ) -> dict[str, float]:
    """Writes the flagged texts of a step to files.

    Args:
      step: the step, which names the files.
      samples: everything that was sampled, with its prompt.
      trajectories: the trajectories to learn from. Their completions are among
        the samples. They add group and reward to flagged texts.
      extra: samples that a killed run does not repeat, such as seeding. Their
        flagged texts get a separate file and count in no metric, because
        metrics must not depend on a kill.

    Returns:
      The flagged fraction of the samples, and the count of each rule.
    """
    if extra:
      self._write_flagged(f"{step:06d}_extra", self._flagged(extra), ())
    flagged = self._flagged(samples)
    self._write_flagged(f"{step:06d}", flagged, trajectories)
    metrics = {"safety/flagged_fraction": len(flagged) / max(len(samples), 1)}
    counts = collections.Counter(
      itertools.chain.from_iterable(names for names, _ in flagged)
    )
    for name in sorted(counts):
      metrics[f"safety/{name}"] = float(counts[name])
    return metrics

  def _flagged(
    self, samples: Sequence[Sample]
  ) -> list[tuple[list[str], Sample]]:
    """Returns the flagged samples, each with the rules that matched."""
    texts = [completion.text for _, completion in samples]
    names = [find(text, self._patterns) for text in texts]
    if self._classifier is not None:
      verdicts = self._classifier(texts)
      for names_of_text, is_flagged in zip(names, verdicts, strict=True):
        if is_flagged:
          names_of_text.append(CLASSIFIER)
    return [pair for pair in zip(names, samples, strict=True) if pair[0]]

  def _write_flagged(
    self,
    name: str,
    flagged: Sequence[tuple[list[str], Sample]],
    trajectories: Sequence[types.Trajectory],
  ) -> None:
    """Writes a file of flagged samples, if there are any."""
    if not flagged or not self._write:
      return
    trained = {id(t.completion): t for t in trajectories}
    lines = []
    for names, (prompt, completion) in flagged:
      trajectory = trained.get(id(completion))
      record = {
        "rules": names,
        "group": trajectory.group_id if trajectory else None,
        "reward": trajectory.reward if trajectory else None,
        "prompt": prompt.text,
        "completion": completion.text,
      }
      lines.append(json.dumps(record))
    path = self._folder / f"{name}.jsonl"
    storage.write_if_possible(path, "\n".join(lines) + "\n")
