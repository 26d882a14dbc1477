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
