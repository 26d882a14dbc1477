"""Grading BIG-Bench Hard, on excerpts and on the public files."""

import pathlib

import pytest
from typed import stand_in

from azr_jax.executor import Executor
from azr_jax.grading import bbh, questions
from azr_jax.tasks.questions import bbh as reader
from azr_jax.tasks.questions import sources

FIXTURES = pathlib.Path(__file__).parents[1] / "evals" / "fixtures"
PUBLIC = pathlib.Path(__file__).parents[3] / "shared" / "data" / "bbh"


@pytest.mark.parametrize(
  "target, answer, correct",
  [
    ("(B)", "B", True),
    ("(B)", "(B)", True),
    ("(B)", "B).", True),
    ("(B)", "(C)", False),
    ("(B)", "B or C", False),
    ("(B)", "b", False),
    ("24", "24", True),
    ("1234", "1,234", True),
    ("24", "24.0", True),
    ("24", "24.", True),
    ("1234", "1,234.00", True),
    ("24", "24.5", False),
    ("24", "2.4", False),
    ("24", "2,4", False),
    ("24", "24.0.0", False),
    ("24", "24e0", False),
    ("24", "24 5", False),
    ("-5", "\u22125", True),
    ("-5", "\u20135", True),
    ("-5", "\u22125.0", True),
    ("5", "\u22125", False),
    ("(A)", "( A )", True),
    ("(A)", "(A )", True),
    ("(A)", "( B )", False),
    ("(A)", "( a )", False),
    ("(A)", "A B", False),
    ("(A)", "(A) (B)", False),
    ("apple bear", "apple, bear", True),
    ("apple bear", "apple,bear", True),
    ("apple bear", "Apple, Bear.", True),
    ("apple bear", "bear, apple", False),
    ("apple bear", "apple, bear, cat", False),
    ("apple bear", "applebear", False),
    ("apple well-off", "apple, well\u2010off", True),
    ("can't do", "can\u2019t, do", True),
    ("Monsters, Inc", "Monsters Inc", True),
    ("yes", "yes, no", False),
    ("24", "024", True),
    ("-5", "5", False),
    ("24", "9" * 400, False),
    ("] ]", "]]", True),
    ("] ]", "] ] ]", False),
    ("} >", "}>", True),
    ("True", "true", True),
    ("yes", "Yes.", True),
    ("valid", "invalid", False),
    ("a b c", "a  b c", True),
    ("a b c", "a c b", False),
    ("yes", "", False),
  ],
)
def test_answers_may_be_written_so(target, answer, correct):
  assert bbh.correct(target, answer) == correct


def check(path):
  """Checks stored and changed answers; returns the questions."""
  read = reader.read(path)
  assert read
  for index, question in enumerate(read):
    task, reference = question.task, question.reference
    target = eval(reference)
    assert questions.submit(
      stand_in(Executor), task, reference, target
    ).result()
    other = eval(read[index - 1].reference)
    if other.split() != target.split():
      assert not questions.submit(
        stand_in(Executor), task, reference, other
      ).result()
    for junk in ("", "zzz", target + "x", None):
      assert not questions.submit(
        stand_in(Executor), task, reference, junk
      ).result()
  return read


def test_stored_answers_are_correct_and_others_are_not():
  assert {question.task for question in check(FIXTURES)} == {
    "bbh/boolean_expressions",
    "bbh/date_understanding",
    "bbh/dyck_languages",
  }
  one_of_each_task = sources.read(f"bbh:{FIXTURES}", 1, 0)
  assert len(one_of_each_task) == 3
  with pytest.raises(FileNotFoundError, match="/nowhere.json"):
    sources.read("bbh:/nowhere.json", 1, 0)
  with pytest.raises(ValueError, match="no grader; expected"):
    questions.submit(stand_in(Executor), "chess/1", "1", "1")


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public files are not here")
def test_stored_answers_of_all_public_files_are_correct():
  assert len({question.task for question in check(PUBLIC)}) == 27
