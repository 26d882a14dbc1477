"""Reads runs and writes their page, for `python -m azr_jax.report`."""

import pathlib
from collections.abc import Sequence

from azr_jax.report import page, reading
from azr_jax.run import storage
from azr_jax.run.console import print_status


def write(
  paths: Sequence[str],
  out: str,
  base: str = "",
  scores: Sequence[str] = (),
  max_texts: int = 300,
) -> None:
  """Writes the page of some runs.

  Args:
    paths: the run folders.
    out: the file to write; its folder is made.
    base: a folder of scores that the runs' scores are compared with; "": none.
    scores: a folder of scores per run; (): `PATH_scores` of each, if it exists.
    max_texts: the maximum number of sampled texts per run.

  Raises:
    ValueError: a folder has no metrics or no scores, or the number of folders
      is not what is expected.
  """
  if not paths:
    raise ValueError("expected the folder of at least one run")
  if scores and len(scores) != len(paths):
    raise ValueError(
      f"--scores names {len(scores)} folders; expected one for each of "
      f"{len(paths)} runs"
    )
  base_scores = reading.read_scores(storage.resolve(base)) if base else {}
  if base and not base_scores:
    raise ValueError(f"--base={base}: expected a folder of azr_jax.evaluate")
  runs = reading.read_runs(paths, scores or None, max_texts)
  text = page.build(runs, base_scores)
  file = pathlib.Path(out).expanduser()
  file.parent.mkdir(parents=True, exist_ok=True)
  storage.write_atomically(file, text)
  print_status(f"{file}: {len(text.encode()) / 2**20:.1f} MiB")
