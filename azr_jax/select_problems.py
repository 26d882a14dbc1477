"""Chooses problems by how often they were solved, and writes them to a file.

  python -m azr_jax.select_problems --run=RUN --highest=0.0624 --out=HARD.jsonl
  python -m azr_jax.select_problems --records=SCORES/problems.jsonl \\
      --lowest=0.125 --highest=0.875 --out=FILE.jsonl

From a run of `configs/orz.py`, the pass rate at each problem's last turn; or
from the records of `azr_jax.evaluate --benchmark=problems`. What was never
asked is left out. Each line has question, answer and pass_rate, and can be
trained on: `--config.orz.data="('FILE.jsonl',)" --config.orz.counts="(0,)"`.

Paper: seed 002, section 2.3, keeps what was solved fewer than 4 times of 64 for
annealing; its data had kept what was solved 1 to 7 times of 8.
"""

import json
import pathlib
from collections.abc import Iterable

import ml_collections
from absl import app, flags, logging

from azr_jax.run import checkpoint as checkpoint_lib
from azr_jax.tasks.mathematics import sources
from azr_jax.tasks.mathematics.problem import Problem


def of_run(run: str) -> list[tuple[Problem, float]]:
  """Problems that a run has asked, with the pass rate of the last time.

  Raises:
    ValueError: the folder is no run of ORZ, or has no checkpoint.
  """
  folder = pathlib.Path(run).expanduser()
  path = folder / "config.json"
  if not path.exists():
    raise ValueError(f"{folder}: expected the folder of a run")
  config = ml_collections.ConfigDict(json.loads(path.read_text("utf-8")))
  if config.get("system") != "orz":
    raise ValueError(f"{folder}: expected a run of configs/orz.py")
  checkpoints = checkpoint_lib.Checkpointer(folder, keep=None)
  step = checkpoints.latest_step()
  if step is None:
    raise ValueError(f"{folder} holds no finished checkpoint")
  state = checkpoints.restore_system(step)
  checkpoints.close()
  c = config.orz
  problems = sources.read_all(c.data, c.counts, c.data_seed)
  return [
    (problems[index], right / asked) for index, right, asked in state["solved"]
  ]


def of_records(path: str) -> list[tuple[Problem, float]]:
  """Problems of a benchmark's records, with their pass rates.

  Raises:
    ValueError: a record has no request, reference answer and verdicts.
  """
  found = []
  text = pathlib.Path(path).expanduser().read_text("utf-8")
  for line in filter(None, text.split("\n")):
    record = json.loads(line)
    try:
      problem = Problem(record["request"], record["reference"]["answer"])
      correct = record["correct"]
      found.append((problem, sum(correct) / len(correct)))
    except (KeyError, TypeError, ZeroDivisionError):
      raise ValueError(
        f"{path}: expected records of azr_jax.evaluate, not {line:.80}"
      ) from None
  return found


def select(
  rated: Iterable[tuple[Problem, float]],
  lowest: float,
  highest: float,
  out: str,
) -> dict[str, int]:
  """Writes the problems in range; returns how many were read and kept."""
  rated = list(rated)
  kept = [(p, rate) for p, rate in rated if lowest <= rate <= highest]
  path = pathlib.Path(out).expanduser()
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open("w", encoding="utf-8") as file:
    for problem, rate in kept:
      record = {
        "question": problem.question,
        "answer": problem.answer,
        "pass_rate": rate,
      }
      file.write(json.dumps(record, ensure_ascii=False) + "\n")
  return {"problems": len(rated), "kept": len(kept)}


def run() -> None:
  """The console script."""
  run_folder = flags.DEFINE_string("run", None, "The folder of an ORZ run.")
  records = flags.DEFINE_string("records", None, "A benchmark's records.")
  lowest = flags.DEFINE_float("lowest", 0.0, "Least pass rate to keep.")
  highest = flags.DEFINE_float("highest", 1.0, "Largest pass rate to keep.")
  out = flags.DEFINE_string("out", None, "The file to write.", required=True)

  def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    if (run_folder.value is None) == (records.value is None):
      raise app.UsageError("expected either --run=RUN or --records=FILE")
    if not 0 <= lowest.value <= highest.value <= 1:
      raise app.UsageError(
        f"--lowest={lowest.value} --highest={highest.value}: expected "
        "0 <= lowest <= highest <= 1"
      )
    if run_folder.value is not None:
      rated = of_run(run_folder.value)
    else:
      rated = of_records(str(records.value))
    print(json.dumps(select(rated, lowest.value, highest.value, out.value)))

  app.run(main)


if __name__ == "__main__":
  run()
