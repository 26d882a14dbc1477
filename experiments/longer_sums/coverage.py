"""Computes pass@k of answers that are right and add the sum's own numbers.

  python -m experiments.longer_sums.coverage

reads the kept answers and writes a row per length of the sums and k: percent
for the start, the mean of the runs, and their difference with a 95 % interval.
A result that was guessed does not count. If no answer counts, an interval would
be empty; instead, the row has the largest share of such sums that may still
have one, with 95 % confidence.
"""

import json
import pathlib
import sys

import numpy as np
from jaxtyping import Bool

from azr_jax.evals import pass_at_k
from azr_jax.lab.experiments import answers
from azr_jax.lab.statistics import hypotheses
from experiments.longer_sums.styles import OWN

_RUNS = pathlib.Path(__file__).parent / "runs"
LENGTHS = ("four", "five", "six", "seven")
KS = (1, 8, 128)


def worked(
  runs: pathlib.Path, score: str, name: str
) -> Bool[np.ndarray, "items samples"]:
  """Returns which kept answers are right and add the sum's own numbers.

  Args:
    runs: the archive of an experiment.
    score: the name of a score.
    name: `start` or a run.
  """
  record = json.loads((runs / f"{name}.json").read_text("utf-8"))
  correct = record["scores"][score]["correct"]
  kept = answers.read(answers.path_of(runs, score, name))
  is_right = np.array([[bit == "1" for bit in bits] for bits in correct])
  is_own = [[style == OWN for style in one["styles"]] for one in kept.values()]
  return is_right & np.array(is_own)


def row(
  start: Bool[np.ndarray, "items samples"],
  runs: Bool[np.ndarray, "runs items samples"],
  k: int,
) -> str:
  """Returns the percent of the start and of runs, and their difference."""
  before = 100 * pass_at_k.unbiased(start, k)
  after = 100 * np.stack([pass_at_k.unbiased(one, k) for one in runs])
  if not before.any() and not after.any():
    # Clopper and Pearson's upper bound for 0 of n items.
    most = 100 * (1 - 0.025 ** (1 / len(start)))
    return f"none | none | 0.0 | at most {most:.1f} % of sums have one"
  found = hypotheses.mean_of(after - before)
  ends = found.interval(0.95)
  shown = "" if ends is None else f"{ends[0]:+.1f} to {ends[1]:+.1f}"
  return (
    f"{before.mean():.1f} | {after.mean():.1f} | "
    f"{(after - before).mean():+.1f} | {shown}"
  )


def main() -> None:
  """Writes the table."""
  sys.stdout.write("| numbers | k | start | runs | difference | 95 % |\n")
  sys.stdout.write("| --- | --- | --- | --- | --- | --- |\n")
  for score in LENGTHS:
    runs = [
      worked(_RUNS, score, path.stem)
      for path in sorted(_RUNS.glob("right_*.json"))
      if answers.path_of(_RUNS, score, path.stem).exists()
    ]
    for k in KS if runs else ():
      cells = row(worked(_RUNS, score, "start"), np.stack(runs), k)
      sys.stdout.write(f"| {score} | {k} | {cells} |\n")


if __name__ == "__main__":
  main()
