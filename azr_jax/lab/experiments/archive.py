"""Archives the results of finished runs beside the plan, in `runs/`.

Run folders contain checkpoints and stay where they were made. The plan's
outcomes and panels need only a little of them: metrics by step, and which items
are right. This is archived as runs finish, so that another machine can continue
with a new working directory.

| file | content |
| --- | --- |
| `runs/ARM_SEED.json` | a run: config, the plan's metrics, scores |
| `runs/start.json` | scores of the model that runs start from |
| `runs/items_SCORE.json` | the items of a score: question by id |
| `runs/answers/` | answers to scores with styles; see `answers.py` |
| `runs/prepared/` | outputs of preparations; see `preparations.py` |
"""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from azr_jax.config import user_files
from azr_jax.evals import score_files
from azr_jax.lab.experiments import (
  answers,
  folders,
  kept_records,
  preparations,
  registration,
)
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.plan import START
from azr_jax.run import folder as run_folder
from azr_jax.run import metrics, starts, storage

_FOLDER = "runs"
_COMMIT_DIGITS = 7
# `time/step` gives the core minutes of a run.
_ALWAYS = ("step", "time/step")


def save(workdir: Workdir, out: pathlib.Path) -> None:
  """Archives the finished runs and scores.

  Args:
    workdir: the working directory with the runs.
    out: the folder of the experiment.

  Raises:
    ValueError: two runs were scored on different items.
  """
  # Runs that started without a registered plan cannot test its claims.
  if not workdir.is_registered():
    return
  preparations.save(workdir, out)
  spent = workdir.spent()
  for name, arm, seed in _names(workdir):
    kept: dict[str, Any] = {}
    if arm != START:
      run = workdir.run(arm, seed)
      if not folders.is_done(run):
        continue
      named = workdir.folders_of(arm, seed)
      kept["config"] = _portable(named, run_folder.read_config(run))
      kept["metrics"] = _kept_metrics(workdir, run)
      if arm in workdir.plan.read_arms():
        kept_records.save(run, out / _FOLDER)
    kept["scores"] = {
      score: _read_scores(workdir, out, score, name, folder)
      for score, folder in _score_folders(workdir, arm, seed)
      if folders.is_scored(folder)
    }
    path = out / _FOLDER / f"{name}.json"
    if not any(kept.values()) or _has(path, kept):
      continue
    kept |= registration.plan_hashes(workdir.path)
    kept["commits"] = _commits(workdir, name, out)
    kept["core_seconds"] = {
      job: seconds
      for job, seconds in spent.items()
      if job == name or job.startswith(f"{name}_")
    }
    _write(path, kept)


def restore(workdir: Workdir, source: pathlib.Path, goes_on: bool) -> int:
  """Restores archived runs into a working directory that lacks them.

  Args:
    workdir: the working directory to continue in.
    source: the folder of the experiment.
    goes_on: whether jobs will be started. These need the preparations, so they
      are restored too.

  Returns:
    The number of restored runs.

  Raises:
    ValueError: the runs were made with another plan, or a file is damaged.
  """
  if goes_on:
    preparations.restore(workdir, source)
  else:
    preparations.check(workdir, source)
  spent, restored = workdir.spent(), 0
  for name, arm, seed in _names(workdir):
    path = source / _FOLDER / f"{name}.json"
    if not path.exists():
      continue
    kept = user_files.read_object(path)
    workdir.adopt(source)
    with user_files.reading(path, "what is kept of a run"):
      registration.check_kept(source, kept)
      run = workdir.run(arm, seed)
      if arm != START and not run.exists():
        _write_rows(run / metrics.METRICS, kept["metrics"])
        _write(
          run / "config.json",
          _here(workdir.folders_of(arm, seed), kept["config"]),
        )
        kept_records.restore(run, source / _FOLDER)
        restored += 1
      elif arm != START and _kept_metrics(workdir, run) != kept["metrics"]:
        # The run here has other metrics than the archived one, so the archived
        # scores are of another policy.
        continue
      for score, folder in _score_folders(workdir, arm, seed):
        if score in kept["scores"] and not folder.exists():
          items = user_files.read_object(_items_path(source, score))
          found = answers.read(answers.path_of(source / _FOLDER, score, name))
          _write_scores(
            workdir, score, folder, kept["scores"][score], items, found
          )
      spent = kept["core_seconds"] | spent
      workdir.write_spent(spent)
  return restored


def commits(workdir: Workdir, out: pathlib.Path) -> list[str]:
  """Returns the commits at which the finished runs were started, sorted.

  A commit has seven digits, followed by "-dirty" if files had changed since.

  Args:
    workdir: the working directory with the runs.
    out: the folder of the experiment, with archived runs.
  """
  found: set[str] = set()
  for name, arm, seed in _names(workdir):
    if arm != START and folders.is_done(workdir.run(arm, seed)):
      found.update(_short(one) for one in _commits(workdir, name, out))
  return sorted(found)


def _has(path: pathlib.Path, kept: dict[str, Any]) -> bool:
  """Returns whether a run's file has this content.

  It then keeps the hashes of the plan that the run was made with, even if the
  plan was amended since.
  """
  if not path.exists():
    return False
  old = user_files.read_object(path)
  return all(key in old and old[key] == kept[key] for key in kept)


