"""The commands that compare scored models."""

import json
import sys

import numpy as np
import pytest

from azr_jax import compare
from azr_jax.cli.errors import UsageError
from azr_jax.evals import comparison, score_files, table

NAME = "gsm8k"


def write(folder, correct, too_long=0, question="question {}", name=NAME):
  """Writes the files of `azr_jax.evaluate` for the given samples."""
  folder.mkdir(parents=True)
  lines = [
    json.dumps(
      {
        "id": str(index),
        "question": question.format(index),
        "correct": samples,
        "responses": [""] * len(samples),
      }
    )
    for index, samples in enumerate(correct)
  ]
  (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
  rates = [np.mean(samples) for samples in correct] + [0.0] * too_long
  scores = {
    f"{name}/items": float(len(rates)),
    f"{name}/too_long": float(too_long),
    f"{name}/pass@1/unbiased": float(np.mean(rates)),
    f"{name}/pass@1/unbiased_stderr": float(
      np.std(rates, ddof=1) / len(rates) ** 0.5
    ),
  }
  (folder / "results.json").write_text(json.dumps({"scores": scores}))
  return folder


def read(*folders):
  return score_files.read_model(",".join(map(str, folders)))


def only(first, second, **options):
  (found,) = comparison.compare(
    first, second, comparison.Options(resamples=200, **options)
  )
  return found


def test_two_models_are_paired_by_item(tmp_path):
  first = read(write(tmp_path / "a", [[True], [False], [False], [True]]))
  second = read(write(tmp_path / "b", [[True], [True], [True], [False]]))
  found = only(first, second)
  assert (found.num_items, found.first.mean, found.second.mean) == (
    4,
    0.5,
    0.75,
  )
  assert found.difference.mean == 0.25
  assert (found.difference.better, found.difference.worse) == (2, 1)
  shown = comparison.show([found], 0.95)
  assert "| gsm8k | 4 | 50.0 +- 28.9 | 75.0 +- 25.0 | +25.0 +- 47.9 |" in shown
  assert "one seed each | 2, 1 |" in shown


def test_seeds_are_folders_between_commas(tmp_path, capsys, monkeypatch):
  first = write(tmp_path / "base", [[False]] * 4)
  seeds = [
    write(tmp_path / f"run_{n}", [[index < n] for index in range(4)])
    for n in (1, 2, 3)
  ]
  model = read(*seeds)
  found = only(read(first), model)
  assert found.second.mean == 0.5
  # The seeds' means are 1/4, 1/2 and 3/4.
  assert found.second.seed_stderr == pytest.approx(0.25 / 3**0.5)
  assert found.difference.seed_stderr == found.second.seed_stderr
  shown = table.show(
    {"base": table.merged(read(first)), "run": table.merged(model)}
  )
  assert shown.splitlines()[-1] == (
    "| run | 50.0 +- 21.5 (items) +- 14.4 (seeds) (+50.0) |"
  )
  names = [str(first), model.name, "--resamples=200"]
  monkeypatch.setattr(sys, "argv", ["compare", *names])
  compare.main()
  printed = capsys.readouterr().out
  assert f"second: {model.name}" in printed
  assert "+50.0 +- 21.5 (items) +- 14.4 (seeds)" in printed


def test_items_that_were_too_long_count_as_incorrect(tmp_path):
  first = read(write(tmp_path / "a", [[True], [True]], too_long=1))
  second = read(write(tmp_path / "b", [[True], [True], [True]]))
  found = only(first, second)
  assert found.num_items == 3
  assert (found.first.mean, found.second.mean) == (pytest.approx(2 / 3), 1.0)
  both = only(first, read(write(tmp_path / "c", [[False], [True]], too_long=1)))
  assert both.difference.mean == pytest.approx(-1 / 3)
  shown = table.show({"a": first.scores[0]})
  assert shown.endswith("| 66.7 +- 33.3; 1 prompts too long |")


def test_pass_at_k_is_compared(tmp_path):
  first = read(write(tmp_path / "a", [[True, False], [False, False]]))
  second = read(write(tmp_path / "b", [[True, False], [False, True]]))
  assert only(first, second, k=1).difference.mean == 0.25
  assert only(first, second, k=2).difference.mean == 0.5
  with pytest.raises(ValueError, match="item 0 has 2 samples: expected at lea"):
    only(first, second, k=3)


def test_what_cannot_be_compared_is_named(tmp_path):
  base = write(tmp_path / "base", [[True], [False]])
  first = read(base)
  longer = read(write(tmp_path / "longer", [[True]] * 3))
  with pytest.raises(ValueError, match="base has 2, .*longer has 3"):
    only(first, longer)
  other = read(write(tmp_path / "other", [[True]] * 2, question="other {}"))
  with pytest.raises(ValueError, match="item 0 is another question in"):
    only(first, other)
  with pytest.raises(ValueError, match="item 0 is another question than in"):
    table.merged(read(base, tmp_path / "other"))
  aime = read(write(tmp_path / "aime", [[True]] * 2, name="aime24"))
  with pytest.raises(ValueError, match="expected records of a common benchm"):
    only(first, aime)
  with pytest.raises(ValueError, match="records of aime24 in each folder"):
    only(first, first, benchmarks=("aime24",))
  with pytest.raises(ValueError, match="expected the workdir of azr_jax.eval"):
    read(tmp_path)
  with pytest.raises(ValueError, match="expected different folders"):
    read(base, base)
  (base / f"{NAME}.jsonl").write_text('{"id": "0"}\n')
  with pytest.raises(ValueError, match="expected records of azr_jax.evaluate"):
    only(first, first)


@pytest.mark.parametrize(
  "words, message",
  [
    (["A"], "A: expected a second model"),
    (["A", "B", "--k=0"], "--k=0: expected 1 or more"),
    (["A", "B", "--confidence=95"], "--confidence=95.0: expected a number be"),
    (["A", "B", "--resamples=5"], "--resamples=5: expected 100 or more"),
  ],
)
def test_misuse_is_a_line(monkeypatch, words, message):
  monkeypatch.setattr(sys, "argv", ["compare", *words])
  with pytest.raises(UsageError, match=message):
    compare.main()
