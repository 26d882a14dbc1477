"""Questions with references for their graders, and files of questions."""

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
    task: the name of the task, such as `gym/products`, `bbh/snarks` or
      `symbench/game24`.
    text: the question.
    reference: data for the task's grader, as the text of a Python literal
      (`executor/child/canonical.py`). The model never sees it.
  """

  id: str
  task: str
  text: str
  reference: str

  @property
  def question(self) -> str:
    """The question. Agents expect this attribute name."""
    return self.text


def write(path: pathlib.Path, questions: Iterable[Question]) -> None:
  """Writes questions as JSON lines."""
  with path.open("w") as file:
    for question in questions:
      file.write(json.dumps(dataclasses.asdict(question)) + "\n")


def read(path: pathlib.Path) -> list[Question]:
  """Reads a file of questions.

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
  """Converts the fields of a line; raises TypeError unless all are strings."""
  question = Question(**fields)
  for name, value in vars(question).items():
    if not isinstance(value, str):
      raise TypeError(f"{name}={value!r:.80}: expected a string")
  return question
