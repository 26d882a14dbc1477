"""Trains and scores variants of configs/countdown.py, and prints their table.

  python launch/countdown_variants.py --start=SFT/model --workdir=DIR \\
      [--variants=tiny,tiny_static] [--seeds=0,1,2] [--puzzles=200] \\
      [--parallel=2]

A run is the folder `DIR/VARIANT_SEED`, and its scores are in
`DIR/VARIANT_SEED_scores`. Finished runs are not run again, so the command can
be repeated after an interruption; other settings need another folder. Pools of
puzzles for the mixed variants are made first: the proposer's, and equally many
random ones. `+-` is the standard error over seeds, or over puzzles for the
start and for a single seed.
"""

import functools
import pathlib

import runs
from absl import flags

from azr_jax.cli import front
from azr_jax.cli.errors import UsageError

START = flags.DEFINE_string(
  "start", None, "The warm-started model.", required=True
)
LAUNCHER = runs.Launcher()
flags.adopt_module_key_flags(runs)  # shows them in --help
VARIANTS = flags.DEFINE_list(
  "variants",
  [
    "tiny",
    "tiny_static",
    "tiny_adaptive",
    "tiny_replay",
    "tiny_conservative_replay",
    "tiny_random_mix",
    "tiny_lm_mix",
    "tiny_curriculum_mix",
    "tiny_closed_loop",
  ],
  "Variants of configs/countdown.py to train.",
)
PUZZLES = flags.DEFINE_integer("puzzles", 200, "Number of held-out puzzles.")
KS = (1, 4, 16)


def main(argv: list[str]) -> None:
  """Trains and scores what is missing, then prints the table."""
  del argv
  if not all(variant.startswith("tiny") for variant in VARIANTS.value):
    raise UsageError("expected variants of the tiny model")
  LAUNCHER.open_folder(start=START.value, puzzles=PUZZLES.value)
  folder = LAUNCHER.folder
  _make_pool(folder, "proposed", [f"--model={START.value}"])
  _make_pool(folder, "random", ["--random", f"--count={_pool_size(folder)}"])
  _score(folder / "start_scores", START.value)
  LAUNCHER.run_jobs(
    [
      functools.partial(_train, folder, variant, seed)
      # Every variant is trained with one seed before any gets a second seed.
      for seed in LAUNCHER.seeds
      for variant in VARIANTS.value
    ]
  )
  if not LAUNCHER.dry:
    header = [f"pass@{k}" for k in KS]
    print(LAUNCHER.table(header, VARIANTS.value, "puzzles", _cells))


def _pool(folder: pathlib.Path, name: str) -> pathlib.Path:
  return folder / f"{name}.jsonl"


def _make_pool(folder: pathlib.Path, name: str, arguments: list[str]) -> None:
  """Writes a pool of puzzles, unless it exists."""
  if not _pool(folder, name).exists():
    LAUNCHER.run(
      "azr_jax.propose",
      "--config=configs/propose.py:tiny",
      *arguments,
      f"--out={_pool(folder, name)}",
    )


def _pool_size(folder: pathlib.Path) -> int | str:
  """Returns the number of proposed puzzles; a placeholder in a dry run."""
  path = _pool(folder, "proposed")
  return len(path.read_text().splitlines()) if path.exists() else "AS_MANY"


def _train(
  folder: pathlib.Path, variant: str, seed: str, cores: runs.Cores
) -> None:
  run_folder = folder / f"{variant}_{seed}"
  score_folder = folder / f"{variant}_{seed}_scores"
  if runs.scores(score_folder):
    return
  pool = "random" if "random" in variant else "proposed"
  mixed = [f"--config.countdown.mix.puzzles={_pool(folder, pool)}"]
  LAUNCHER.train(
    run_folder,
    f"configs/countdown.py:{variant}",
    f"--config.model.source={START.value}",
    *(mixed if variant.endswith("mix") else []),
    seed=seed,
    cores=cores,
  )
  _score(score_folder, str(run_folder), cores)


def _score(
  score_folder: pathlib.Path, model: str, cores: runs.Cores = runs.ANY_CORES
) -> None:
  LAUNCHER.score(
    score_folder,
    model,
    "countdown",
    "--config=configs/evaluate.py:countdown_tiny",
    f"--limit={PUZZLES.value}",
    cores=cores,
  )


def _cells(results: list[runs.Scores]) -> list[str]:
  """Returns unbiased pass@k with its standard error, for each k."""
  cells = []
  for k in KS:
    value, error = runs.mean_and_error(results, f"countdown/pass@{k}")
    cells.append(f"{value:.3f} +- {error:.3f}")
  return cells


if __name__ == "__main__":
  front.run(__doc__, main, takes_arguments=True)
