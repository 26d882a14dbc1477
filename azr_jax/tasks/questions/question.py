"""One question of any task, with what its grader needs, and files of them."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Sequence


@dataclasses.dataclass(frozen=True)
class Question:
  """A question.

  Attributes:
    id: its name, unique among all questions.
    task: the task it is of, such as `gym/products`, `bbh/snarks`,
      `symbench/game24`.
    text: what is asked.
    reference: what the task's grader needs, as the text of a Python literal
      (`executor/canonical.py`); never shown to the model.
  """

  id: str
  task: str
  text: str
  reference: str


def write(path: pathlib.Path, questions: Iterable[Question]) -> None:
  """Writes questions as lines of JSON."""
  with path.open("w") as file:
    for question in questions:
      file.write(json.dumps(dataclasses.asdict(question)) + "\n")


def read(path: pathlib.Path) -> list[Question]:
  """Reads what `write` wrote.

  Raises:
    ValueError: the file is missing, or a line is no question.
  """
  if not path.is_file():
    raise ValueError(f"{path}: expected a file of questions")
  found = []
  for number, line in enumerate(filter(None, path.read_text().split("\n")), 1):
    try:
      found.append(Question(**json.loads(line)))
    except (ValueError, TypeError) as error:
      raise ValueError(
        f"{path}:{number}: {error}; expected a question"
      ) from None
  return found


def distinct(questions: Sequence[Question]) -> list[Question]:
  """Those whose texts did not come before."""
  return list({q.text: q for q in reversed(questions)}.values())[::-1]
