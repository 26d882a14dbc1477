"""An experiment's working directory: its layout, and which parts are done.

| path | content |
| --- | --- |
| `experiment.toml` | the plan that the runs started with |
| `ARM_SEED/` | a run |
| `ARM_SEED_scores/SCORE/` | a run's results on a benchmark |
| `start_scores/SCORE/` | results of the model that runs start from |
| `prepared/NAME/` | output of a preparation |
| `prepared/NAME.done` | marks a finished preparation; holds its commit |
| `compiled/` | compilation cache that jobs share |
| `logs/JOB.log` | output of a process |
| `spent.json` | core seconds by job |
| `commits.txt` | commits of the code that ran the jobs |
"""

import fcntl
import json
import pathlib
import re
from collections.abc import Iterable
from typing import Any

from azr_jax.config import overrides, user_files
from azr_jax.evals import score_files
from azr_jax.lab.experiments import plan_file, registration
from azr_jax.lab.experiments.plan import NEXT, Plan
from azr_jax.learner.advantages import GAE
from azr_jax.run import checkpoint, metrics, starts, storage
from azr_jax.run import folder as run_folder

_PACKAGE = pathlib.Path(__file__).parents[2]

SPENT, COMMITS = "spent.json", "commits.txt"

# Matches the benchmark's part of an evaluation metric's name.
_EVALUATION = re.compile("evaluation/[^/]+")


class Workdir:
  """The working directory of an experiment."""

  def __init__(self, path: pathlib.Path, plan: Plan):
    self.path, self.plan = path, plan

  def run(self, arm: str, seed: int) -> pathlib.Path:
    """Returns the folder of a run."""
    return self.path / f"{arm}_{seed}"

  def scores(self, arm: str, seed: int, score: str) -> pathlib.Path:
    """Returns the folder of a run's results on a benchmark."""
    return self.path / f"{arm}_{seed}_scores" / score

  def start_scores(self, score: str) -> pathlib.Path:
    """Returns the folder of the starting model's results on a benchmark."""
    return self.path / "start_scores" / score

  def prepared(self, name: str) -> pathlib.Path:
    """Returns the folder of a preparation."""
    return self.path / "prepared" / name

  def prepared_folders(self) -> dict[str, str]:
    """Returns the absolute folder of each preparation, by name."""
    return {
      one.name: str(self.prepared(one.name).resolve())
      for one in self.plan.preparations
    }

  def folders_of(self, arm: str, seed: int) -> dict[str, str]:
    """Returns the absolute folder of each name that a run may refer to."""
    following = self.plan.next_seed(seed)
    return self.prepared_folders() | {
      f"{NEXT}{other}": str(self.run(other, following).resolve())
      for other in self.plan.arms[arm].sources()
    }

  def overrides(self, arm: str, seed: int) -> dict[str, Any]:
    """Returns the config keys of a run, with folders filled in."""
    folders = self.folders_of(arm, seed)
    return {
      key: plan_file.filled(value, folders)
      for key, value in self.plan.arms[arm].overrides.items()
    }

  def spent(self) -> dict[str, float]:
    """Returns the core seconds of each job so far."""
    path = self.path / SPENT
    return user_files.read_object(path) if path.exists() else {}

  def write_spent(self, seconds: dict[str, float]) -> None:
    """Writes the core seconds of each job."""
    storage.write_atomically(
      self.path / SPENT, json.dumps(seconds, indent=2) + "\n"
    )

  def register(self, source: pathlib.Path) -> None:
    """Copies the plan and records the commit, before runs are started.

    Args:
      source: the folder of the experiment.

    Raises:
      ValueError: the runs started with another plan.
    """
    self.adopt(source)
    commit = starts.commit(_PACKAGE)
    if commit and commit not in self.commits():
      with (self.path / COMMITS).open("a", encoding="utf-8") as file:
        file.write(f"{commit}\n")

  def adopt(self, source: pathlib.Path) -> None:
    """Copies the plan; arguments and errors are as in `register`."""
    self.check_plan(source)
    self.path.mkdir(parents=True, exist_ok=True)
    text = (source / plan_file.FILE).read_text("utf-8")
    storage.write_atomically(self.path / plan_file.FILE, text)

  def check_plan(self, source: pathlib.Path) -> None:
    """Checks that the runs started with this plan, or with one that it amends.

    Args:
      source: the folder of the experiment.

    Raises:
      ValueError: the runs started with another plan.
    """
    if self.is_registered():
      registration.check(self.path, source)

  def commits(self) -> list[str]:
    """Returns the commits of this package that have run jobs."""
    path = self.path / COMMITS
    return path.read_text("utf-8").split() if path.exists() else []

  def is_registered(self) -> bool:
    """Returns whether the runs started with a registered plan."""
    return (self.path / plan_file.FILE).exists()


def read_rows(run: pathlib.Path) -> list[dict[str, float]]:
  """Returns a run's metrics, a row per step, without a partial last line.

  Raises:
    ValueError: the file is damaged.
  """
  path = run / metrics.METRICS
  if not path.exists():
    return []
  lines = path.read_bytes().decode("utf-8").split("\n")[:-1]
  with user_files.reading(path, "metrics of a run"):
    return [user_files.parse_json(line) for line in lines]


