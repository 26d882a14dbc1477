"""Writes an HTML report of one run, or of several runs side by side.

  python -m azr_jax.report RUN [RUN ...] --out=report.html \\
      [--base=SCORES] [--scores=SCORES,...] [--reference=FILE.csv]
  python -m azr_jax.report RUN [RUN ...] --follow

The page is one self-contained file. Runs may still be training. With
`--follow`, the page is served on this machine until Ctrl-C and updated whenever
the runs' files change. SCORES is a folder written by `azr_jax.evaluate`.
Without `--scores`, a run's scores are read from `RUN_scores` if it exists.
`--base` names the scores of the model before training. `--reference` adds
reference values, for example from a paper, as dashed lines to the charts of
their metrics; docs/run_list.md describes the file's columns.
"""

import threading

from azr_jax.cli import errors
from azr_jax.lab.statistics import collapse, saturation
from azr_jax.report import command, follow

ANALYSES = (saturation.section, collapse.section)


def main() -> None:
  """Writes or serves the page of the runs on the command line."""
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
    help="comma-separated scores folders, one per run; default: RUN_scores",
  )
  parser.add_argument(
    "--reference",
    default="",
    help="reference values to draw: a path or the name of a built-in file",
  )
  parser.add_argument(
    "--texts",
    type=int,
    default=300,
    help="maximum number of sampled texts per run",
  )
  parser.add_argument(
    "--smooth",
    type=int,
    default=0,
    help="window of the running mean in steps; 1 turns it off, 0 adapts it to "
    "the runs' length",
  )
  parser.add_argument(
    "--follow",
    action="store_true",
    help="serve the page and update it while the runs train",
  )
  parser.add_argument(
    "--host", default="127.0.0.1", help="address of the --follow server"
  )
  parser.add_argument(
    "--port",
    type=int,
    default=0,
    help="port of the --follow server; 0 picks a free one",
  )
  parser.add_argument(
    "--every",
    type=float,
    default=10.0,
    help="seconds between checks of the runs' files",
  )
  words = parser.parse_args()
  for name, fits, expected in (
    ("texts", words.texts >= 0, "0 or more"),
    ("smooth", words.smooth >= 0, "0 or more"),
    ("port", 0 <= words.port < 65536, "0 to 65535"),
    ("every", words.every >= 1, "1 or more seconds"),
  ):
    if not fits:
      parser.error(f"--{name}={getattr(words, name)}: expected {expected}")
  request = command.PageRequest(
    tuple(words.runs),
    words.out,
    words.base,
    tuple(words.scores),
    words.texts,
    words.smooth,
    words.reference,
    ANALYSES,
  )
  if words.follow:
    place = follow.Place(words.host, words.port, words.every)
    follow.follow(request, place, threading.Event())
  else:
    command.write(request)


def run() -> None:
  """Runs the command."""
  errors.guard(main)


if __name__ == "__main__":
  run()
