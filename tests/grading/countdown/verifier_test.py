"""Scores of answers, strict and as published."""

import collections
import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.grading import answer_tags
from azr_jax.grading import countdown as verifier
from azr_jax.grading.countdown_puzzle import Puzzle, from_record
from azr_jax.tasks.countdown import prompts, solver

PUZZLE = Puzzle((44, 19, 35), 98)


def scores(puzzle, response):
  return tuple(
    verifier.verify(puzzle, response, mode).value for mode in verifier.MODES
  )


def tagged(text):
  return f"so</think>\n<answer>{text}</answer>"


@pytest.mark.parametrize(
  "numbers, target, text, strict, published",
  [
    ((44, 19, 35), 98, "44 + 19 + 35", 1.0, 1.0),
    ((44, 19, 35), 98, "(44+19)+35", 1.0, 1.0),
    ((44, 19, 35), 98, "44 + 19 + 35 = 98", 0.1, 0.1),
    ((44, 19, 35), 98, "44 + 19", 0.1, 0.1),
    ((44, 19, 35), 98, "44 + 19 + 35 + 0", 0.1, 0.1),
    ((44, 19, 35), 98, "44 + 35 - 19", 0.1, 0.1),
    ((2, 3, 5), 8, "3 + 5", 0.1, 0.1),  # 2 is unused
    ((1, 3), 9, "3 * 3", 0.1, 0.1),  # 3 is used twice
    ((1, 3), 9, "3 * 3 * 1", 0.1, 0.1),
    ((44, 19, 35), 98, "\n44 + 19 + 35\n", 1.0, 0.0),  # spans lines
    ((44, 19, 35), 98, "(44 +\n19 + 35)", 1.0, 0.0),
    ((44, 19, 35), 98, "", 0.1, 0.1),
    ((44, 19, 35), 98, "print(44 + 19 + 35)", 0.1, 0.1),
    ((44, 19, 35), 98, "44 + 19 + 35 # yes", 0.1, 0.1),
    ((2, 3), 8, "2**3", 0.1, 1.0),
    ((7, 2, 1), 4, "7//2+1", 0.1, 1.0),
    ((1, 5, 2), 3, "1.5*2", 0.1, 1.0),
    ((3, 5), 2, "-3+5", 0.1, 1.0),
    ((3, 5), 8, "3 - -5", 0.1, 1.0),
    ((3, 5), 2, "5 + (-3)", 0.1, 1.0),
    ((9, 9, 9, 9), 1, "9**9**9**9", 0.1, 0.1),
    ((9, 9, 9, 9), 1, "9**-(9**9)**9", 0.1, 0.1),
    ((1, 3), 3, "1/(3-3)", 0.1, 0.1),
    ((3, 3, 1), 1, "1/(3-3)", 0.1, 0.1),
    ((1, 3, 3), 1, "1/3*3", 1.0, 1.0),
    ((3, 8, 8, 3), 24, "8/(3-8/3)", 1.0, 1.0),
    ((10, 1), 11, "1_0 + 1", 0.1, 0.1),
    ((16, 1), 17, "0x10 + 1", 0.1, 0.1),
    ((2, 5), 10, "(2)(5)", 0.1, 0.1),
    ((1, 9), 0, "(-9)**(1/2)", 0.1, 0.1),
    ((4, 2), 2, "(-4)**2", 0.1, 0.1),
    ((1, 2), 3, "(" * 300 + "1+2" + ")" * 300, 0.1, 0.1),
    ((1, 2), 3, "1+2" + " " * 2000, 1.0, 1.0),
  ],
)
def test_an_answer_s_score(numbers, target, text, strict, published):
  assert scores(Puzzle(numbers, target), tagged(text)) == (strict, published)


@pytest.mark.parametrize(
  "response, strict, published",
  [
    ("44 + 19 + 35", 0.0, 0.0),
    ("<answer>44 + 19 + 35", 0.0, 0.0),
    ("44 + 19 + 35</answer>", 0.0, 0.0),
    ("<answer>1</answer> or <answer>44+19+35</answer>", 1.0, 1.0),
    ("<answer>44+19+35</answer> or <answer>1</answer>", 0.1, 0.1),
    ("<answer>44+19+35</answer> or <answer>1", 1.0, 1.0),
    ("<answer>44+19+35</answer></answer>", 1.0, 1.0),
    ("<answer>44+19+35</answer> so </answer> it is", 1.0, 1.0),
    # An answer starts at the innermost opening tag.
    ("<answer>as <answer>44+19+35</answer>", 1.0, 0.1),
    ("<answer>44\n</answer><answer>44+19+35</answer>", 1.0, 1.0),
  ],
)
def test_which_answer_counts(response, strict, published):
  assert scores(PUZZLE, response) == (strict, published)


