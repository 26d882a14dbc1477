"""Trains and scores variants of configs/countdown.py, and prints their table.

  python launch/countdown_variants.py --start=SFT/model --workdir=DIR \\
      [--variants=tiny,tiny_static] [--seeds=0,1,2] [--puzzles=200] \\
      [--parallel=2]

Every run is a folder `DIR/VARIANT_SEED`, and its scores one beside it. What is
there is not done again, so the command goes on where it was stopped; with other
settings it wants another folder. Pools of puzzles for the mixed variants are
made first: the proposer's, and as many random ones. `+-` is the standard error
over seeds, but over puzzles for the start, which has no seeds.
"""

import functools
import pathlib

import runs
from absl import app, flags

START = flags.DEFINE_string(
  "start", None, "The warm-started model.", required=True
)
LAUNCHER = runs.Launcher()
VARIANTS = flags.DEFINE_list(
  "variants",
  [
    "tiny",
    "tiny_static",
    "tiny_adaptive",
    "tiny_replay",
    "tiny_random_mix",
    "tiny_lm_mix",
    "tiny_closed_loop",
  ],
  "Variants of configs/countdown.py.",
)
PUZZLES = flags.DEFINE_integer("puzzles", 200, "Held-out puzzles.")
KS = (1, 4, 16)


def main(argv: list[str]) -> None:
  """Runs what is missing, then prints the table."""
  del argv
  if not all(variant.startswith("tiny") for variant in VARIANTS.value):
    raise app.UsageError("expected variants of the tiny model")
  LAUNCHER.claim(start=START.value, puzzles=PUZZLES.value)
  folder = LAUNCHER.folder
  _make_pool(folder, "proposed", [f"--model={START.value}"])
  _make_pool(folder, "random", ["--random", f"--count={_proposed(folder)}"])
  _score(folder / "start_scores", START.value)
  LAUNCHER.do(
    [
      functools.partial(_train, folder, variant, seed)
      for seed in LAUNCHER.seeds  # All variants once, before any again.
      for variant in VARIANTS.value
    ]
  )
  if not LAUNCHER.dry:
    header = [f"pass@{k}" for k in KS]
    print(LAUNCHER.table(header, VARIANTS.value, "puzzles", _cells))


def _pool(folder: pathlib.Path, name: str) -> pathlib.Path:
  return folder / f"{name}.jsonl"


def _make_pool(folder: pathlib.Path, name: str, arguments: list[str]) -> None:
  if not _pool(folder, name).exists():
    LAUNCHER.run(
      "azr_jax.propose",
      "--config=configs/propose.py:tiny",
      *arguments,
      f"--out={_pool(folder, name)}",
    )


def _proposed(folder: pathlib.Path) -> int | str:
  """How many puzzles the proposer's pool has."""
  path = _pool(folder, "proposed")
  return len(path.read_text().splitlines()) if path.exists() else "AS_MANY"


def _train(
  folder: pathlib.Path, variant: str, seed: str, cores: frozenset[int]
) -> None:
  run = folder / f"{variant}_{seed}"
  scores = folder / f"{variant}_{seed}_scores"
  if runs.scores(scores):
    return
  pool = "random" if "random" in variant else "proposed"
  mixed = [f"--config.countdown.mix.puzzles={_pool(folder, pool)}"]
  LAUNCHER.train(
    run,
    f"configs/countdown.py:{variant}",
    f"--config.model.source={START.value}",
    *(mixed if variant.endswith("mix") else []),
    seed=seed,
    cores=cores,
  )
  _score(scores, str(run), cores)


def _score(
  scores: pathlib.Path, model: str, cores: frozenset[int] = frozenset()
) -> None:
  LAUNCHER.score(
    scores,
    model,
    "countdown",
    "--config=configs/evaluate.py:countdown_tiny",
    f"--limit={PUZZLES.value}",
    cores=cores,
  )


def _cells(results: list[dict[str, float]]) -> list[str]:
  """pass@k (unbiased) with its error."""
  cells = []
  for k in KS:
    value, error = runs.mean_and_error(results, f"countdown/pass@{k}")
    cells.append(f"{value:.3f} +- {error:.3f}")
  return cells


if __name__ == "__main__":
  app.run(main)