def steps_done(run: pathlib.Path) -> tuple[int, int]:
  """Returns a run's finished and total steps; (0, 0) if it has not started."""
  rows = read_rows(run)
  if not rows:
    return 0, 0
  total = run_folder.read_config(run)["train"]["steps"]
  return min(int(rows[-1]["step"]), total), total


def is_done(run: pathlib.Path) -> bool:
  """Returns whether a run has all steps and the scores of its last policy.

  Its folder of checkpoints must hold the last step's, because saving it may
  have failed, unless it is gone or empty: archives have none.
  """
  rows = read_rows(run)
  if not rows:
    return False
  config = run_folder.read_config(run)
  steps = config["train"]["steps"]
  saved = run / checkpoint.FOLDER
  if saved.is_dir() and any(saved.iterdir()):
    if not (saved / str(steps)).is_dir():
      return False
  # The last policy's scores are in the row of the step after it.
  evaluates = bool(config.get("evaluation", {}).get("every"))
  return int(rows[-1]["step"]) >= steps + evaluates


def is_scored(folder: pathlib.Path) -> bool:
  """Returns whether `azr_jax.evaluate` has finished in a folder."""
  return (folder / score_files.RESULTS).is_file()


def check_score(folder: pathlib.Path, benchmark: str) -> None:
  """Checks that no scored prompt was too long.

  Raises:
    ValueError: some prompts were too long, so their items are wrong for every
      policy and hide differences; or the file does not record it.
  """
  path = folder / score_files.RESULTS
  with user_files.reading(path, "scores of this benchmark"):
    scores = user_files.read_object(path)["scores"]
    items = scores[f"{benchmark}/items"]
    too_long = scores[f"{benchmark}/too_long"]
  _refuse_too_long(folder, too_long, items, "score")


def check_evaluations(run: pathlib.Path, names: Iterable[str]) -> None:
  """Checks that no prompt of a run's evaluations was too long.

  Args:
    run: the run's folder.
    names: the metrics that are read. The evaluations among them are checked.

  Raises:
    ValueError: some prompts were too long, as in `check_score`.
  """
  found = (_EVALUATION.match(name) for name in names)
  benchmarks = sorted({match[0] for match in found if match})
  for row in read_rows(run) if benchmarks else ():
    for benchmark in benchmarks:
      too_long = row.get(f"{benchmark}/too_long", 0.0)
      items = row.get(f"{benchmark}/items", 0.0)
      _refuse_too_long(run, too_long, items, "arm")


def _refuse_too_long(
  folder: pathlib.Path, too_long: float, items: float, setter: str
) -> None:
  """Raises a ValueError if prompts were too long.

  Args:
    folder: the folder of the results.
    too_long: number of items whose prompt was too long.
    items: total number of items.
    setter: the table of the plan that sets the limit, "arm" or "score".
  """
  if too_long:
    raise ValueError(
      f"{folder}: {too_long:.0f} of {items:.0f} items are wrong for every "
      "policy, because their prompts are too long: expected none; raise "
      f"rollout.prompt_buckets of the {setter}, and start over with another "
      "--workdir and without what runs/ keeps"
    )


def is_prepared(folder: pathlib.Path) -> bool:
  """Returns whether a preparation has finished."""
  return _marker(folder).exists()


def mark_prepared(
  folder: pathlib.Path, output: str, commit: str | None = None
) -> None:
  """Marks a preparation as done if its output exists.

  Args:
    folder: the folder of the preparation.
    output: the file or folder that it should have written there.
    commit: commit of the code that made it; None takes this package's commit.
  """
  if (folder / output).exists():
    made_at = commit if commit is not None else starts.commit(_PACKAGE)
    _marker(folder).write_text(f"{made_at or ''}\n", encoding="utf-8")


def prepared_commit(folder: pathlib.Path) -> str:
  """Returns the commit that made a preparation; "" if unknown."""
  return _marker(folder).read_text("utf-8").strip()


def _marker(folder: pathlib.Path) -> pathlib.Path:
  return folder.with_name(f"{folder.name}.done")


def is_locked(folder: pathlib.Path) -> bool:
  """Returns whether a process is working in a folder."""
  path = folder / "lock"
  if not path.exists():
    return False
  with path.open("a", encoding="utf-8") as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      return True
  return False


def check_run(
  run: pathlib.Path, expected: dict[str, Any], named: set[str]
) -> None:
  """Checks that a run was trained with a config.

  Settings of a critic or a teacher are compared only if the run has one.

  Args:
    run: the run's folder.
    expected: the config in the plan, nested by section.
    named: keys that the run must have. It may lack other keys, and may differ
      in keys that a resumed run may change.

  Raises:
    ValueError: a key has another value.
  """
  found = overrides.flatten(run_folder.read_config(run))
  # A config in JSON has lists in place of tuples.
  wanted = overrides.flatten(json.loads(json.dumps(expected)))
  # A run computes the digest of a user's prompts.
  unread = (*run_folder.MUTABLE_KEYS, "prompts.digest")
  if found.get("learner.estimator") != GAE:
    unread += ("critic.",)
  if not found.get("distill.weight"):
    unread += ("distill.",)
  may_differ = {key for key in found if key.startswith(unread)}
  may_differ -= {"train.steps", "distill.weight"}
  for key in sorted((found.keys() - may_differ | named) & wanted.keys()):
    if (has := found.get(key)) != wanted[key]:
      raise ValueError(
        f"{run}: config.{key}={has!r}: expected {wanted[key]!r}, as in the plan"
      )
