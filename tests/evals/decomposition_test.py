"""Splitting a gain into changed styles and better answers."""

import json
import sys

import numpy as np
import pytest

from azr_jax import decompose
from azr_jax.cli.errors import UsageError
from azr_jax.evals import decomposition

NAME = "gsm8k"


def write(folder, items, **more):
  """Writes the files of `azr_jax.evaluate`.

  Args:
    folder: a folder to create.
    items: for each item, its subset and (style, is correct) of each answer.
    more: further keys of each record.
  """
  folder.mkdir(parents=True)
  lines = [
    json.dumps(
      {
        "id": str(index),
        "question": f"question {index}",
        "subset": subset,
        "correct": [is_right for _, is_right in answers],
        "styles": [style for style, _ in answers],
        "responses": [f"{style} so" for style, _ in answers],
      }
      | more
    )
    for index, (subset, answers) in enumerate(items)
  ]
  (folder / f"{NAME}.jsonl").write_text("\n".join(lines) + "\n")
  scores = {f"{NAME}/items": float(len(items))}
  (folder / "results.json").write_text(json.dumps({"scores": scores}))
  return folder


GUESS, GUESSED = ("guess", False), ("guess", True)
THINK, THOUGHT = ("think", False), ("think", True)
# Before: 5 of 8 guess, 1 is right; 3 think, 2 are right. After: 2 guess, 1 is
# right; 6 think, 5 are right.
START = [
  ("a", [GUESS, THOUGHT]),
  ("a", [GUESS, THINK]),
  ("b", [GUESSED, THOUGHT]),
  ("b", [GUESS, GUESS]),
]
AFTER = [
  ("a", [GUESS, THOUGHT]),
  ("a", [THOUGHT, THINK]),
  ("b", [GUESSED, THOUGHT]),
  ("b", [THOUGHT, THOUGHT]),
]
TOLD = [
  ("a", [THOUGHT]),
  ("a", [THINK]),
  ("b", [THOUGHT]),
  ("b", [THINK]),
]


def run(monkeypatch, *words):
  words = [*map(str, words), "--resamples=400"]
  monkeypatch.setattr(sys, "argv", ["decompose", *words])
  decompose.main()


@pytest.fixture
def folders(tmp_path):
  return [
    write(tmp_path / name, items)
    for name, items in (("start", START), ("after", AFTER), ("told", TOLD))
  ]


def test_a_gain_is_split_as_by_hand(folders, monkeypatch, capsys):
  run(monkeypatch, *folders)
  found = json.loads((folders[1] / "decomposition.json").read_text())
  one = found["all"]
  assert one["styles"] == ["guess", "think"] and one["items"] == 4
  means = [[pair[0] for pair in one["accuracy"]], one["gain"][0]]
  assert means == [[3 / 8, 6 / 8, 1 / 2], 3 / 8]
  shares = [[pair and pair[0] for pair in row] for row in one["share"]]
  assert shares == [[5 / 8, 3 / 8], [1 / 4, 3 / 4], [0.0, 1.0]]
  within = [[pair and pair[0] for pair in row] for row in one["within"]]
  assert within == [
    pytest.approx([1 / 5, 2 / 3]),
    pytest.approx([1 / 2, 5 / 6]),
    [None, 1 / 2],
  ]
  # Shares: 3/8 * ((2/3 + 5/6) - (1/5 + 1/2)) / 2. Within: (1/2 - 1/5) * 7/16 +
  # (5/6 - 2/3) * 9/16.
  assert one["from_shares"][0] == pytest.approx(0.15)
  assert one["from_within"][0] == pytest.approx(0.225)
  assert (one["told_gain"][0], one["beyond_told"][0]) == (1 / 8, 1 / 4)
  # The same items are drawn on both sides: gains of 0, 1/2, 0 and 1.
  exact = np.std([0, 0.5, 0, 1]) / 2
  assert one["gain"][1] == pytest.approx(exact, rel=0.1)
  for name in ("a", "b"):
    part = found[name]
    parts = part["from_shares"][0] + part["from_within"][0]
    assert parts == pytest.approx(part["gain"][0], abs=1e-12)
  printed = capsys.readouterr().out
  assert "| from changed shares | +15.0 +- " in printed
  assert "| accuracy of `guess` | 20.0 +- " in printed
  assert "| all, 4 items | start | after | told |" in printed


def test_the_parts_add_up_in_every_draw():
  rng = np.random.default_rng(0)
  shares = rng.dirichlet(np.ones(5), size=(2, 30))
  shares[0, :, 2] = shares[1, :, 3] = shares[:, :, 4] = 0  # on one side; never
  right = shares * rng.random(shares.shape)
  tables = [
    decomposition.StyleTable(s, r) for s, r in zip(shares, right, strict=True)
  ]
  found = decomposition.decompose(tuple("abcde"), tables, 100, rng)
  assert found.from_shares[0] + found.from_within[0] == pytest.approx(
    found.gain[0], abs=1e-12
  )
  assert found.within[0][2] is None and found.change_within[3] is None
  flat = np.concatenate(
    [part for t in tables for part in (t.shares, t.right)], axis=1
  )
  weights = rng.multinomial(30, np.full(30, 1 / 30), size=50)
  drawn = decomposition._quantities(weights @ flat / 30, 2)
  np.testing.assert_allclose(
    drawn["from_shares"] + drawn["from_within"], drawn["gain"], atol=1e-12
  )


def test_rare_styles_are_joined_and_labels_can_be_made_again(
  tmp_path, monkeypatch
):
  rare = [("", [(f"word{i}", i % 2 == 0)]) for i in range(10)]
  common = [("", [("word0", True)])] * 10
  start, after = write(tmp_path / "a", rare), write(tmp_path / "b", common)
  out = tmp_path / "out.json"
  run(
    monkeypatch,
    *(start, after),
    *("--style=first_word", "--min_share=0.2", f"--out={out}"),
  )
  one = json.loads(out.read_text())["all"]
  assert one["styles"] == ["word0", decomposition.OTHERS]
  assert one["share"][0][1][0] == pytest.approx(0.9)
  assert one["within"][1][1] is None
  # `word0` was always right, so the whole gain is a changed share.
  assert one["from_within"][0] == pytest.approx(0.0, abs=1e-12)


def test_what_cannot_be_split_is_named(folders, tmp_path, monkeypatch):
  start, after, _ = folders
  other = write(tmp_path / "other", AFTER, question="another question")
  with pytest.raises(ValueError, match="different questions: expected scores"):
    run(monkeypatch, start, other)
  fewer = write(tmp_path / "fewer", AFTER[:2])
  with pytest.raises(ValueError, match="start has 4, .*fewer has 2"):
    run(monkeypatch, start, fewer)
  for record in (after / f"{NAME}.jsonl",):
    record.write_text(record.read_text().replace('"styles"', '"unknown"'))
  with pytest.raises(ValueError, match="no styles: expected scores with evalu"):
    run(monkeypatch, start, after)
  with pytest.raises(ValueError, match="--benchmark=aime24: expected one of"):
    run(monkeypatch, start, after, "--benchmark=aime24")
  with pytest.raises(UsageError, match="--min_share=2.0: expected a number"):
    run(monkeypatch, start, after, "--min_share=2")
