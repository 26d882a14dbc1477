"""Data of `experiments/five_numbers`: exact lengths, and nothing scored."""

import collections
import json
import re

import pytest

from azr_jax.tasks.mathematics import sources
from experiments.five_numbers import styles, texts

SCALE = 0.02
# Seeds of scored sums that are also in a file, unless they are left out.
SEEDS = {"short": 20, "long": 31}


@pytest.fixture(scope="module", params=SEEDS)
def seed(request):
  return SEEDS[request.param]


@pytest.fixture(scope="module")
def written(tmp_path_factory, seed):
  folder = tmp_path_factory.mktemp("texts")
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(texts, "SCORED_SEED", seed)
    texts.write(folder, SCALE)
  return {
    path.stem: [json.loads(line) for line in path.read_text().splitlines()]
    for path in folder.glob("*.jsonl")
  }


def lengths(rows):
  """The number of rows by how many numbers are added."""
  return collections.Counter(len(expression(row).split()) // 2 for row in rows)


def expression(row):
  [found] = re.findall(r": (-?\d+(?: [+-] \d+)+) =", row["prompt"])
  return f"+ {found}"


def test_files_have_as_many_long_sums_as_said(written):
  for name, short, long in (("start", 340, 60), ("sums", 40, 120)):
    found = lengths(written[name])
    assert found[5] == long
    assert found[3] + found[4] == short
    assert min(found[3], found[4]) > 0.25 * short


def test_solutions_are_right(written):
  for row in written["start"]:
    value = eval(expression(row))
    assert row["answer"] == str(value)
    assert f"={value}</think>" in row["completion"]


def test_no_sum_is_scored_or_in_both_files(written, seed):
  scored = {
    problem.question
    for numbers in (texts.SHORT, texts.LONG)
    for problem in sources.read(texts.spec(numbers, seed), texts.SCORED)
  }
  rows = written["start"] + written["sums"]
  questions = [row["prompt"].removesuffix("\n<think>") for row in rows]
  assert len(set(questions)) == len(questions)
  assert not scored & set(questions)


@pytest.mark.parametrize(
  "completion, style, is_complete",
  [
    ("12-47=-35 -35+9=-26</think>\n<answer>\\boxed{-26}</answer>", "all", 1),
    ("12-47=-35 -35+9=1</think>\n<answer>\\boxed{1}</answer>", "all", 1),
    ("12-47=-35</think>\n<answer>\\boxed{-35}</answer>", "fewer", 0),
    ("1=1 2=2 3=3</think>\n<answer>\\boxed{3}</answer>", "more", 0),
    ("12-47=-35 -35+9=-26 <answer>\\boxed{-26}</answer>", "all", 0),
    ("12-47=-35 -35+9=-26</think> -26", "all", 0),
  ],
)
def test_steps_are_counted(completion, style, is_complete):
  question = "What is 12 - 47 + 9 ="
  assert styles.style(completion, question) == style
  assert styles.all_steps(completion, question) == is_complete


def test_right_sums_of_five_numbers_are_counted():
  answer = "</think>\n<answer>\\boxed{7}</answer>"
  five, three = "1 + 1 + 1 + 2 + 2 =", "3 + 2 + 2 ="
  assert styles.right_of_five(answer, five, "7") == 1
  assert styles.right_of_five(answer, five, "8") == 0
  assert styles.right_of_five(answer, three, "7") == 0
