"""Writes an HTML page about one run, or several side by side.

  python -m azr_jax.report RUN [RUN ...] --out=report.html \\
      [--base=SCORES] [--scores=SCORES,...]

The page is one file without references to others. A run may still be training.
SCORES is a folder that `azr_jax.evaluate` wrote. Without `--scores`, the scores
of RUN are read from `RUN_scores` if that exists. `--base` names the scores of
the model that the runs started from.
"""

from absl import app, flags

from azr_jax.report import command

_OUT = flags.DEFINE_string("out", "report.html", "The page to write.")
_BASE = flags.DEFINE_string(
  "base", "", "Scores folder of the model before training."
)
_SCORES = flags.DEFINE_list(
  "scores", [], "Scores folder of each run, in the order of the runs."
)
_TEXTS = flags.DEFINE_integer(
  "texts", 300, "Maximum number of sampled texts per run.", lower_bound=0
)


def main(argv: list[str]) -> None:
  """Writes the page of the runs on the command line."""
  try:
    command.write(
      argv[1:], _OUT.value, _BASE.value, _SCORES.value, _TEXTS.value
    )
  except ValueError as error:
    raise app.UsageError(str(error)) from None


def run() -> None:
  """Runs the console script."""
  app.run(main)


if __name__ == "__main__":
  run()
