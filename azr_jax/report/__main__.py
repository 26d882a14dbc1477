"""Writes a page about one run, or several side by side.

  python -m azr_jax.report RUN [RUN ...] --out=report.html \\
      [--base=SCORES] [--scores=SCORES,...]

The page is one file: open it anywhere, send it to anyone. A run may still be
going on. Scores are folders of `azr_jax.evaluate`; those of `RUN` are looked
for in `RUN_scores` unless they are named, one per run. `--base`: those of the
model that the runs started from.
"""

import pathlib

from absl import app, flags

from azr_jax.report import page, reading
from azr_jax.run import storage
from azr_jax.run.metrics import say

_OUT = flags.DEFINE_string("out", "report.html", "The page.")
_BASE = flags.DEFINE_string("base", "", "Scores of the model before training.")
_SCORES = flags.DEFINE_list("scores", [], "Scores of each run, in their order.")
_TEXTS = flags.DEFINE_integer(
  "texts", 300, "Most sampled texts of a run.", lower_bound=0
)


def main(argv: list[str]) -> None:
  """Reads the runs and writes the page."""
  paths = argv[1:]
  if not paths:
    raise app.UsageError("expected the folder of a run")
  if _SCORES.value and len(_SCORES.value) != len(paths):
    raise app.UsageError(
      f"--scores names {len(_SCORES.value)} folders; expected one for each of "
      f"{len(paths)} runs"
    )
  base = {}
  if _BASE.value:
    base = reading.read_scores(storage.resolve(_BASE.value))
    if not base:
      raise app.UsageError(
        f"--base={_BASE.value}: expected a folder of azr_jax.evaluate"
      )
  try:
    runs = reading.read_runs(paths, _SCORES.value or None, _TEXTS.value)
  except ValueError as error:
    raise app.UsageError(str(error)) from None
  text = page.build(runs, base)
  out = pathlib.Path(_OUT.value).expanduser()
  out.parent.mkdir(parents=True, exist_ok=True)
  storage.write_whole(out, text)
  say(f"{out}: {len(text.encode()) / 2**20:.1f} MiB")


def run() -> None:
  """The console script."""
  app.run(main)


if __name__ == "__main__":
  run()
