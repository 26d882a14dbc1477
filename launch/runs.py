"""What the scripts here that start several runs share."""

import concurrent.futures
import json
import os
import pathlib
import queue
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags


class Launcher:
  """The flags that these scripts share, and what they do with them."""

  def __init__(self) -> None:
    """Defines the flags; once, before they are parsed."""
    self._workdir = flags.DEFINE_string(
      "workdir", None, "All runs.", required=True
    )
    self._seeds = flags.DEFINE_list("seeds", ["0", "1", "2"], "Of each run.")
    self._parallel = flags.DEFINE_integer(
      "parallel", 1, "Runs at a time, each on its share of the cores."
    )
    self._extra = flags.DEFINE_list(
      "extra", [], "More flags for training, e.g. --config.train.steps=10"
    )
    self._dry_run = flags.DEFINE_bool(
      "dry_run", False, "Print the commands, run none."
    )

  @property
  def folder(self) -> pathlib.Path:
    """Of all runs."""
    return pathlib.Path(self._workdir.value).expanduser()

  @property
  def seeds(self) -> list[str]:
    """Of each run."""
    return self._seeds.value

  @property
  def dry(self) -> bool:
    """Whether commands are printed only."""
    return self._dry_run.value

  def claim(self, **settings: Any) -> None:
    """Makes the folder for runs of these settings and of `--extra`.

    Raises:
      UsageError: it holds runs of others, which could not be compared.
    """
    if self.dry:
      return
    try:
      claim(self.folder, {**settings, "extra": self._extra.value})
    except ValueError as error:
      raise app.UsageError(str(error)) from None

  def do(self, jobs: Sequence[Callable[[frozenset[int]], None]]) -> None:
    """Does the jobs, as many at a time as is wanted."""
    in_parallel(jobs, self._parallel.value)

  def run(
    self, module: str, *arguments: str, cores: frozenset[int] = frozenset()
  ) -> None:
    """Runs a command of this package; see `run`."""
    run(module, *arguments, dry=self.dry, cores=cores)

  def train(
    self,
    place: pathlib.Path,
    config: str,
    *arguments: str,
    seed: str,
    cores: frozenset[int],
  ) -> None:
    """Trains in a folder, unless that is done."""
    if not is_done(place):
      self.run(
        "azr_jax.train",
        f"--config={config}",
        *arguments,
        f"--config.seed={seed}",
        *self._extra.value,
        f"--workdir={place}",
        cores=cores,
      )

  def score(
    self,
    place: pathlib.Path,
    model: str,
    benchmark: str,
    *arguments: str,
    cores: frozenset[int] = frozenset(),
  ) -> None:
    """Scores a model in a folder, unless that is done."""
    if not scores(place):
      self.run(
        "azr_jax.evaluate",
        *arguments,
        f"--model={model}",
        f"--benchmark={benchmark}",
        f"--workdir={place}",
        cores=cores,
      )

  def table(
    self,
    header: Sequence[str],
    variants: Sequence[str],
    items: str,
    cells: Callable[[list[dict[str, float]]], list[str]],
  ) -> str:
    """A table of the start's scores and of every variant's.

    Args:
      header: names of the cells.
      variants: each has a folder `VARIANT_SEED`, with its scores beside it.
      items: what the start's error is over.
      cells: of the scores of some runs.
    """
    rows = [
      "| variant | " + " | ".join(header) + " | minutes |",
      "| --- | " + "--- | " * len(header) + "--- |",
    ]
    start = cells([scores(self.folder / "start_scores")])
    rows.append(
      f"| start (error over {items}) | " + " | ".join(start) + " |  |"
    )
    for variant in variants:
      own = [self.folder / f"{variant}_{seed}" for seed in self.seeds]
      found = [scores(one.with_name(f"{one.name}_scores")) for one in own]
      row = [*cells(found), f"{minutes(own):.1f}"]
      rows.append(f"| `{variant}` | " + " | ".join(row) + " |")
    return "\n".join(rows)


