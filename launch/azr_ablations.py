"""Self-play with something left out, or added, on the tiny model.

  python launch/azr_ablations.py --workdir=DIR [--variants=full,composite] \\
      [--seeds=0,1,2] [--parallel=2]

Trains and scores every variant with every seed; what is there is not done
again. Prints a table of the share of right answers on `programs_heldout`, by
task type; `+-` is the standard error over seeds, or over tasks for the start
and for a single seed. The first five variants are those of the AZR paper's
Table 2; the others are the switches of its appendix D.
"""

import functools
import pathlib
import statistics

import runs
from absl import app, flags

# What a variant changes in configs/azr.py:tiny.
CHANGES = {
  "full": (),
  "deduction_only": ("task_types=('deduction',)",),
  "no_induction": ("task_types=('deduction', 'abduction')",),
  "no_references": ("references=0",),
  "solver_only": ("roles=('solve',)",),
  "error_deduction": (
    "task_types=('deduction', 'abduction', 'induction', 'error_deduction')",
  ),
  "composite": ("composite_chance=0.5",),
  "recent_references": ("reference_draw=recent",),
  "complexity": ("intrinsic=('complexity',)", "intrinsic_weights=(0.5,)"),
  "complexity_product": (
    "intrinsic=('complexity', 'halstead')",
    "intrinsic_weights=(1.0, 1.0)",
    "aggregation=times_sum",
  ),
  "diversity": (
    "intrinsic=('distance', 'answer_diversity')",
    "intrinsic_weights=(0.5, 0.5)",
    "aggregation=plus_product",
  ),
  "products": (
    "intrinsic=('distance', 'maintainability')",
    "intrinsic_weights=(1.0, 1.0)",
    "aggregation=times_product",
  ),
  "no_comments": ("strip=('comments',)",),
  "no_globals": ("strip=('comments', 'globals')",),
}
TABLE_2 = tuple(CHANGES)[:5]
LAUNCHER = runs.Launcher()
VARIANTS = flags.DEFINE_list("variants", list(TABLE_2), f"Of {list(CHANGES)}.")
LIMIT = flags.DEFINE_integer("limit", 300, "Held-out tasks of each type.")
START = "embedded:azr-tiny"
NAME = "programs_heldout/pass@1"
TYPES = ("deduction", "abduction", "induction")


def main(argv: list[str]) -> None:
  """Runs what is missing, then prints the table."""
  del argv
  if unknown := {*VARIANTS.value} - {*CHANGES}:
    raise app.UsageError(f"{unknown}: expected variants of {list(CHANGES)}")
  LAUNCHER.claim(limit=LIMIT.value)
  folder = LAUNCHER.folder
  LAUNCHER.do(
    [functools.partial(_score, folder / "start_scores", START)]
    + [
      functools.partial(_train, folder, variant, seed)
      for seed in LAUNCHER.seeds  # All variants once, before any again.
      for variant in VARIANTS.value
    ]
  )
  if not LAUNCHER.dry:
    header = [*TYPES, "all"]
    print(LAUNCHER.table(header, VARIANTS.value, "tasks", _cells))


def _train(
  folder: pathlib.Path, variant: str, seed: str, cores: frozenset[int]
) -> None:
  run = folder / f"{variant}_{seed}"
  changes = [f"--config.azr.{change}" for change in CHANGES[variant]]
  LAUNCHER.train(run, "configs/azr.py:tiny", *changes, seed=seed, cores=cores)
  _score(folder / f"{run.name}_scores", str(run), cores)


def _score(scores: pathlib.Path, model: str, cores: frozenset[int]) -> None:
  LAUNCHER.score(
    scores,
    model,
    "programs_heldout",
    "--config=configs/evaluate.py",
    f"--limit={LIMIT.value}",
    cores=cores,
  )


def _cells(results: list[dict[str, float]]) -> list[str]:
  """Percent right by task type, and of all with its error."""
  means = [
    f"{100 * statistics.mean(r[f'{NAME}/{kind}'] for r in results):.1f}"
    for kind in TYPES
  ]
  value, error = runs.mean_and_error(results, NAME)
  return [*means, f"{100 * value:.1f} +- {100 * error:.1f}"]


if __name__ == "__main__":
  app.run(main)
