"""Math problems with reference answers, in the layouts of public datasets."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from azr_jax.grading.mathematics import extraction

QUESTION_KEYS = ("question", "problem", "prompt", "query", "input")
ANSWER_KEYS = ("answer", "final_answer", "gold", "ground_truth", "target")
# Blocks of Chinese characters, and of the punctuation between them.
_CHINESE = ((0x3000, 0x303F), (0x3400, 0x4DBF), (0x4E00, 0x9FFF))
# The mark before the final answer in GSM8K.
_FINAL_ANSWER_MARK = "####"


@dataclasses.dataclass(frozen=True)
class Problem:
  """A question and its reference answer."""

  question: str
  answer: str

  @property
  def has_chinese(self) -> bool:
    """Whether the question has Chinese characters."""
    return any(
      first <= ord(char) <= last
      for char in self.question
      for first, last in _CHINESE
    )


def from_record(record: Any) -> Problem:
  """Converts a record to a problem.

  | layout | record |
  | --- | --- |
  | ORZ, training | `[{from, value}, {from, ground_truth: {value}}]`, or a
  mapping with the same two under "0" and "1" |
  | ORZ, evaluation | `{prompt: [{from, value}], final_answer}` |
  | MATH | `{problem, solution}`; the last box of the solution is the answer |
  | others | a mapping with one of `QUESTION_KEYS` and one of `ANSWER_KEYS` |

  The answer may be in a list of length one. Integral floats become integers,
  and a GSM8K answer that ends in `#### 18` becomes 18.

  Raises:
    ValueError: the record has no question or no answer.
  """
  if isinstance(record, list | tuple) and len(record) == 2:
    question, answer = record[0]["value"], record[1]["ground_truth"]["value"]
  elif isinstance(record, Mapping) and {"0", "1"} <= record.keys():
    return from_record([record["0"], record["1"]])
  elif isinstance(record, Mapping):
    question = _first(record, QUESTION_KEYS)
    answer = _boxed(record) or _first(record, ANSWER_KEYS)
  else:
    raise ValueError(f"{record!r:.80}: expected a record of a problem")
  if isinstance(question, list | tuple) and question:
    question = question[0]["value"]
  if isinstance(answer, list | tuple) and len(answer) == 1:
    answer = answer[0]
  if isinstance(answer, float):
    if not math.isfinite(answer):
      raise ValueError(f"{record!r:.80}: expected a finite answer")
    answer = int(answer) if answer.is_integer() else answer
  if not isinstance(question, str) or not question.strip():
    raise ValueError(f"{record!r:.80}: expected a question in it")
  if not isinstance(answer, str | int | float) or not str(answer).strip():
    raise ValueError(f"{record!r:.80}: expected an answer in it")
  return Problem(
    question.strip(), str(answer).rpartition(_FINAL_ANSWER_MARK)[2].strip()
  )


def _boxed(record: Mapping[str, Any]) -> str | None:
  """Returns the boxed answer of a solution, if the record has no answer."""
  solution = record.get("solution")
  if not isinstance(solution, str) or {*ANSWER_KEYS} & record.keys():
    return None
  return extraction.last_boxed(solution)


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
  for name in names:
    if record.get(name) is not None:
      return record[name]
  raise ValueError(f"{record!r:.80}: expected one of the fields {names}")