def run(
  module: str,
  *arguments: str,
  dry: bool = False,
  cores: frozenset[int] = frozenset(),
) -> None:
  """Prints a command of this package and, unless `dry`, runs it to its end.

  Args:
    module: what follows `python -m`.
    *arguments: its flags.
    dry: only print it.
    cores: where it may run; none: anywhere.
  """
  command = [sys.executable, "-m", module, *arguments]
  print(shlex.join(command), flush=True)
  if cores:
    listed = ",".join(map(str, sorted(cores)))
    command = ["taskset", "-c", listed, *command]
  if not dry:
    subprocess.run(command, check=True)


def in_parallel(
  jobs: Sequence[Callable[[frozenset[int]], None]], at_once: int
) -> None:
  """Runs jobs in order, some at a time; each is told its share of the cores.

  Several small runs, each on cores of its own, get more done than one on all.
  The first failure is raised when those under way have ended.
  """
  if at_once == 1:
    for job in jobs:
      job(frozenset())
    return
  own = sorted(os.sched_getaffinity(0))
  shares: queue.Queue[frozenset[int]] = queue.Queue()
  for index in range(at_once):
    shares.put(frozenset(own[index::at_once]) or frozenset(own))

  def start(job: Callable[[frozenset[int]], None]) -> None:
    share = shares.get()
    try:
      job(share)
    finally:
      shares.put(share)

  with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
    pending = [pool.submit(start, job) for job in jobs]
    done, _ = concurrent.futures.wait(
      pending, return_when=concurrent.futures.FIRST_EXCEPTION
    )
    for future in pending:
      future.cancel()
  for future in done:
    future.result()


def metrics(run_folder: pathlib.Path) -> list[dict[str, Any]]:
  """A run's metrics, one dictionary per step."""
  text = (run_folder / "metrics.jsonl").read_text(encoding="utf-8")
  return [json.loads(line) for line in text.splitlines()]


def is_done(run_folder: pathlib.Path) -> bool:
  """Whether a run has reached its last step."""
  path = run_folder / "metrics.jsonl"
  if not path.exists():
    return False
  config = json.loads((run_folder / "config.json").read_text(encoding="utf-8"))
  found = metrics(run_folder)
  return bool(found) and found[-1]["step"] >= config["train"]["steps"]


def scores(folder: pathlib.Path) -> dict[str, float]:
  """What `azr_jax.evaluate` has found there; {}: nothing yet."""
  path = folder / "results.json"
  if not path.exists():
    return {}
  return json.loads(path.read_text(encoding="utf-8"))["scores"]


def mean_and_error(
  results: Sequence[dict[str, float]], name: str
) -> tuple[float, float]:
  """A score's mean over runs, and the standard error.

  Args:
    results: of `scores`, one per run.
    name: such as `countdown/pass@4`.

  Returns:
    The mean and its error over runs; of one run, the error over its items.
  """
  values = [one[f"{name}/unbiased"] for one in results]
  if len(values) > 1:
    error = statistics.stdev(values) / len(values) ** 0.5
    return statistics.mean(values), error
  return values[0], results[0][f"{name}/unbiased_error"]


def minutes(folders: Sequence[pathlib.Path]) -> float:
  """What training took, the mean over runs.

  By the median step: a run may have stood still where the machine did.
  """
  steps = [[m["time/step"] for m in metrics(folder)] for folder in folders]
  seconds = [len(own) * statistics.median(own) for own in steps]
  return statistics.mean(seconds) / 60


def claim(folder: pathlib.Path, settings: dict[str, Any]) -> None:
  """Makes a folder for runs of some settings.

  Raises:
    ValueError: it holds runs of others, which could not be compared.
  """
  path = folder / "settings.json"
  if not path.exists():
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
  found = json.loads(path.read_text(encoding="utf-8"))
  if found != settings:
    raise ValueError(
      f"{folder} holds runs of {found}, not of {settings}; expected the same, "
      "or another --workdir"
    )
