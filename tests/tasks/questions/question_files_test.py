"""Files of questions and of pass rates."""

import pytest
import training

from azr_jax.curricula.improvement_potential import PassRate
from azr_jax.tasks.questions import pass_rates, question, sources

training.needs("reasoning_gym", extra="gym")


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
  path = tmp_path / "pass_rates.jsonl"
  pass_rates.write(path, questions, [PassRate(n, 20) for n in range(4)])
  rates = pass_rates.read_for(path, questions[1:])
  assert rates == [PassRate(correct, 20) for correct in (1, 2, 3)]
  others = sources.read("gym:lcm", 1, 1)
  with pytest.raises(ValueError, match="1 of 5 questions are missing"):
    pass_rates.read_for(path, [*questions, *others])
  with pytest.raises(ValueError, match="there is no such file"):
    pass_rates.read_for(tmp_path / "none", questions)


def test_files_without_a_key_are_refused(tmp_path):
  path = tmp_path / "measured.jsonl"
  path.write_text('{"id": "a", "right": 3, "asked": 20}\n')
  with pytest.raises(ValueError, match="num_correct"):
    pass_rates.read(path)
