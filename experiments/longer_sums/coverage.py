"""Computes pass@k of answers that are right and add the sum's own numbers.

  python -m experiments.longer_sums.coverage

reads the kept answers and writes a row per length of the sums and k: percent
for the start, the mean of the runs, and their difference with a 95 % interval.
The interval resamples items and runs. A result that was guessed does not count.
"""

import json
import pathlib
import sys

import numpy as np
from jaxtyping import Bool, Float

from azr_jax.evals import pass_at_k
from azr_jax.lab.experiments import answers
from experiments.longer_sums.styles import OWN

_RUNS = pathlib.Path(__file__).parent / "runs"
LENGTHS = ("four", "five", "six", "seven")
KS = (1, 8, 128)
_RESAMPLES = 10_000


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


def interval(
  start: Float[np.ndarray, " items"], runs: Float[np.ndarray, "runs items"]
) -> tuple[float, float]:
  """Returns the 95 % interval of the mean of runs minus the start."""
  rng = np.random.default_rng(0)
  differences = []
  for _ in range(_RESAMPLES):
    chosen = runs[rng.integers(len(runs), size=len(runs))]
    items = rng.integers(len(start), size=len(start))
    differences.append((chosen.mean(0) - start)[items].mean())
  low, high = np.quantile(differences, (0.025, 0.975))
  return float(low), float(high)


def main() -> None:
  """Writes the table."""
  names = sorted(path.stem for path in _RUNS.glob("right_*.json"))
  sys.stdout.write("| numbers | k | start | runs | difference | 95 % |\n")
  sys.stdout.write("| --- | --- | --- | --- | --- | --- |\n")
  for score in LENGTHS:
    start = worked(_RUNS, score, "start")
    right = [worked(_RUNS, score, name) for name in names]
    for k in KS:
      before = 100 * pass_at_k.unbiased(start, k)
      after = 100 * np.stack([pass_at_k.unbiased(one, k) for one in right])
      low, high = interval(before, after)
      sys.stdout.write(
        f"| {score} | {k} | {before.mean():.1f} | {after.mean():.1f} | "
        f"{after.mean() - before.mean():+.1f} | {low:+.1f} to {high:+.1f} |\n"
      )


if __name__ == "__main__":
  main()
