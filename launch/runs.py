"""What the scripts that train and score several runs have in common.

A script makes one `Launcher`, which defines the flags. It then opens the
folder, runs jobs, each of which trains or scores what is missing, and prints a
table. All commands can be repeated: finished runs are not run again.
"""

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

from absl import flags

from azr_jax.cli.errors import UsageError

Scores = dict[str, float]
# A job gets the cores to run on; an empty set means any.
Cores = frozenset[int]
Job = Callable[[Cores], None]
ANY_CORES: Cores = frozenset()


class Launcher:
  """The flags that the scripts share, and the commands that they start."""

  def __init__(self) -> None:
    """Defines the flags; call it once, before they are parsed."""
    self._workdir = flags.DEFINE_string(
      "workdir", None, "Folder of all runs.", required=True
    )
    self._seeds = flags.DEFINE_list(
      "seeds", ["0", "1", "2"], "Seeds of each variant."
    )
    self._parallel = flags.DEFINE_integer(
      "parallel", 1, "Number of runs at a time; they divide the cores."
    )
    self._extra = flags.DEFINE_list(
      "extra", [], "More flags for training, e.g. --config.train.steps=10"
    )
    self._dry_run = flags.DEFINE_bool(
      "dry_run", False, "Print the commands without running them."
    )

  @property
  def folder(self) -> pathlib.Path:
    """The folder of all runs."""
    return pathlib.Path(self._workdir.value).expanduser()

  @property
  def seeds(self) -> list[str]:
    """The seeds of each variant."""
    return self._seeds.value

  @property
  def dry(self) -> bool:
    """Whether commands are only printed."""
    return self._dry_run.value

  def open_folder(self, **settings: Any) -> None:
    """Claims the folder for runs with these settings and `--extra`.

    Raises:
      UsageError: the folder holds runs with other settings.
    """
    if self.dry:
      return
    try:
      check_settings(self.folder, {**settings, "extra": self._extra.value})
    except ValueError as error:
      raise UsageError(str(error)) from None

  def run_jobs(self, jobs: Sequence[Job]) -> None:
    """Runs the jobs, `--parallel` at a time."""
    in_parallel(jobs, self._parallel.value)

  def run(self, module: str, *arguments: str, cores: Cores = ANY_CORES) -> None:
    """Prints a command of this package and runs it, unless `--dry_run`."""
    run(module, *arguments, dry=self.dry, cores=cores)

  def train(
    self,
    run_folder: pathlib.Path,
    config: str,
    *arguments: str,
    seed: str,
    cores: Cores,
  ) -> None:
    """Trains in a run folder, unless the run is finished."""
    if not is_done(run_folder):
      self.run(
        "azr_jax.train",
        f"--config={config}",
        *arguments,
        f"--config.seed={seed}",
        *self._extra.value,
        f"--workdir={run_folder}",
        cores=cores,
      )

  def score(
    self,
    score_folder: pathlib.Path,
    model: str,
    benchmark: str,
    *arguments: str,
    cores: Cores = ANY_CORES,
  ) -> None:
    """Scores a model, unless the folder already has scores."""
    if not scores(score_folder):
      self.run(
        "azr_jax.evaluate",
        *arguments,
        f"--model={model}",
        f"--benchmark={benchmark}",
        f"--workdir={score_folder}",
        cores=cores,
      )

  def table(
    self,
    header: Sequence[str],
    variants: Sequence[str],
    items: str,
    cells: Callable[[list[Scores]], list[str]],
  ) -> str:
    """Returns a Markdown table of the start's scores and of each variant's.

    Args:
      header: the titles of the cells.
      variants: their runs are the folders `VARIANT_SEED`, with the scores in
        `VARIANT_SEED_scores`.
      items: the noun for what the start's standard error is over.
      cells: formats the scores of the runs of one row.
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
      folders = [self.folder / f"{variant}_{seed}" for seed in self.seeds]
      results = [scores(f.with_name(f"{f.name}_scores")) for f in folders]
      row = [*cells(results), f"{minutes(folders):.1f}"]
      rows.append(f"| `{variant}` | " + " | ".join(row) + " |")
    return "\n".join(rows)


def run(
  module: str, *arguments: str, dry: bool = False, cores: Cores = ANY_CORES
) -> None:
  """Prints a command of this package and, unless `dry`, runs it to its end.

  Args:
    module: the module to run with `python -m`.
    *arguments: its flags.
    dry: whether to only print it.
    cores: the cores that it may use; none: all.

  Raises:
    CalledProcessError: the command failed.
  """
  command = [sys.executable, "-m", module, *arguments]
  print(shlex.join(command), flush=True)
  if cores:
    core_list = ",".join(map(str, sorted(cores)))
    command = ["taskset", "-c", core_list, *command]
  if not dry:
    subprocess.run(command, check=True)


def in_parallel(jobs: Sequence[Job], at_once: int) -> None:
  """Runs jobs in order, several at a time, each on a part of the cores.

  Several small runs, each on its own cores, finish sooner than one after the
  other on all cores. After a failure no further job is started; the failure is
  raised when the running jobs have ended.

  Args:
    jobs: the jobs.
    at_once: the number of jobs that run at the same time.
  """
  if at_once == 1:
    for job in jobs:
      job(ANY_CORES)
    return
  all_cores = sorted(os.sched_getaffinity(0))
  free: queue.Queue[Cores] = queue.Queue()
  for index in range(at_once):
    free.put(frozenset(all_cores[index::at_once]) or frozenset(all_cores))

  def start(job: Job) -> None:
    cores = free.get()
    try:
      job(cores)
    finally:
      free.put(cores)

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
  """Returns a run's metrics, one dictionary per step."""
  text = (run_folder / "metrics.jsonl").read_text(encoding="utf-8")
  return [json.loads(line) for line in text.splitlines()]


