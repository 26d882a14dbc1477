"""Selects problems by their pass rate, and writes them to a file.

  python -m azr_jax.select_problems --run=RUN --highest=0.0624 --out=HARD.jsonl
  python -m azr_jax.select_problems --records=SCORES/problems.jsonl \\
      --lowest=0.125 --highest=0.875 --out=FILE.jsonl

--run uses the pass rate at each problem's last step in a run of
`configs/orz.py`. --records uses the records of `azr_jax.evaluate
--benchmark=problems`, from all of the comma-separated files. Problems that were
never asked are left out. Each line has question, answer and pass_rate. To train
on the file, use `--config.orz.data="('FILE.jsonl',)"` with
`--config.orz.counts="(0,)"`.
"""

import json

from absl import flags

from azr_jax.cli import front
from azr_jax.cli.errors import UsageError
from azr_jax.lab.data import select_problems


def run() -> None:
  """Runs the command."""
  run_folder = flags.DEFINE_string("run", None, "The folder of an ORZ run.")
  records = flags.DEFINE_list("records", None, "Comma-separated record files.")
  lowest = flags.DEFINE_float("lowest", 0.0, "Smallest pass rate to keep.")
  highest = flags.DEFINE_float("highest", 1.0, "Largest pass rate to keep.")
  out = flags.DEFINE_string("out", None, "The file to write.", required=True)

  def main() -> None:
    if (run_folder.value is None) == (records.value is None):
      raise UsageError("expected either --run=RUN or --records=FILE,...")
    if not 0 <= lowest.value <= highest.value <= 1:
      raise UsageError(
        f"--lowest={lowest.value} --highest={highest.value}: expected "
        "0 <= lowest <= highest <= 1"
      )
    if records.value is not None:
      rated = select_problems.of_records(records.value)
    else:
      rated = select_problems.of_run(str(run_folder.value))
    counts = select_problems.select(
      rated, lowest.value, highest.value, out.value
    )
    print(json.dumps(counts))

  front.run(__doc__, main)


if __name__ == "__main__":
  run()
