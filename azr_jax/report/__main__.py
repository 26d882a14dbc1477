"""Writes an HTML page about one run, or several side by side.

  python -m azr_jax.report RUN [RUN ...] --out=report.html \\
      [--base=SCORES] [--scores=SCORES,...]

The page is one file without references to others. A run may still be training.
SCORES is a folder that `azr_jax.evaluate` wrote. Without `--scores`, the scores
of RUN are read from `RUN_scores` if that exists. `--base` names the scores of
the model that the runs started from.
"""

from azr_jax.cli import errors
from azr_jax.report import command


def main() -> None:
  """Writes the page of the runs on the command line."""
  parser = errors.Parser(__doc__, "azr_jax.report")
  parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
  parser.add_argument("--out", default="report.html", help="the page to write")
  parser.add_argument(
    "--base", default="", help="scores of the model before training"
  )
  parser.add_argument(
    "--scores",
    type=lambda text: text.split(","),
    default=[],
    help="scores folder of each run, between commas; RUN_scores by default",
  )
  parser.add_argument(
    "--texts",
    type=int,
    default=300,
    help="maximum number of sampled texts per run",
  )
  arguments = parser.parse_args()
  if arguments.texts < 0:
    parser.error(f"--texts={arguments.texts}: expected 0 or more")
  command.write(
    arguments.runs,
    arguments.out,
    arguments.base,
    arguments.scores,
    arguments.texts,
  )


def run() -> None:
  """Runs the command."""
  errors.guard(main)


if __name__ == "__main__":
  run()