def _short(commit: str) -> str:
  digits, dash, dirty = commit.partition("-")
  return digits[:_COMMIT_DIGITS] + dash + dirty


def _commits(workdir: Workdir, name: str, out: pathlib.Path) -> list[str]:
  """Returns the commits at which a run was started.

  The start model and runs made elsewhere do not record any. Theirs come from
  the archive, or else are the commits at which the command ran.
  """
  run, kept = workdir.path / name, out / _FOLDER / f"{name}.json"
  if (run / starts.STARTS).exists():
    return starts.commits(run)
  if kept.exists():
    return list(user_files.read_object(kept).get("commits", ()))
  return workdir.commits()


def _names(workdir: Workdir) -> Iterator[tuple[str, str, int]]:
  """Yields name, arm and seed of the start model and of all runs."""
  yield START, START, 0
  for arm, seed in workdir.plan.runs():
    yield workdir.run(arm, seed).name, arm, seed


def _metrics(workdir: Workdir) -> set[str]:
  """Returns the metrics that the plan reads."""
  plan = workdir.plan
  of_outcomes = [
    name for one in plan.outcomes.values() for name in (one.metric, one.minus)
  ]
  return {*of_outcomes, *plan.panels.values()} - {""}


def _kept_metrics(
  workdir: Workdir, run: pathlib.Path
) -> list[dict[str, float]]:
  """Returns the archived metrics of each of a run's steps."""
  names = {*_ALWAYS, *_metrics(workdir)}
  return [
    {key: value for key, value in row.items() if key in names}
    for row in folders.read_rows(run)
  ]


def _score_folders(
  workdir: Workdir, arm: str, seed: int
) -> list[tuple[str, pathlib.Path]]:
  """Returns the scores of a run or of the start model, with their folders."""
  if arm == START:
    return [
      (name, workdir.start_scores(name))
      for name, score in workdir.plan.scores.items()
      if score.start
    ]
  names = workdir.plan.scores_of(arm)
  return [(name, workdir.scores(arm, seed, name)) for name in names]


def _items_path(folder: pathlib.Path, score: str) -> pathlib.Path:
  return folder / _FOLDER / f"items_{score}.json"


def _read_scores(
  workdir: Workdir,
  out: pathlib.Path,
  score: str,
  name: str,
  folder: pathlib.Path,
) -> dict[str, Any]:
  """Returns a score for the archive, and archives items and answers if needed.

  Raises:
    ValueError: the items differ from another run's, or some prompts were too
      long.
  """
  benchmark = workdir.plan.scores[score].benchmark
  folders.check_score(folder, benchmark)
  model = score_files.read_model(str(folder))
  questions, correct = score_files.read_items(model, benchmark)
  items = {id_: questions[id_] for id_ in sorted(questions)}
  path = _items_path(out, score)
  if not path.exists():
    _write(path, items)
  elif user_files.read_object(path) != items:
    raise ValueError(
      f"{folder}: other items than {path}: expected scores of the same data"
    )
  answers.save(
    folder / f"{benchmark}.jsonl", answers.path_of(out / _FOLDER, score, name)
  )
  return {
    "scores": dict(model.scores[0]),
    "correct": [
      "".join("01"[is_right] for is_right in correct[0][id_]) for id_ in items
    ],
  }


def _write_scores(
  workdir: Workdir,
  score: str,
  folder: pathlib.Path,
  kept: dict[str, Any],
  items: dict[str, str],
  answered: Mapping[str, dict[str, Any]],
) -> None:
  """Writes the files of `azr_jax.evaluate` that comparisons read.

  Args:
    workdir: the working directory, with the plan.
    score: name of the score.
    folder: the folder to write into.
    kept: the archived score, as `_read_scores` returned it.
    items: question by item id, in the order of the archived score.
    answered: styles and texts by item id, as `answers.read` returned them.
  """
  benchmark = workdir.plan.scores[score].benchmark
  rows = [
    {
      "id": id_,
      "question": question,
      "correct": [bit == "1" for bit in bits],
      **answered.get(id_, {}),
    }
    for (id_, question), bits in zip(
      items.items(), kept["correct"], strict=True
    )
  ]
  _write_rows(folder / f"{benchmark}.jsonl", rows)
  _write(folder / score_files.RESULTS, {"scores": kept["scores"]})


def _portable(
  named: Mapping[str, str], config: dict[str, Any]
) -> dict[str, Any]:
  """Replaces folders in a config by `{NAME}`."""
  text = json.dumps(config)
  for name, folder in named.items():
    text = text.replace(folder, f"{{{name}}}")
  return json.loads(text)


def _here(named: Mapping[str, str], config: dict[str, Any]) -> dict[str, Any]:
  """Returns the inverse of `_portable`, with this directory's folders."""
  text = json.dumps(config)
  for name, folder in named.items():
    text = text.replace(f"{{{name}}}", folder)
  return json.loads(text)


def _write_rows(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
  text = "".join(json.dumps(row) + "\n" for row in rows)
  path.parent.mkdir(parents=True, exist_ok=True)
  storage.write_atomically(path, text)


def _write(path: pathlib.Path, content: dict[str, Any]) -> None:
  """Writes a file with one line per key, unless it is up to date."""
  lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in content.items())
  text = "{\n" + ",\n".join(lines) + "\n}\n"
  if path.exists() and path.read_text("utf-8") == text:
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  storage.write_atomically(path, text)
