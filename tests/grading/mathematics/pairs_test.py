"""How many labelled pairs this grader and math-verify get wrong."""

import pathlib
import re

import pytest

from azr_jax.executor import Executor
from azr_jax.grading.mathematics import grader, pairs

FILE = pathlib.Path(__file__).parent / "pairs.tsv"
PAIRS = pairs.read(FILE)
SHARED = pathlib.Path(__file__).parents[4] / "shared" / "data" / "orz_train"


def test_the_pairs_are_many_and_of_both_labels():
  assert len(PAIRS) >= 400
  assert len({(pair.reference, pair.answer) for pair in PAIRS}) == len(PAIRS)
  for label in (True, False):
    assert sum(pair.is_correct is label for pair in PAIRS) >= 200


def test_rules_accept_no_answer_that_is_wrong(equal):
  accepted = [p for p in PAIRS if equal(p.reference, p.answer)]
  assert [pair for pair in accepted if not pair.is_correct] == []
  # The other right answers need algebra.
  assert len(accepted) > 300


def test_bases_and_distances_need_no_algebra(equal):
  chosen = [pair for pair in PAIRS if pair.kind in ("base", "distance")]
  wrong = [p for p in chosen if equal(p.reference, p.answer) != p.is_correct]
  assert wrong == [] and len(chosen) > 90


def test_no_shuffled_word_is_correct(equal):
  words = "Walter green listen Anna MaximSergeevich BACD Yes".split()
  for word in words:
    for shift in range(1, len(word)):
      shuffled = word[shift:] + word[:shift]
      assert equal(word, shuffled) == (shuffled == word)


@pytest.mark.slow
def test_at_most_one_in_a_hundred_is_graded_incorrectly():
  with Executor(workers=2, timeout_s=30.0, memory_mb=2048) as executor:
    pending = [pairs.submit(executor, pair) for pair in PAIRS]
    grades = [future.result(600) for future in pending]
  mistakes = pairs.mistakes(grades)
  assert [v.pair for v in mistakes if v.ours] == []
  assert len(mistakes) <= len(PAIRS) / 100
  assert pairs.table(grades)[-1].startswith("correct, refused")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public files are not here")
@pytest.mark.slow
def test_no_shuffled_bare_word_of_orz_is_correct():
  text = "".join(file.read_text("utf-8") for file in SHARED.iterdir())
  words = set(re.findall(r'"value": "\s*([A-Za-z]{3,})\s*"', text))
  words -= {"ABC"}
  assert len(words) >= 15
  with Executor(workers=2, timeout_s=30.0, memory_mb=2048) as executor:
    for word in words:
      shuffled = word[1:] + word[0]
      assert not grader.submit(executor, word, shuffled).result(60), word


@pytest.mark.parametrize(
  "text, message",
  [
    ("", "expected the columns"),
    ("kind\treference\n", "expected the columns"),
    ("kind\tlabel\treference\tanswer\nx\tyes\t1\t1\n", "line 2"),
    ("kind\tlabel\treference\tanswer\nx\tright\t1\n", "line 2"),
  ],
)
def test_a_file_that_has_no_pairs_is_refused(tmp_path, text, message):
  file = tmp_path / "pairs.tsv"
  file.write_text(text)
  with pytest.raises(pairs.BadPairsError, match=message):
    pairs.read(file)


def test_the_table_counts_mistakes_by_kind():
  right = pairs.Pair("a", True, "1", "1")
  wrong = pairs.Pair("b", False, "1", "2")
  grades = [
    pairs.PairGrades(right, True, False),
    pairs.PairGrades(wrong, False, True),
    pairs.PairGrades(wrong, True, True),
  ]
  rows = [line.split() for line in pairs.table(grades)]
  assert rows[1:4] == [
    ["a", "1", "0", "1"],
    ["b", "2", "1", "2"],
    ["all", "3", "1", "3"],
  ]
  assert pairs.mistakes(grades) == grades[2:]
