"""Problems of public layouts, their prompts, and conversations about sums."""

import json
import re

import pytest

from azr_jax.corpora import arithmetic as corpus
from azr_jax.grading.mathematics import extraction
from azr_jax.tasks.mathematics import problem, prompts, sources
from azr_jax.tasks.mathematics.problem import Problem

SUMS = "gym:chain_sum(min_terms=3, max_terms=4, max_digits=2)"


@pytest.mark.parametrize(
  "record, question, answer",
  [
    (
      [
        {"from": "human", "value": "q"},
        {"from": "assistant", "ground_truth": {"value": "n = 4"}},
      ],
      "q",
      "n = 4",
    ),
    (
      {"prompt": [{"from": "user", "value": "q "}], "final_answer": "73"},
      "q",
      "73",
    ),
    ({"problem": "q", "answer": 27.0}, "q", "27"),
    ({"question": "q", "answer": "so 9*2 = 18\n#### 18"}, "q", "18"),
    ({"question": "q", "final_answer": ["$2$"]}, "q", "$2$"),
    (
      {"0": {"value": "q"}, "1": {"ground_truth": {"value": "1"}}},
      "q",
      "1",
    ),
  ],
)
def test_records_of_public_layouts(record, question, answer):
  assert problem.from_record(record) == Problem(question, answer)


@pytest.mark.parametrize(
  "record", [{}, {"question": "q"}, {"question": "", "answer": "1"}, "q", 3]
)
def test_what_is_no_problem_is_refused(record):
  with pytest.raises(ValueError, match="expected"):
    problem.from_record(record)


@pytest.mark.parametrize("name", ["p.jsonl", "p.json"])
def test_files_are_read_without_repeated_questions(tmp_path, name):
  records = [{"question": f"q{i % 3}", "answer": str(i)} for i in range(6)]
  path = tmp_path / name
  if name.endswith("jsonl"):
    path.write_text("\n".join(map(json.dumps, records)))
  else:
    path.write_text(json.dumps(records))
  found = sources.read(str(path))
  assert found == [Problem(f"q{i}", str(i)) for i in range(3)]
  assert sources.read(str(path), count=2) == found[:2]
  assert sources.read_all([str(path)] * 2, (1, 2)) == found[:1] + found[:2]


@pytest.mark.parametrize(
  "spec", ["/nowhere.jsonl", "gym:1+", "gym:chain_sum(2)", "gym:f(x=y)"]
)
def test_a_source_that_does_not_exist_is_named(spec):
  with pytest.raises(ValueError, match="expected"):
    sources.read(spec)


def test_gym_sets_are_made_alike_and_can_be_mixed():
  one = sources.read(SUMS, 30, seed=4)
  assert one == sources.read(SUMS, 30, seed=4)
  mixed = sources.read(f"{SUMS}+basic_arithmetic", 20)
  assert len(mixed) == 20
  assert sum("arithmetic problem" in p.question for p in mixed) in range(5, 16)


def test_problems_of_two_seeds_have_nothing_in_common():
  """The library's own seeds, side by side, give the same ones, shifted."""
  longer = SUMS.replace(")", ", min_digits=2)")
  by_seed = [set(sources.read(longer, 300, seed)) for seed in (0, 1, 9)]
  by_seed.append(set(sources.read(longer.replace(")", ", seed=7)"), 300)))
  assert len(set().union(*by_seed)) == sum(map(len, by_seed)) > 1000


@pytest.mark.parametrize("manner", corpus.MANNERS)
def test_replies_about_sums_are_right(manner):
  for one in sources.read(SUMS, 40):
    reply = corpus.write(one, manner)
    box = extraction.find_answer(reply)
    assert box == (None if manner == "bare" else one.answer)
    for left, right in re.findall(r"(\S+)=(-?\d+)", reply):
      assert eval(left) == int(right)
    assert prompts.well_formatted(reply) == (manner != "bare")
  with pytest.raises(ValueError, match="sum"):
    corpus.write(Problem("2 + 2 =", "5"), "worked")


def test_shares_of_manners():
  settings = corpus.CorpusSettings(0, 300, SUMS, (1.0, 0.0, 1.0))
  replies = [reply for _, reply in corpus.conversations(settings)]
  boxed = sum("boxed" in reply for reply in replies) / len(replies)
  assert 0.4 < boxed < 0.6
  assert all("=" in reply for reply in replies)


def test_full_prompts_ask_for_a_box_inside_of_tags():
  text = prompts.solve_prompt("What is 1 + 1?", "full")
  assert text.endswith("<think>")
  assert "\\boxed{}" in text and "<answer>" in text
  assert "What is 1 + 1?" in text
