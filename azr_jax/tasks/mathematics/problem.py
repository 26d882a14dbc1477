"""A question with a reference answer, and how common layouts name them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

QUESTION_KEYS = ("question", "problem", "prompt", "query", "input")
ANSWER_KEYS = ("answer", "final_answer", "gold", "ground_truth", "target")
# What GSM8K has before its final number.
_FINAL = "####"


@dataclasses.dataclass(frozen=True)
class Problem:
  """What is asked, and the reference that an answer is compared with."""

  question: str
  answer: str


def from_record(record: Any) -> Problem:
  """Reads a record of one of the public layouts.

  | layout | |
  | --- | --- |
  | ORZ, training | `[{from, value}, {from, ground_truth: {value}}]`, or the
  same two under "0" and "1" |
  | ORZ, evaluation | `{prompt: [{from, value}], final_answer}` |
  | others | a question and an answer under usual names |

  An answer in a list counts if the list has one; a float that is whole is
  written without its point; of `... #### 18` only 18 counts.

  Raises:
    ValueError: the record has no question or no answer.
  """
  if isinstance(record, list | tuple) and len(record) == 2:
    question, answer = record[0]["value"], record[1]["ground_truth"]["value"]
  elif isinstance(record, Mapping) and {"0", "1"} <= record.keys():
    return from_record([record["0"], record["1"]])
  elif isinstance(record, Mapping):
    question = _first(record, QUESTION_KEYS)
    answer = _first(record, ANSWER_KEYS)
  else:
    raise ValueError(f"{record!r:.80}: expected a record of a problem")
  if isinstance(question, list | tuple) and question:
    question = question[0]["value"]
  if isinstance(answer, list | tuple) and len(answer) == 1:
    answer = answer[0]
  if isinstance(answer, float) and answer.is_integer():
    answer = int(answer)
  if not isinstance(question, str) or not question.strip():
    raise ValueError(f"{record!r:.80}: expected a question in it")
  if not isinstance(answer, str | int | float) or not str(answer).strip():
    raise ValueError(f"{record!r:.80}: expected an answer in it")
  return Problem(question.strip(), str(answer).rpartition(_FINAL)[2].strip())


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
  for name in names:
    if record.get(name) is not None:
      return record[name]
  raise ValueError(f"{record!r:.80}: expected one of the fields {names}")
