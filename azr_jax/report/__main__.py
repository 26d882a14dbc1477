"""Writes an HTML page about one run, or about several over each other.

  python -m azr_jax.report RUN [RUN ...] --out=report.html \\
      [--base=SCORES] [--scores=SCORES,...] [--reference=FILE.csv]
  python -m azr_jax.report RUN [RUN ...] --follow

The page is one file without references to others. A run may still be training;
with `--follow` the page is served on this machine until Ctrl-C, and is made
anew when the runs' files change. SCORES is a folder that `azr_jax.evaluate`
wrote. Without `--scores`, the scores of RUN are read from `RUN_scores` if that
exists. `--base` names the scores of the model that the runs started from.
`--reference` draws values of others, such as a paper's, as dashed lines over
the figures of their metrics; docs/run_list.md has the columns of its file.
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
    help="scores folder of each run, between commas; RUN_scores by default",
  )
  parser.add_argument(
    "--reference",
    default="",
    help="values to draw beside the runs: a path, or a file of the package",
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
    help="steps of the running mean; 1: none, 0: by the length of the runs",
  )
  parser.add_argument(
    "--follow", action="store_true", help="show the page while the runs train"
  )
  parser.add_argument(
    "--host", default="127.0.0.1", help="the address of --follow"
  )
  parser.add_argument(
    "--port", type=int, default=0, help="the port of --follow; 0: a free one"
  )
  parser.add_argument(
    "--every", type=float, default=10.0, help="seconds between two looks"
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
  request = command.Request(
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
