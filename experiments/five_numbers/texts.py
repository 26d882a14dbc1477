"""Writes the data of the experiment.

  python -m experiments.five_numbers.texts --out=DIR

| file | content |
| --- | --- |
| `start.jsonl` | 20,000 worked sums: 3,000 of five numbers, the others of three
  or four |
| `sums.jsonl` | 8,000 worked sums to train on: three quarters of five numbers,
  the others of three or four |

Numbers have two digits. No sum is in both files, or among the scored ones.
"""

import argparse
import json
import pathlib
from collections.abc import Iterable, Sequence

from azr_jax.corpora import arithmetic
from azr_jax.tasks.mathematics import prompts, sources
from azr_jax.tasks.mathematics.problem import Problem

SHORT, LONG = (3, 4), (5, 5)
# The seed and the number of the sums that are scored, in experiment.toml.
SCORED_SEED, SCORED = 9, 1000
# By file: its seed, its rows, and the fraction of them that has five numbers.
FILES = {"start": (20, 20_000, 0.15), "sums": (30, 8000, 0.75)}


def spec(lengths: tuple[int, int], seed: int) -> str:
  """Returns the source of sums with this many numbers.

  With one seed, sums of every length begin with the same numbers, so each
  length needs its own.
  """
  low, high = lengths
  return (
    f"gym:chain_sum(min_terms={low}, max_terms={high}, min_digits=2, "
    f"max_digits=2, seed={seed})"
  )


def scored(lengths: Iterable[tuple[int, int]]) -> set[str]:
  """Returns the sums that are scored, among those of these lengths."""
  return {
    problem.question
    for one in lengths
    for problem in sources.read(spec(one, SCORED_SEED), SCORED)
  }


def take_new(
  lengths: tuple[int, int], seed: int, count: int, taken: set[str]
) -> list[Problem]:
  """Returns problems that are not taken, and takes them."""
  found = [
    problem
    for problem in sources.read(spec(lengths, seed), count + SCORED)
    if problem.question not in taken
  ][:count]
  if len(found) < count:
    raise ValueError(f"{lengths}: expected {count} new sums, got {len(found)}")
  taken.update(problem.question for problem in found)
  return found


def rows_of(problems: Iterable[Problem]) -> list[dict[str, str]]:
  """Returns prompts with their answers and worked solutions."""
  return [
    {
      "prompt": prompts.solve_prompt(problem.question, "compact"),
      "answer": problem.answer,
      "completion": arithmetic.write_response(problem, "chain_of_thought"),
    }
    for problem in problems
  ]


def write_rows(path: pathlib.Path, rows: Sequence[dict[str, str]]) -> None:
  path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def write(out: pathlib.Path, scale: float = 1.0) -> None:
  """Writes the files.

  Args:
    out: their folder.
    scale: fraction of the rows to write.
  """
  out.mkdir(parents=True, exist_ok=True)
  taken = scored((SHORT, LONG))
  for name, (seed, rows, fraction) in FILES.items():
    long = round(scale * rows * fraction)
    short = round(scale * rows) - long
    problems = take_new(SHORT, seed, short, taken)
    problems += take_new(LONG, seed + 1, long, taken)
    write_rows(out / f"{name}.jsonl", rows_of(problems))


def main() -> None:
  """Writes the files of `--out`."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--out", type=pathlib.Path, required=True)
  parser.add_argument("--scale", type=float, default=1.0)
  flags = parser.parse_args()
  write(flags.out, flags.scale)


if __name__ == "__main__":
  main()
