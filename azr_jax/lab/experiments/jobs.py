"""The processes of an experiment: preparations, runs, and their scores."""

import dataclasses
import functools
import pathlib
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import Any

from azr_jax.lab.experiments import folders, plan_file
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.plan import ScoreSettings


@dataclasses.dataclass(frozen=True)
class ExperimentJob:
  """A process that can be killed and resumes when it is started again.

  Attributes:
    name: the key of its log and of its core seconds.
    command: its command line.
    needs: names of jobs that must be done first.
    folder: the folder it writes to; another process may be working there.
    is_done: returns whether nothing is left to do.
    finish: called after the process has succeeded.
    check: called when nothing is left to do; raises ValueError for results
      that must not be used.
  """

  name: str
  command: tuple[str, ...]
  needs: tuple[str, ...]
  folder: pathlib.Path
  is_done: Callable[[], bool]
  finish: Callable[[], None] = lambda: None
  check: Callable[[], None] = lambda: None

  def line(self) -> str:
    """Returns the command line, as a user would type it."""
    return shlex.join(("python", *self.command[1:]))


def make(workdir: Workdir) -> list[ExperimentJob]:
  """Returns all jobs of an experiment, in the order to start them."""
  jobs = [*_preparations(workdir)]
  for name, score in workdir.plan.scores.items():
    if score.start:
      folder = workdir.start_scores(name)
      jobs.append(_score(workdir, f"start_{name}", score, score.start, folder))
  for arm, seed in workdir.plan.runs_in_order():
    run = workdir.run(arm, seed)
    jobs.append(_train(workdir, arm, seed))
    jobs += [
      _score(
        workdir,
        f"{run.name}_{name}",
        workdir.plan.scores[name],
        str(run),
        workdir.scores(arm, seed, name),
        needs=(run.name,),
      )
      for name in workdir.plan.scores_of(arm)
    ]
  return jobs


def flag(key: str, value: Any) -> str:
  """Returns `--config.KEY=VALUE`, turning TOML's lists into tuples."""
  return f"--config.{key}={tuple(value) if isinstance(value, list) else value}"


def _module(name: str, *arguments: str) -> tuple[str, ...]:
  return (sys.executable, "-m", name, *arguments)


def _preparations(workdir: Workdir) -> Iterator[ExperimentJob]:
  prepared = workdir.prepared_folders()
  for one in workdir.plan.preparations:
    folder = workdir.prepared(one.name)
    here = {**prepared, "folder": prepared[one.name]}
    yield ExperimentJob(
      one.name,
      _module(one.command, *plan_file.filled(one.arguments, here)),
      tuple(sorted(plan_file.references(one.arguments))),
      folder,
      functools.partial(folders.is_prepared, folder),
      functools.partial(folders.mark_prepared, folder, one.output),
    )


def _train(workdir: Workdir, arm: str, seed: int) -> ExperimentJob:
  run = workdir.run(arm, seed)
  own = workdir.overrides(arm, seed)
  command = _module(
    workdir.plan.arms[arm].command,
    f"--config={workdir.plan.arms[arm].config}",
    *(flag(key, value) for key, value in own.items()),
    flag("seed", seed),
    f"--workdir={run}",
  )
  trained, following = workdir.plan.arms[arm], workdir.plan.next_seed(seed)
  values = [*trained.overrides.values()]
  prepared = plan_file.references(values) & workdir.prepared_folders().keys()
  sources = [workdir.run(one, following).name for one in trained.sources()]
  needs = (*sorted(prepared), *sources)
  read = workdir.plan.metrics()
  return ExperimentJob(
    run.name,
    command,
    needs,
    run,
    lambda: folders.is_done(run),
    check=lambda: folders.check_evaluations(run, read),
  )


def _score(
  workdir: Workdir,
  name: str,
  score: ScoreSettings,
  model: str,
  folder: pathlib.Path,
  needs: tuple[str, ...] = (),
) -> ExperimentJob:
  prepared = workdir.prepared_folders()
  command = _module(
    "azr_jax.evaluate",
    f"--config={score.config}",
    f"--model={plan_file.filled(model, prepared)}",
    f"--benchmark={score.benchmark}",
    *plan_file.filled(score.arguments, prepared),
    f"--workdir={folder}",
  )
  references = plan_file.references([model, *score.arguments])
  return ExperimentJob(
    name,
    command,
    (*needs, *sorted(references)),
    folder,
    lambda: folders.is_scored(folder),
    check=lambda: folders.check_score(folder, score.benchmark),
  )
