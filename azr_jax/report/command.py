"""Reads runs and writes their page, for `python -m azr_jax.report`."""

import dataclasses
import pathlib

from azr_jax.report import page, reading, references
from azr_jax.report.scores import Benchmarks
from azr_jax.run import storage
from azr_jax.run.console import print_status


@dataclasses.dataclass(frozen=True)
class PageRequest:
  """A page to write: its runs, its options and its file.

  Attributes:
    paths: the run folders.
    out: the file to write. Its folder is created if needed.
    base: a folder with scores of the model before training, or "".
    scores: a folder of scores per run. () looks for `PATH_scores` of each.
    max_texts: the maximum number of sampled texts per run.
    smooth: the window of the running mean in steps. 1 turns it off, 0 adapts it
      to the runs' length.
    reference: a file for `references.read` with values to draw, or "".
    analyses: additional sections of the page.
  """

  paths: tuple[str, ...]
  out: str = "report.html"
  base: str = ""
  scores: tuple[str, ...] = ()
  max_texts: int = 300
  smooth: int = 0
  reference: str = ""
  analyses: tuple[page.Analysis, ...] = ()

  def check(self) -> None:
    """Checks the request as far as possible without reading a run.

    Raises:
      ValueError: there is no run, the number of scores folders differs from the
        number of runs, or the references are invalid.
    """
    if not self.paths:
      raise ValueError("expected the folder of at least one run")
    if self.scores and len(self.scores) != len(self.paths):
      raise ValueError(
        f"--scores names {len(self.scores)} folders; expected one for each of "
        f"{len(self.paths)} runs"
      )
    references.read(self.reference)

  def build(self, live_s: float = 0.0) -> str:
    """Reads the runs and returns their page.

    Args:
      live_s: seconds between the page's polls for a newer version. 0 turns
        polling off.

    Raises:
      ValueError: `check` fails, or a folder has no metrics or scores.
    """
    self.check()
    folder = storage.resolve(self.base) if self.base else None
    base_scores = reading.read_scores(folder) if folder else {}
    if folder and not base_scores:
      raise ValueError(
        f"--base={self.base}: expected a folder of azr_jax.evaluate"
      )
    runs = reading.read_runs(self.paths, self.scores or None, self.max_texts)
    benchmarks = Benchmarks(runs, base_scores, folder)
    beside = references.read(self.reference)
    text = page.build(
      runs, benchmarks, self.smooth, live_s, beside, self.analyses
    )
    # A live page shows the note itself, so do not repeat it on every update.
    if not live_s and (note := beside.missing()):
      print_status(f"--reference={self.reference}: {note}")
    return text

  def save(self, text: str) -> pathlib.Path:
    """Writes the page and returns its path."""
    file = pathlib.Path(self.out).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    storage.write_atomically(file, text)
    return file


def write(request: PageRequest) -> None:
  """Writes the page of the runs.

  Raises:
    ValueError: see `PageRequest.build`.
  """
  text = request.build()
  file = request.save(text)
  print_status(f"{file}: {len(text.encode()) / 2**20:.1f} MiB")
