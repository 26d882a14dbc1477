"""Math benchmarks on excerpts: reading and grading."""

from excerpts import rows

from azr_jax.evals import mathematics


def test_references_of_gsm8k_are_correct_and_others_are_not(executor):
  raw = rows("gsm8k_4.jsonl")
  items = mathematics.read_problems(raw)
  for row, item in zip(raw, items, strict=True):
    grade = mathematics.grade(executor, item, row["answer"]).result(60)
    assert grade.correct, (row["answer"], grade)
    other = items[0] if item is not items[0] else items[1]
    response = f"\\boxed{{{other.reference['answer']}}}"
    assert not mathematics.grade(executor, item, response).result(60).correct


def test_minerva_records_have_answers_or_solutions():
  both = mathematics.read_minerva(
    [
      {"problem": "p", "solution": "so \\boxed{1.6} cm"},
      {"question": "q", "answer": "2"},
    ]
  )
  assert [item.reference["answer"] for item in both] == ["1.6", "2"]


def test_olympiad_records_have_units_and_tolerances(executor):
  (item,) = mathematics.read_olympiad(
    [
      {
        "question": "how far",
        "context": "A train.",
        "final_answer": ["$2.5$"],
        "unit": "km",
        "error": "1e-1",
        "subfield": "Algebra",
      }
    ]
  )
  assert item.question.startswith("A train.") and "km" in item.question
  for response, correct in (("\\boxed{2.58}", True), ("\\boxed{2.7}", False)):
    grade = mathematics.grade(executor, item, response).result(60)
    assert grade.correct == correct