def is_done(run_folder: pathlib.Path) -> bool:
  """Returns whether a run has reached its last step."""
  path = run_folder / "metrics.jsonl"
  if not path.exists():
    return False
  config = json.loads((run_folder / "config.json").read_text(encoding="utf-8"))
  steps = metrics(run_folder)
  return bool(steps) and steps[-1]["step"] >= config["train"]["steps"]


def scores(folder: pathlib.Path) -> Scores:
  """Returns the scores that `azr_jax.evaluate` wrote; {} if there are none."""
  path = folder / "results.json"
  if not path.exists():
    return {}
  return json.loads(path.read_text(encoding="utf-8"))["scores"]


def mean_and_error(results: Sequence[Scores], name: str) -> tuple[float, float]:
  """Returns a score's mean over runs and its standard error.

  Args:
    results: the scores of each run.
    name: the score, such as `countdown/pass@4`.

  Returns:
    The mean and the standard error over runs; for one run, its score and the
    standard error over items.
  """
  values = [result[f"{name}/unbiased"] for result in results]
  if len(values) > 1:
    error = statistics.stdev(values) / len(values) ** 0.5
    return statistics.mean(values), error
  return values[0], results[0][f"{name}/unbiased_stderr"]


def minutes(folders: Sequence[pathlib.Path]) -> float:
  """Returns the minutes that training took, the mean over runs.

  It is the median step times the number of steps, because single steps include
  the time in which the machine was suspended.
  """
  steps = [[m["time/step"] for m in metrics(folder)] for folder in folders]
  seconds = [len(times) * statistics.median(times) for times in steps]
  return statistics.mean(seconds) / 60


def check_settings(folder: pathlib.Path, settings: dict[str, Any]) -> None:
  """Makes a folder for runs, or accepts one with runs of the same settings.

  Raises:
    ValueError: the folder holds runs with other settings, which cannot be
      compared with these.
  """
  path = folder / "settings.json"
  if not path.exists():
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
  claimed = json.loads(path.read_text(encoding="utf-8"))
  if claimed != settings:
    raise ValueError(
      f"{folder} holds runs of {claimed}, not of {settings}; expected the same "
      "settings, or another --workdir"
    )
