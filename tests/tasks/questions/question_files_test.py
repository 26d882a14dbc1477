"""Files of questions and of their measured pass rates."""

import pytest

from azr_jax.curricula.improvement_potential import Measured
from azr_jax.tasks.questions import measured, question, sources

pytest.importorskip("reasoning_gym")


def test_files_keep_questions(tmp_path):
  questions = sources.read("gym:gcd", 4, 1)
  path = tmp_path / "questions.jsonl"
  question.write(path, questions)
  assert sources.read(str(path), 3, 0) == questions[:3]
  path.write_text('{"id": "x"}\n')
  with pytest.raises(ValueError, match="jsonl:1: .*expected a question"):
    question.read(path)


def test_files_keep_pass_rates(tmp_path):
  questions = sources.read("gym:gcd", 4, 1)
  path = tmp_path / "measured.jsonl"
  measured.write(path, questions, [Measured(n, 20) for n in range(4)])
  pass_rates = measured.of_all(path, questions[1:])
  assert pass_rates == [Measured(right, 20) for right in (1, 2, 3)]
  others = sources.read("gym:lcm", 1, 1)
  with pytest.raises(ValueError, match="1 of 5 questions are missing"):
    measured.of_all(path, [*questions, *others])
  with pytest.raises(ValueError, match="there is no such file"):
    measured.of_all(tmp_path / "none", questions)
