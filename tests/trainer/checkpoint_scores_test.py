"""Checkpoints of a run are scored, and one is chosen by a validation set."""

import json
import os
import re

import numpy as np
import pytest

from azr_jax.configs import evaluate as evaluate_config
from azr_jax.evals import registry, table
from azr_jax.report import references, score_table
from azr_jax.run.checkpoint import FOLDER, Checkpointer
from azr_jax.trainer import checkpoint_scores, scoring

# Accuracy of each step, in percent: the choice must follow the first column.
VALIDATION = {10: 20, 20: 50, 30: 50, 40: 40}
TEST = {10: 90, 20: 30, 30: 70, 40: 60}


class KilledError(Exception):
  pass


@pytest.fixture(scope="module", name="trained")
def make_run(tmp_path_factory):
  """A run's folder with a checkpoint for each step; all are kept."""
  folder = tmp_path_factory.mktemp("runs") / "run"
  folder.mkdir()
  with Checkpointer(folder, None) as checkpoints:
    for step in VALIDATION:
      checkpoints.save(step, {"params": np.zeros(3)}, {})
  return folder


@pytest.fixture(name="calls")
def make_calls(monkeypatch):
  """Scores steps from the tables above; returns the list of its calls."""
  calls = []

  def evaluate(config, model, names, workdir, data, limit, step, beside):
    del config, model, beside
    name = "/".join(workdir.split("/")[-2:])
    calls.append((step, names, data, limit, name))
    percent = VALIDATION if names == "gsm8k" else TEST
    return {
      table.main_score(one): percent[step] / 100
      for one in registry.names(names)
    } | {f"{table.main_score(one)}_stderr": 0.04 for one in [*names.split(",")]}

  monkeypatch.setattr(scoring, "evaluate", evaluate)
  return calls


def score(trained, folder, **more):
  config = evaluate_config.get_config("chat")
  return checkpoint_scores.score_all(
    config, str(trained), "aime24", str(folder), **more
  )


def test_one_set_chooses_and_another_reports(trained, calls, tmp_path):
  folder = tmp_path / "scores"
  found = score(
    trained, folder, data="A", limit=7, select="gsm8k", select_data="B"
  )
  # The first of two equal ones; the test set would have chosen step 10.
  assert (found.chosen, found.last) == (20, 40)
  assert calls == [
    *((s, "gsm8k", "B", 7, f"validation/step_{s}") for s in VALIDATION),
    *((s, "aime24", "A", 7, f"scores/step_{s}") for s in (20, 40)),
  ]
  content = json.loads((folder / checkpoint_scores.FILE).read_text())
  assert (content["chosen"], content["last"]) == (20, 40)
  text = score_table.show_checkpoints("RUN", found, (), references.read(""))
  lines = text.splitlines()
  assert lines[1:5] == [
    "step 20: 50.0 +- 4.0 on gsm8k  chosen",
    "step 30: 50.0 +- 4.0 on gsm8k",
    "step 40: 40.0 +- 4.0 on gsm8k  last",
    "",
  ]
  assert lines[-2:] == [
    "| RUN, step 40 (last) | 60.0 +- 4.0 |",
    "| RUN, step 20 (chosen) | 30.0 +- 4.0 (-30.0) |",
  ]
  assert "biased" not in text
  # Nothing is left to do, and another request needs another folder.
  calls.clear()
  again = dict(data="A", limit=7, select="gsm8k", select_data="B")
  assert score(trained, folder, **again) == found and not calls
  with pytest.raises(ValueError, match="select='aime24': expected 'gsm8k'"):
    score(trained, folder, **again | {"select": "aime24"})


def test_a_killed_scoring_resumes_after_the_last_step(trained, calls, tmp_path):
  score_step = scoring.evaluate

  def killed(*arguments):
    if len(calls) == 2:
      raise KilledError
    return score_step(*arguments)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(scoring, "evaluate", killed)
    with pytest.raises(KilledError):
      score(trained, tmp_path / "scores", select="gsm8k")
  found = score(trained, tmp_path / "scores", select="gsm8k")
  assert [call[0] for call in calls] == [*VALIDATION, 20, 40]
  assert found == score(trained, tmp_path / "other", select="gsm8k")


def test_without_a_choice_every_checkpoint_is_reported(
  trained, calls, tmp_path
):
  found = score(trained, tmp_path / "scores")
  assert [call[0] for call in calls] == [*VALIDATION]
  assert (found.chosen, found.last) == (None, 40)
  text = score_table.show_checkpoints("RUN", found, (), references.read(""))
  assert re.findall(r"step \d+(?: \(\w+\))?", text) == [
    "step 40 (last)",
    "step 30",
    "step 20",
    "step 10",
  ]


def test_a_choice_by_the_reported_scores_is_named(trained, calls, tmp_path):
  """As in the paper's tables; the same benchmark may choose by other data."""
  found = score(trained, tmp_path / "a", select="gsm8k,aime24")
  assert found.shared == ("aime24",)
  text = score_table.show_checkpoints("RUN", found, (), references.read(""))
  assert "step 10 is the best of 4 by aime24 itself" in text
  other = dict(select="aime24", select_data="B", data="A")
  assert score(trained, tmp_path / "b", **other).shared == ()


def test_a_damaged_checkpoint_is_never_chosen(calls, tmp_path, capsys):
  folder = tmp_path / "run"
  folder.mkdir()
  with Checkpointer(folder, None) as checkpoints:
    for step in (10, 20, 30):
      checkpoints.save(step, {"params": np.zeros(3)}, {})
  file = next((folder / FOLDER / "20").rglob("_METADATA"))
  os.truncate(file, file.stat().st_size - 1)
  found = score(folder, tmp_path / "scores", select="gsm8k")
  assert found.chosen == 30 and 20 not in found.validation
  assert "step 20 is left out: it is damaged" in capsys.readouterr().err


def test_the_score_that_chooses_counts_a_group_as_one():
  names = registry.names("code,math")
  scores = {
    table.main_score(name): 0.1 * i for i, name in enumerate(sorted(names))
  }
  main = {name: scores[table.main_score(name)] for name in names}
  value, _ = checkpoint_scores.selection_score("code,math", scores)
  assert value == pytest.approx(registry.averages(main)["average/overall"])
  one = table.main_score("gsm8k")
  scores |= {one: 0.9, f"{one}_stderr": 0.03}
  assert checkpoint_scores.selection_score("gsm8k", scores) == (0.9, 0.03)
  value, _ = checkpoint_scores.selection_score("math,gsm8k", scores)
  mean = registry.averages(main)["average/math"]
  assert value == pytest.approx((mean + 0.9) / 2)
  with pytest.raises(ValueError, match="gpqa has no score"):
    checkpoint_scores.selection_score("gsm8k,gpqa", scores)


@pytest.mark.parametrize(
  "step, select, message",
  [
    ("3", "gsm8k", "--select=gsm8k: expected --step=all"),
    ("last", "", "--step=last: expected a step, or all"),
  ],
)
def test_flags_that_do_not_go_together(step, select, message):
  with pytest.raises(ValueError, match=message):
    checkpoint_scores.parse_step(step, select)
  assert checkpoint_scores.parse_step("all", "gsm8k") is None
  assert checkpoint_scores.parse_step("30", "") == 30


def test_only_a_run_has_checkpoints_to_score(tmp_path):
  with pytest.raises(ValueError, match="--step=all: expected a run"):
    score("embedded:azr-tiny", tmp_path / "scores")