def test_answer_tags_are_counted():
  assert answer_tags.answer_blocks("none") == 0
  text = "<answer>1</answer> <answer>\n2</answer> <answer>"
  assert answer_tags.answer_blocks(text) == 2


@given(st.text(max_size=200))
def test_no_answer_breaks_the_verifier(text):
  for mode in verifier.MODES:
    score = verifier.verify(PUZZLE, tagged(text), mode)
    assert score.value in (
      verifier.INCORRECT_SCORE,
      verifier.NO_ANSWER_SCORE,
    )


@given(st.text("0123456789+-*/(). \n", max_size=60))
def test_no_arithmetic_breaks_the_verifier(text):
  for mode in verifier.MODES:
    verifier.verify(Puzzle((1, 2, 3), 6), tagged(text), mode)


@given(
  st.lists(st.integers(1, 20), min_size=2, max_size=4), st.integers(0, 3239)
)
def test_every_path_of_the_solver_is_correct(numbers, path):
  shown = tuple(numbers)
  paths = {2: 6, 3: 108, 4: 3240}[len(shown)]
  try:
    term = solver.term(shown, path % paths)
  except ZeroDivisionError:
    return
  if term.value.denominator == 1:
    puzzle = Puzzle(shown, int(term.value))
    assert scores(puzzle, tagged(term.expression)) == (1.0, 1.0)


@pytest.mark.parametrize(
  "text, puzzle",
  [
    ("<answer>[8 3 5] 19</answer>", Puzzle((8, 3, 5), 19)),
    ("so <answer> [8, 3,5] = 19 </answer>", Puzzle((8, 3, 5), 19)),
    ("<answer>nums: [8 3 5 1], target: 19</answer>", Puzzle((8, 3, 5, 1), 19)),
    ("[8 3 5] 19", None),
    ("<answer>8 3 5 19</answer>", None),
    ("<answer>[8 3 5] -19</answer>", None),
    ("<answer>[8 3 5]</answer>", None),
  ],
)
def test_proposals_are_read(text, puzzle):
  assert prompts.parse_proposal(text, "full") == puzzle


def test_a_continued_list_gives_its_first_line():
  text = "[8 3 5] 19\n[1 2 3] 6\n"
  assert prompts.parse_proposal(text, "few_shot") == Puzzle((8, 3, 5), 19)


@pytest.mark.parametrize(
  "record",
  [
    {},
    {"nums": [1, 2]},
    {"nums": "ab", "target": 3},
    {"nums": [0, 2], "target": 3},
    {"nums": [], "target": 3},
  ],
)
def test_a_record_that_is_no_puzzle_is_refused(record):
  with pytest.raises(ValueError, match="expected positive integers"):
    from_record(record)


def test_both_public_layouts_are_read():
  assert from_record({"nums": [30, 7], "target": 23}) == Puzzle((30, 7), 23)
  assert from_record({"input": "30,7", "output": "23"}) == Puzzle((30, 7), 23)


# Answers of LLaDA-8B-Instruct, from the first answer tag to the end
# (dllm-reasoning/d1, eval/eval_baselines, Apache-2.0).
LLADA = pathlib.Path(__file__).with_name("llada_answers.jsonl")


def test_real_answers_differ_only_where_a_tag_spans_lines():
  table = collections.Counter()
  for line in LLADA.read_text().splitlines():
    record = json.loads(line)
    strict, published = scores(from_record(record), record["response"])
    table[strict, published] += 1
    if strict != published:
      answer = record["response"].rpartition("<answer>")[2]
      assert "\n" in answer.partition("</answer>")[0]
      assert "boxed" in answer  # Neither mode accepts it as an expression.
  assert table == {(0.1, 0.0): 83, (0.0, 0.0): 28}


@pytest.mark.parametrize(
  "text, mode, said",
  [
    ("44 + 19 + 35", "strict", ""),
    (
      "44 + 35 - 19",
      "strict",
      "Rejected: wrong value. Its value is 60, not 98.",
    ),
    (
      "44 / 19",
      "strict",
      "Rejected: wrong numbers. It uses 44, 19, not 44, 19, 35. Its value is "
      "44/19, not 98.",
    ),
    ("98 +", "strict", None),
    (
      "19 ** 35 ** 44",
      "published_code",
      "Rejected: power too large.",
    ),
  ],
)
def test_a_wrong_answer_is_explained(text, mode, said):
  found = verifier.explain(PUZZLE, tagged(text), mode)
  if said is None:
    said = f"Rejected: {verifier.verify(PUZZLE, tagged(text), mode).reason}. "
    said += "It uses 98, not 44, 19, 35."
  assert found == said


def test_a_response_without_an_answer_is_explained():
  assert verifier.explain(PUZZLE, "98") == "Rejected: no answer tag."
