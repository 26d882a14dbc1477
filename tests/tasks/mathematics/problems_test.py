"""Math problems in public layouts, generated problems, and prompts."""

import json

import pytest

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
    # MATH, and a set of records that has a solution besides its answer.
    (
      {"problem": "q", "solution": "\\boxed{3}, so \\boxed{\\frac{1}{2}}."},
      "q",
      "\\frac{1}{2}",
    ),
    ({"problem": "q", "solution": "\\boxed{3}", "answer": "4"}, "q", "4"),
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
def test_records_without_question_or_answer_are_refused(record):
  with pytest.raises(ValueError, match="expected"):
    problem.from_record(record)


def test_problems_in_english_alone(tmp_path):
  """ORZ, C.2. The count is of problems that are kept."""
  path = tmp_path / "both.jsonl"
  texts = ["求 x 的值", "Find x.", "计算 1 + 1。", "α + é = ?", "What is 2?"]
  rows = [{"question": text, "answer": "1"} for text in texts]
  path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
  (kept,) = sources.read_each([str(path)], [2], language="english")
  assert [one.question for one in kept] == ["Find x.", "α + é = ?"]
  (every,) = sources.read_each([str(path)], [0])
  assert [one.question for one in every] == texts


@pytest.mark.parametrize("name", ["p.jsonl", "p.json"])
def test_files_are_read_without_repeated_questions(tmp_path, name):
  records = [{"question": f"q{i % 3}", "answer": str(i)} for i in range(6)]
  path = tmp_path / name
  if name.endswith("jsonl"):
    path.write_text("\n".join(map(json.dumps, records)))
  else:
    path.write_text(json.dumps(records))
  problems = sources.read(str(path))
  assert problems == [Problem(f"q{i}", str(i)) for i in range(3)]
  assert sources.read(str(path), count=2) == problems[:2]
  each = sources.read_each([str(path)] * 2, (1, 2))
  assert each == [problems[:1], problems[:2]]


@pytest.mark.parametrize(
  "spec", ["/nowhere.jsonl", "gym:1+", "gym:chain_sum(2)", "gym:f(x=y)"]
)
def test_an_unknown_source_is_refused(spec):
  with pytest.raises(ValueError, match="expected"):
    sources.read(spec)


def test_gym_sets_depend_on_the_seed_only_and_can_be_mixed():
  problems = sources.read(SUMS, 30, seed=4)
  assert problems == sources.read(SUMS, 30, seed=4)
  mixed = sources.read(f"{SUMS}+basic_arithmetic", 20)
  assert len(mixed) == 20
  assert sum("arithmetic problem" in p.question for p in mixed) in range(5, 16)


def test_problems_of_two_seeds_are_disjoint():
  """The library's own adjacent seeds give the same problems, shifted."""
  longer = SUMS.replace(")", ", min_digits=2)")
  by_seed = [set(sources.read(longer, 300, seed)) for seed in (0, 1, 9)]
  by_seed.append(set(sources.read(longer.replace(")", ", seed=7)"), 300)))
  assert len(set().union(*by_seed)) == sum(map(len, by_seed)) > 1000


def test_full_prompts_ask_for_a_box_inside_answer_tags():
  text = prompts.solve_prompt("What is 1 + 1?", "full")
  assert text.endswith("<think>")
  assert "\\boxed{}" in text and "<answer>" in text
  assert "What is 1 + 1?" in text
