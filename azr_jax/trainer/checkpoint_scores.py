"""Scores all checkpoints of a run, and chooses one by a validation set.

A checkpoint that is chosen by a benchmark scores too high there: among many
equally good ones, the luckiest wins. So validation benchmarks choose, other
benchmarks report, and the last checkpoint is reported beside the chosen one.

A work folder holds a folder `step_N` of `azr_jax.evaluate` for each reported
checkpoint, `validation/step_N` for each checkpoint, and `FILE`.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_collections

from azr_jax.config import settings as settings_lib
from azr_jax.config import user_files
from azr_jax.evals import registry, table
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import checkpoint_reading, storage
from azr_jax.run.session import Run
from azr_jax.trainer import loading, scoring
from azr_jax.trainer import settings as train_settings

# The value of --step that means every checkpoint.
ALL = "all"
FILE = "checkpoints.json"
VALIDATION = "validation"
# Values by metric, of one checkpoint.
Scores = dict[str, float]
# (step, folder) -> scores of the checkpoint.
_Score = Callable[[int, pathlib.Path], Scores]


@dataclasses.dataclass
class CheckpointScores:
  """Scores by step.

  Attributes:
    scores: scores to report: of each checkpoint or, if one was chosen, of the
      chosen and the last one.
    validation: scores of each checkpoint that the choice depends on; {} if none
      was chosen.
    select: the benchmarks that choose; "" if none was chosen.
    shared: benchmarks that choose and report on the same data.
  """

  scores: dict[int, Scores] = dataclasses.field(default_factory=dict)
  validation: dict[int, Scores] = dataclasses.field(default_factory=dict)
  select: str = ""
  shared: tuple[str, ...] = ()

  @property
  def last(self) -> int:
    """The last step."""
    return max(self.validation or self.scores)

  @property
  def chosen(self) -> int | None:
    """The step of the best validation score, the first of equal ones."""
    if not self.select:
      return None
    return max(
      sorted(self.validation),
      key=lambda step: selection_score(self.select, self.validation[step])[0],
    )

  def as_json(self) -> dict[str, Any]:
    """Returns the content of `FILE`."""
    found = {"scores": self.scores, "validation": self.validation}
    if self.select and self.validation:
      found |= {"chosen": self.chosen, "last": self.last}
    return found


def parse_step(text: str, select: str) -> int | None:
  """Returns the step of the flag --step; None for the newest, or for `ALL`.

  Args:
    text: the value of --step.
    select: the value of --select.

  Raises:
    ValueError: the value is neither a step nor `ALL`, or --select has no
      checkpoints to choose from.
  """
  if text == ALL:
    return None
  if select:
    raise ValueError(
      f"--select={select}: expected --step={ALL}, to choose from checkpoints"
    )
  if text and not (text.isascii() and text.isdecimal()):
    raise ValueError(f"--step={text}: expected a step, or {ALL}")
  return int(text) if text else None


def selection_score(
  select: str, scores: Mapping[str, float]
) -> tuple[float, float]:
  """Returns the score that a checkpoint is chosen by, and its standard error.

  It is a mean over the entries of `select`, in which a group counts like one
  benchmark: with its own mean. `code,math` therefore gives AZR's overall
  average.

  Args:
    select: comma-separated benchmarks and groups.
    scores: values by metric, as `scoring.evaluate` returns them.

  Raises:
    ValueError: an entry has no score.
  """
  means, errors = [], []
  for entry in select.split(","):
    keys = [
      table.main_score(registry.find(name).name)
      for name in registry.names(entry)
    ]
    # Without data, `all` leaves benchmarks out, the same for each checkpoint.
    keys = [key for key in keys if key in scores]
    if not keys:
      raise ValueError(
        f"select={select!r}: {entry} has no score; expected benchmarks with "
        "data and a single agent"
      )
    means.append(sum(scores[key] for key in keys) / len(keys))
    stderrs = [scores.get(f"{key}_stderr", 0.0) for key in keys]
    errors.append(math.hypot(*stderrs) / len(keys))
  return sum(means) / len(means), math.hypot(*errors) / len(errors)


def score_all(
  config: ml_collections.ConfigDict,
  model_spec: str,
  benchmark: str,
  workdir: str,
  data: str = "",
  limit: int = 0,
  select: str = "",
  select_data: str = "",
) -> CheckpointScores:
  """Scores the checkpoints of a run. A killed command resumes.

  Without `select`, every checkpoint is scored on `benchmark`. Otherwise every
  checkpoint is scored on `select`, and the best one and the last one are scored
  on `benchmark`. Damaged checkpoints are skipped.

  Args:
    config: a config of `configs/evaluate.py`.
    model_spec: the folder of a run.
    benchmark: comma-separated names and groups of `evals/registry.py`.
    workdir: the folder for results and records.
    data: see `scoring.evaluate`.
    limit: see `scoring.evaluate`; for all benchmarks.
    select: comma-separated benchmarks and groups that choose a checkpoint.
    select_data: the data of `select`, like `data`.

  Raises:
    ValueError: as for `scoring.evaluate`, or the model is not a run.
  """
  if not loading.is_run(model_spec):
    raise ValueError(
      f"--step=all: expected a run with checkpoints, but {model_spec} has none"
    )
  if select_data and not select:
    raise ValueError(f"--select_data={select_data}: expected --select, too")
  settings = train_settings.read(train_settings.EvaluateSettings, config)
  every = registry.names(",".join(filter(None, (benchmark, select))))
  settings, _ = scoring.read_prompts(settings, workdir, every)
  identity = {
    "model": model_spec,
    "config": settings_lib.as_dict(settings),
    "benchmark": benchmark,
    "data": data,
    "limit": limit,
    "select": select,
    "select_data": select_data,
  }
  with scoring.open_scores(workdir, settings, identity, (FILE,)) as run:
    found = _read(run, select)

    def scorer(names: str, paths: str, beside: str) -> _Score:
      return lambda step, folder: scoring.evaluate(
        config, model_spec, names, str(folder), paths, limit, step, beside
      )

    steps = checkpoint_reading.finished_steps(storage.resolve(model_spec))
    run.hosts.assert_equal("checkpoints", steps)
    if not select:
      score = scorer(benchmark, data, "")
      _score_steps(run, found, found.scores, model_spec, steps, score)
      return found
    found.shared = _shared(benchmark, data, select, select_data)
    score = scorer(select, select_data, benchmark)
    _score_steps(run, found, found.validation, model_spec, steps, score)
    assert found.chosen is not None
    ends = sorted({found.chosen, found.last})
    # An earlier command may have chosen another, of fewer checkpoints.
    found.scores = {
      step: scores for step, scores in found.scores.items() if step in ends
    }
    score = scorer(benchmark, data, select)
    _score_steps(run, found, found.scores, model_spec, ends, score)
    return found


def _shared(
  benchmark: str, data: str, select: str, select_data: str
) -> tuple[str, ...]:
  """Returns the benchmarks that choose and report on the same data."""
  report, choose = registry.names(benchmark), registry.names(select)
  paths = registry.paths(report, data)
  select_paths = registry.paths(choose, select_data)
  return tuple(
    name
    for name in choose
    if name in report and paths.get(name) == select_paths.get(name)
  )


def _score_steps(
  run: Run,
  found: CheckpointScores,
  scores: dict[int, Scores],
  model_spec: str,
  steps: Sequence[int],
  score: _Score,
) -> None:
  """Scores the steps that have no scores yet, and writes each.

  Args:
    run: the work folder.
    found: all scores so far.
    scores: those of its scores that are completed.
    model_spec: the folder of the trained run.
    steps: the steps to score.
    score: scores one checkpoint.

  Raises:
    ValueError: all checkpoints are damaged.
  """
  parent = run.folder
  if scores is found.validation:
    parent = run.folder / VALIDATION
  for step in steps:
    if step in scores:
      continue
    folder = storage.resolve(model_spec)
    damage = checkpoint_reading.find_damage(folder, step, run.hosts)
    if damage:
      run.print_status(f"step {step} is left out: it is damaged ({damage})")
      continue
    run.print_status(f"scoring step {step} of {steps[-1]}")
    mine = score(step, parent / f"step_{step}")
    # Only the primary host knows the averages.
    text = run.hosts.from_primary("scores", lambda own=mine: json.dumps(own))
    scores[step] = json.loads(text)
    if run.is_primary:
      content = json.dumps(found.as_json(), indent=2)
      storage.write_atomically(run.folder / FILE, content + "\n")
  if not scores:
    raise ValueError(f"{model_spec}: all checkpoints are damaged")


def _read(run: Run, select: str) -> CheckpointScores:
  """Returns the scores that an earlier command wrote.

  Raises:
    ValueError: the file is damaged.
  """
  text = _text_of(run.folder / FILE, run.hosts)
  found = CheckpointScores(select=select)
  if not text:
    return found
  with user_files.reading(run.folder / FILE, "scores by step"):
    content = user_files.parse_json(text)
    for scores, name in (
      (found.scores, "scores"),
      (found.validation, VALIDATION),
    ):
      scores |= {int(step): row for step, row in content[name].items()}
  return found


def _text_of(path: pathlib.Path, hosts: Hosts) -> str:
  """Returns a file's text on all hosts; "" if there is none."""
  return hosts.from_primary(
    path.name, lambda: path.read_text("utf-8") if path.exists() else ""
  )
