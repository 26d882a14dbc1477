"""Questions of any task with the reference of their grader, and their files."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable

from azr_jax.config import user_files


@dataclasses.dataclass(frozen=True)
class Question:
  """A question.

  Attributes:
    id: a name that is unique among all questions.
    task: the name of its task, such as `gym/products`, `bbh/snarks`,
      `symbench/game24`.
    text: the question.
    reference: the data for the task's grader, as the text of a Python literal
      (`executor/child/canonical.py`); the model never sees it.
  """

  id: str
  task: str
  text: str
  reference: str

  @property
  def question(self) -> str:
    """The question, by the name that agents read it by."""
    return self.text


def write(path: pathlib.Path, questions: Iterable[Question]) -> None:
  """Writes questions as lines of JSON."""
  with path.open("w") as file:
    for question in questions:
      file.write(json.dumps(dataclasses.asdict(question)) + "\n")


def read(path: pathlib.Path) -> list[Question]:
  """Reads the questions that `write` wrote.

  Raises:
    ValueError: the file does not exist, or a line is not a question.
  """
  if not path.is_file():
    raise ValueError(f"{path}: expected a file of questions")
  questions = []
  with user_files.reading(path, "a file of questions"):
    lines = path.read_text(user_files.ENCODING).split("\n")
  for number, line in enumerate(filter(None, lines), 1):
    with user_files.reading(f"{path}:{number}", "a question"):
      questions.append(_question(user_files.parse_json(line)))
  return questions


def _question(fields: dict[str, str]) -> Question:
  """Returns the question of a line; a field that is no text is a TypeError."""
  question = Question(**fields)
  for name, value in vars(question).items():
    if not isinstance(value, str):
      raise TypeError(f"{name}={value!r:.80} is no text")
  return question
