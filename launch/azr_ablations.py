"""Trains and scores variants of AZR on the tiny model, and prints their table.

  python launch/azr_ablations.py --workdir=DIR [--variants=full,composite] \\
      [--seeds=0,1,2] [--parallel=2]

Trains and scores every variant with every seed, except those that are done.
Prints a table of pass@1 on `programs_heldout` in percent, by task type; `+-` is
the standard error over seeds, or over tasks for the start and for a single
seed. The first five variants are those of table 2 of AZR (arXiv 2505.03335);
the others are the switches of its appendix D.
"""

import functools
import pathlib
import statistics

import runs
from absl import flags

from azr_jax.cli import front
from azr_jax.cli.errors import UsageError

# Variant -> the values of `config.azr` that differ from configs/azr.py:tiny.
CHANGES = {
  "full": (),
  "deduction_only": ("task_types=('deduction',)",),
  "no_induction": ("task_types=('deduction', 'abduction')",),
  "no_references": ("references=0",),
  "solver_only": ("roles=('solve',)",),
  "error_deduction": (
    "task_types=('deduction', 'abduction', 'induction', 'error_deduction')",
  ),
  "composite": ("appendix.composite_prob=0.5",),
  "recent_references": ("appendix.reference_sampling=recent",),
  "complexity": (
    "appendix.intrinsic=('complexity',)",
    "appendix.intrinsic_weights=(0.5,)",
  ),
  "complexity_product": (
    "appendix.intrinsic=('complexity', 'halstead')",
    "appendix.intrinsic_weights=(1.0, 1.0)",
    "appendix.aggregation=times_sum",
  ),
  "diversity": (
    "appendix.intrinsic=('distance', 'answer_diversity')",
    "appendix.intrinsic_weights=(0.5, 0.5)",
    "appendix.aggregation=plus_product",
  ),
  "products": (
    "appendix.intrinsic=('distance', 'maintainability')",
    "appendix.intrinsic_weights=(1.0, 1.0)",
    "appendix.aggregation=times_product",
  ),
  "no_comments": ("appendix.strip=('comments',)",),
  "no_globals": ("appendix.strip=('comments', 'globals')",),
}
TABLE_2 = tuple(CHANGES)[:5]
LAUNCHER = runs.Launcher()
flags.adopt_module_key_flags(runs)  # shows them in --help
VARIANTS = flags.DEFINE_list(
  "variants", list(TABLE_2), f"Some of {list(CHANGES)}."
)
LIMIT = flags.DEFINE_integer("limit", 300, "Held-out tasks of each type.")
START = "embedded:azr-tiny"
NAME = "programs_heldout/pass@1"
TYPES = ("deduction", "abduction", "induction")


def main(argv: list[str]) -> None:
  """Trains and scores what is missing, then prints the table."""
  del argv
  if unknown := {*VARIANTS.value} - {*CHANGES}:
    raise UsageError(f"{unknown}: expected variants of {list(CHANGES)}")
  LAUNCHER.open_folder(limit=LIMIT.value)
  folder = LAUNCHER.folder
  LAUNCHER.run_jobs(
    [functools.partial(_score, folder / "start_scores", START)]
    + [
      functools.partial(_train, folder, variant, seed)
      # Every variant is trained with one seed before any gets a second seed.
      for seed in LAUNCHER.seeds
      for variant in VARIANTS.value
    ]
  )
  if not LAUNCHER.dry:
    header = [*TYPES, "all"]
    print(LAUNCHER.table(header, VARIANTS.value, "tasks", _cells))


def _train(
  folder: pathlib.Path, variant: str, seed: str, cores: runs.Cores
) -> None:
  run_folder = folder / f"{variant}_{seed}"
  changes = [f"--config.azr.{change}" for change in CHANGES[variant]]
  LAUNCHER.train(
    run_folder, "configs/azr.py:tiny", *changes, seed=seed, cores=cores
  )
  _score(folder / f"{run_folder.name}_scores", str(run_folder), cores)


def _score(score_folder: pathlib.Path, model: str, cores: runs.Cores) -> None:
  LAUNCHER.score(
    score_folder,
    model,
    "programs_heldout",
    "--config=configs/evaluate.py",
    f"--limit={LIMIT.value}",
    cores=cores,
  )


def _cells(results: list[runs.Scores]) -> list[str]:
  """Returns pass@1 in percent by task type, and over all with its error."""
  means = [
    f"{100 * statistics.mean(r[f'{NAME}/{kind}'] for r in results):.1f}"
    for kind in TYPES
  ]
  value, error = runs.mean_and_error(results, NAME)
  return [*means, f"{100 * value:.1f} +- {100 * error:.1f}"]


if __name__ == "__main__":
  front.run(__doc__, main, takes_arguments=True)
