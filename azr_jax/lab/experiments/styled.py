"""Splits the gain of each arm into changed styles and better answers.

For every score whose start and runs have styles (`evaluate.style`), by the
formula of `evals/decomposition.py`.
"""

import dataclasses
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from azr_jax.evals import decomposition, record_files, score_files
from azr_jax.evals.decomposition import Decomposition
from azr_jax.lab.experiments import folders
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose

_RESAMPLES = 2000
# Rarer styles are joined, if the start and the arm both use them rarely.
_MIN_SHARE = 0.01


@dataclasses.dataclass(frozen=True)
class StyledGain:
  """The gain of an arm over its start on one score.

  Attributes:
    score: name in [scores].
    arm: name in [arms].
    seeds: the seeds of the runs, whose answers are joined.
    parts: the gain and its parts, with standard errors over items.
    within_by_seed_stderr: standard error over seeds of the part within styles,
      split for each seed alone; None for one seed.
  """

  score: str
  arm: str
  seeds: tuple[int, ...]
  parts: Decomposition
  within_by_seed_stderr: float | None


def gains(workdir: Workdir) -> Iterator[StyledGain]:
  """Yields the gain of every arm on every score that has styles."""
  for score, settings in workdir.plan.scores.items():
    start = str(workdir.start_scores(score))
    benchmark = settings.benchmark
    if not _has_styles(start, benchmark):
      continue
    for arm in workdir.plan.arms:
      found = {
        seed: str(workdir.scores(arm, seed, score))
        for seed in workdir.plan.about.seeds
      }
      found = {s: f for s, f in found.items() if _has_styles(f, benchmark)}
      if not found or score not in workdir.plan.scores_of(arm):
        continue
      by_seed = [
        _split(start, [folder], benchmark, resamples=2).from_within[0]
        for folder in found.values()
      ]
      spread = None
      if len(by_seed) > 1:
        spread = float(np.std(by_seed, ddof=1) / math.sqrt(len(by_seed)))
      parts = _split(start, [*found.values()], benchmark)
      yield StyledGain(score, arm, tuple(found), parts, spread)


def _has_styles(folder: str, benchmark: str) -> bool:
  """Returns whether a folder has finished scores with styles.

  Raises:
    ValueError: only some of the records have styles.
  """
  path = pathlib.Path(folder)
  if not folders.is_scored(path):
    return False
  records = record_files.read(path / f"{benchmark}.jsonl")
  have = {"styles" in one for one in records}
  if len(have) > 1:
    raise ValueError(
      f"{path}: expected styles in all records or none; score it again in an "
      "empty folder"
    )
  return True in have


def _split(
  start: str, after: Sequence[str], benchmark: str, resamples: int = _RESAMPLES
) -> Decomposition:
  models = [score_files.read_model(text) for text in (start, ",".join(after))]
  items = [decomposition.read(one, benchmark, None) for one in models]
  num_items = int(models[0].scores[0][f"{benchmark}/items"])
  styles, _, tables = decomposition.tables(items, num_items, _MIN_SHARE)
  rng = streams.generator(0, Purpose.RESAMPLES)
  return decomposition.decompose(styles, tables, resamples, rng)


def table(rows: Sequence[dict[str, Any]]) -> str:
  """Returns gains, as in results.json, as Markdown; "" without any."""
  if not rows:
    return ""
  lines = [
    "Gains over the start in points, split into changed shares of styles and "
    "better answers within styles; `+-` is over items, in brackets over seeds:",
    "",
    "| score | arm | seeds | gain | from changed shares | within styles "
    "| share of each style |",
    "|" + " --- |" * 7,
  ]
  for row in rows:
    parts = row["parts"]
    within = _signed(parts["from_within"])
    if row["within_by_seed_stderr"] is not None:
      within += f" ({100 * row['within_by_seed_stderr']:.1f})"
    before, after = (
      [100 * value for value, _ in share] for share in parts["share"]
    )
    shares = ", ".join(
      f"`{style}` {old:.0f} to {new:.0f} %"
      for style, old, new in zip(parts["styles"], before, after, strict=True)
    )
    cells = (
      row["score"],
      f"`{row['arm']}`",
      str(len(row["seeds"])),
      _signed(parts["gain"]),
      _signed(parts["from_shares"]),
      within,
      shares,
    )
    lines.append(f"| {' | '.join(cells)} |")
  return "\n".join(lines)


def _signed(estimate: Sequence[float]) -> str:
  value, error = estimate
  return f"{100 * value:+.1f} +- {100 * error:.1f}"
