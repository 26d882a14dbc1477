"""Runs the jobs of an experiment, one per core, within its budget.

A job is one process. If this process ends, so do its jobs, and running the same
command again continues: runs resume from their checkpoints, and finished jobs
are skipped. Time is counted in core seconds, while a job holds a core.
"""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from azr_jax.lab.experiments import folders
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.jobs import ExperimentJob
from azr_jax.lab.experiments.progress import ExperimentProgress
from azr_jax.run import sigterm

_POLL_S = 0.2
# A longer gap between two polls means that this process, and so its jobs, were
# suspended.
_MAX_GAP_S = 5.0
_WRITE_S = 5.0
_STATUS_S = 60.0
# Jobs share a compilation cache, because most arms have the same programs.
_CACHE = "JAX_COMPILATION_CACHE_DIR"
# Time for a run to finish its step and save a checkpoint after SIGTERM.
_GRACE_S = 120.0


@dataclasses.dataclass
class _Running:
  job: ExperimentJob
  process: subprocess.Popen
  core: int


class Runner:
  """Starts jobs on free cores until all are done or the budget is spent."""

  def __init__(
    self,
    workdir: Workdir,
    jobs: Sequence[ExperimentJob],
    cores: Sequence[int],
    say: Callable[[str], None],
    budget_hours: float,
    keep: Callable[[], None] = lambda: None,
  ):
    """Stores the jobs; `run` starts them.

    Args:
      workdir: the experiment's working directory.
      jobs: all jobs, in the order to start them.
      cores: the cores to use, one job per core.
      say: prints a status line.
      budget_hours: core-hours that this call may take, at most what is left of
        the plan's.
      keep: called after each finished job.
    """
    self._keep = keep
    self._workdir, self._jobs, self._cores = workdir, jobs, cores
    self._say = say
    self._spent = workdir.spent()
    self._running: list[_Running] = []
    self._failed: dict[str, pathlib.Path] = {}
    self._unusable: ValueError | None = None
    before = sum(self._spent.values())
    self._budget_s = 3600 * min(
      workdir.plan.about.core_hours, before / 3600 + budget_hours
    )
    self._progress = ExperimentProgress(workdir, len(cores))

  def run(self) -> bool:
    """Runs until every job is done, the budget is spent, or SIGTERM arrives.

    Returns:
      Whether every job is done.

    Raises:
      RuntimeError: some jobs failed; the others were run.
      ValueError: a job finished with results that must not be used. The other
        jobs were stopped and can be resumed.
    """
    for job in self._jobs:
      if job.is_done():
        job.check()
    with sigterm.watch_for_sigterm() as stop:
      try:
        while not (stop.is_set() or self._unusable) and self._left_s() > 0:
          self._start_jobs()
          if not self._running and not self._waiting():
            break
          self._watch(lambda: stop.is_set() or self._left_s() <= 0)
      finally:
        self._end_all()
    if self._unusable:
      raise self._unusable
    if self._failed:
      logs = ", ".join(map(str, self._failed.values()))
      raise RuntimeError(
        f"{len(self._failed)} jobs failed: expected exit status 0 and results; "
        f"see {logs}; run the same command to retry them"
      )
    open_jobs = [job.name for job in self._jobs if not job.is_done()]
    if open_jobs and self._left_s() <= 0:
      self._say(
        f"the budget of {self._budget_s / 3600:.3g} core-hours is spent, with "
        f"{len(open_jobs)} of {len(self._jobs)} jobs left"
      )
    return not open_jobs

  def _left_s(self) -> float:
    return self._budget_s - sum(self._spent.values())

  def _candidates(self) -> list[ExperimentJob]:
    """Returns the jobs that may start, in order."""
    running = {one.job.name for one in self._running}
    todo = [
      job
      for job in self._jobs
      if job.name not in running
      and job.name not in self._failed
      and not job.is_done()
    ]
    blocked = running | self._failed.keys() | {job.name for job in todo}
    return [job for job in todo if not blocked & {*job.needs}]

  def _waiting(self) -> bool:
    """Returns whether a job is waiting for another process in its folder."""
    return bool(self._candidates())

  def _start_jobs(self) -> None:
    """Starts a job on each free core."""
    busy = {one.core for one in self._running}
    free = [core for core in self._cores if core not in busy]
    if not free:
      return
    ready = [j for j in self._candidates() if not folders.is_locked(j.folder)]
    for core, job in zip(free, ready, strict=False):
      self._start(job, core)

  def _start(self, job: ExperimentJob, core: int) -> None:
    log = self._log(job)
    log.parent.mkdir(parents=True, exist_ok=True)
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    pinned = [sys.executable, "-m", "azr_jax.lab.experiments.pinned"]
    with log.open("ab") as file:
      process = subprocess.Popen(
        [*pinned, str(os.getpid()), str(core), *job.command],
        stdin=subprocess.DEVNULL,
        stdout=file,
        stderr=subprocess.STDOUT,
        env={_CACHE: str(self._workdir.path / "compiled"), **os.environ},
      )
    self._running.append(_Running(job, process, core))
    self._say(f"core {core}: {job.name}")

  def _log(self, job: ExperimentJob) -> pathlib.Path:
    return self._workdir.path / "logs" / f"{job.name}.log"

  def _watch(self, must_stop: Callable[[], bool]) -> None:
    """Counts time until a job ends or all jobs must stop."""
    last = written = time.monotonic()
    said = float("-inf")
    while not must_stop():
      time.sleep(_POLL_S)
      now = time.monotonic()
      gap, last = min(now - last, _MAX_GAP_S), now
      for one in self._running:
        self._spent[one.job.name] = self._spent.get(one.job.name, 0.0) + gap
      ended = [one for one in self._running if one.process.poll() is not None]
      if ended or now - written > _WRITE_S:
        self._workdir.write_spent(self._spent)
        written = now
      if now - said > _STATUS_S:
        self._say(self._progress.line(self._spent))
        said = now
      if ended or not self._running:
        for one in ended:
          self._end(one)
        return

  def _end(self, one: _Running) -> None:
    self._running.remove(one)
    status = one.process.returncode
    if status == 0:
      one.job.finish()
      if one.job.is_done():
        self._check(one.job)
        return
    self._failed[one.job.name] = self._log(one.job)
    self._say(f"{one.job.name} is not done; exit status {status}")

  def _check(self, job: ExperimentJob) -> None:
    """Archives a job's results, unless they must not be used."""
    try:
      job.check()
      self._keep()
    except ValueError as error:
      self._unusable = error

  def _end_all(self) -> None:
    """Sends SIGTERM to the running jobs, so that runs save a checkpoint."""
    for one in self._running:
      one.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    for one in self._running:
      try:
        one.process.wait(max(0.0, deadline - time.monotonic()))
      except subprocess.TimeoutExpired:
        one.process.kill()
        one.process.wait()
    self._running = []
    self._workdir.path.mkdir(parents=True, exist_ok=True)
    self._workdir.write_spent(self._spent)
    self._say(self._progress.line(self._spent))
