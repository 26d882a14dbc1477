"""MMLU, GPQA and BIG-Bench Hard: reading and grading."""

from excerpts import FIXTURES

from azr_jax.evals import multiple_choice


def test_mmlu_gpqa_and_bbh_are_read_and_graded(executor):
  both = multiple_choice.read_mmlu(
    [
      {"question": "q", "choices": ["w", "x", "y", "z"], "answer": 2},
      {"question": "q", "options": list("abcdefghij"), "answer": "J"},
    ]
  )
  assert [item.reference["answer"] for item in both] == ["C", "J"]
  assert "(C) y" in both[0].question and "(J) j" in both[1].question
  row = {"Question": "q", "Correct Answer": "yes"}
  row |= {f"Incorrect Answer {n}": f"no {n}" for n in (1, 2, 3)}
  first, second = multiple_choice.read_gpqa([row, row])
  assert first.question == second.question
  letter = first.reference["answer"]
  assert f"({letter}) yes" in first.question
  items = multiple_choice.read_bbh(FIXTURES)
  assert {item.subset for item in items} == {
    "boolean_expressions",
    "date_understanding",
    "dyck_languages",
  }
  for item in items:
    answer = item.reference["answer"]
    boxed = answer.replace("}", "\\}")
    for response in (f"\\boxed{{{boxed}}}", f"So the answer is {answer}."):
      assert (
        multiple_choice.grade_words(executor, item, response).result().correct
      )
    assert (
      not multiple_choice.grade_words(executor, item, "(Z)").result().correct
    )
