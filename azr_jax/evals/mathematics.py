"""Benchmarks of mathematical problems, graded as ORZ's rewards are.

| name | public data |
| --- | --- |
| `aime24`, `aime25`, `amc23` | competition answers that are whole numbers |
| `math500`, `minerva`, `olympiadbench` | answers of every form |
| `gsm8k` | the number behind `####` |
| `problems` | anything that `configs/orz.py` can train on |

Answers are compared by rules and, where they disagree, by algebra in the
executor. OlympiadBench's own tolerance holds where a row names one.
"""

import functools
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from azr_jax.evals import prompt_formats
from azr_jax.evals.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor, futures
from azr_jax.grading.mathematics import extraction, grader, rules
from azr_jax.tasks.mathematics import problem, prompts, sources


def read_problems(raw: Iterable[Any]) -> list[Item]:
  """Items of records with a question and an answer in any usual layout."""
  return [_item(index, record) for index, record in enumerate(raw)]


def read_any(spec: str) -> list[Item]:
  """Items of whatever `tasks/mathematics/sources.py` reads."""
  return [
    Item(str(index), one.question, {"answer": one.answer})
    for index, one in enumerate(sources.read(spec))
  ]


def _item(index: int, record: Any) -> Item:
  one = problem.from_record(record)
  return Item(str(index), one.question, {"answer": one.answer})


def read_minerva(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items with an answer, or with it in the last box of a solution."""
  found = []
  for index, record in enumerate(raw):
    boxed = extraction.last_boxed(record.get("solution") or "")
    if record.get("answer") is None and boxed is not None:
      record = {**record, "answer": boxed}
    found.append(_item(index, record))
  return found


def read_olympiad(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items of OlympiadBench's English text-only questions."""
  found = []
  for index, record in enumerate(raw):
    question = record["question"]
    context = record.get("context")
    if context and context != "None":
      question = f"{context}\n{question}"
    unit, error = record.get("unit"), record.get("error")
    if unit and unit != "None":
      question += f"\nThe answer's unit is {unit}."
    answers = record["final_answer"]
    answer = answers[0] if isinstance(answers, list) else answers
    found.append(
      Item(
        str(index),
        question,
        {"answer": str(answer), "tolerance": _number(error)},
        str(record.get("subfield", "")),
      )
    )
  return found


def _number(text: Any) -> float:
  try:
    return float(text)
  except (TypeError, ValueError):
    return 0.0  # "None", for most.


def grade(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """Compares the reply's last box, or last number, with the reference."""
  answer = prompt_formats.math(reply)
  tolerance = rules.Tolerance(absolute=item.reference.get("tolerance", 0.0))
  return futures.then(
    grader.submit(
      executor, item.reference["answer"], answer, tolerance=tolerance
    ),
    lambda equal: Grade(equal, "no answer" if answer is None else answer[:200]),
  )


def _strict(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """As `configs/orz.py` rewards: a box inside the answer tags, by rules."""
  answer = extraction.find_answer(reply)
  return futures.then(
    grader.submit(executor, item.reference["answer"], answer, "rules"),
    lambda equal: Grade(equal, "no answer" if answer is None else answer[:200]),
  )


_make = functools.partial(
  Benchmark, read=read_problems, form="math", grade=grade
)
BENCHMARKS = (
  _make("aime24", "hf:HuggingFaceH4/aime_2024"),
  _make("aime25", "hf:math-ai/aime25:test"),
  _make("amc23", "hf:math-ai/amc23:test"),
  _make("math500", "hf:HuggingFaceH4/MATH-500:test"),
  _make("minerva", "hf:math-ai/minervamath:test", read=read_minerva),
  _make(
    "olympiadbench",
    "hf:Hothan/OlympiadBench/OE_TO_maths_en_COMP",
    read=read_olympiad,
  ),
  _make("gsm8k", "hf:openai/gsm8k/main:test"),
  Benchmark(
    "problems",
    "",
    read_any,
    "math",
    _strict,
    prompt=lambda item, style, tokenizer: prompts.solve_prompt(
      item.request, style
    ),
    reads_by_name=True,
  ),
)
