"""Benchmarks of choices and short answers: MMLU, GPQA, BIG-Bench Hard.

| name | layout |
| --- | --- |
| `mmlu` | question, choices, answer (index or letter), subject |
| `mmlu_pro` | question, options, answer (letter), category |
| `gpqa` | GPQA's own columns; its owners ask not to publish it, so bring it |
| `bbh` | examples of input and target, or a folder of such files |

GPQA's choices are put in an order that depends on the question alone.
"""

import ast
import hashlib
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax.evals import prompt_formats
from azr_jax.evals.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor, futures
from azr_jax.tasks.questions import bbh

LETTERS = "ABCDEFGHIJ"


def _ask(question: str, choices: Sequence[str]) -> str:
  listed = "\n".join(
    f"({letter}) {choice}"
    for letter, choice in zip(LETTERS, choices, strict=False)
  )
  return f"{question.strip()}\n{listed}"


def read_mmlu(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items of MMLU's and MMLU-Pro's layouts."""
  found = []
  for index, record in enumerate(raw):
    choices = record.get("choices") or record["options"]
    answer = record["answer"]
    letter = LETTERS[answer] if isinstance(answer, int) else str(answer).strip()
    kind = record.get("subject") or record.get("category") or ""
    found.append(
      Item(
        str(record.get("question_id", index)),
        _ask(record["question"], choices),
        {"answer": letter, "letters": LETTERS[: len(choices)]},
        str(kind),
      )
    )
  return found


def read_gpqa(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Items of GPQA's columns."""
  found = []
  for index, record in enumerate(raw):
    question = record["Question"]
    choices = [record["Correct Answer"]]
    choices += [record[f"Incorrect Answer {n}"] for n in (1, 2, 3)]
    digest = hashlib.sha256(question.encode()).digest()
    rng = np.random.default_rng(list(digest))
    order = rng.permutation(len(choices)).tolist()
    found.append(
      Item(
        str(record.get("Record ID", index)),
        _ask(question, [choices[place].strip() for place in order]),
        {
          "answer": LETTERS[order.index(0)],
          "letters": LETTERS[: len(choices)],
        },
        str(record.get("High-level domain", "")),
      )
    )
  return found


def read_bbh(spec: Any) -> list[Item]:
  """Items of one task's file, or of a folder of them; `kind` is the task."""
  return [
    Item(
      question.id.removeprefix(bbh.PREFIX),
      question.text,
      {"answer": ast.literal_eval(question.reference)},
      question.task.removeprefix(bbh.PREFIX),
    )
    for question in bbh.read(pathlib.Path(str(spec)).expanduser())
  ]


def grade_choice(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """Compares the letter that a reply chooses."""
  del executor
  letter = prompt_formats.choice(reply, item.reference["letters"])
  return futures.done(
    Grade(letter == item.reference["answer"], letter or "no answer")
  )


def grade_words(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """Compares words; of choices like `(B)` the letter alone."""
  del executor
  want = item.reference["answer"]
  if re.fullmatch(r"\([A-Z]\)", want):
    letter = prompt_formats.choice(reply, "A-Z")
    return futures.done(Grade(f"({letter})" == want, letter or "no answer"))
  found = prompt_formats.last_words(reply), prompt_formats.short(reply)
  right = any(_words(want) == _words(one) for one in found if one)
  return futures.done(Grade(right, (found[0] or "")[:200]))


def _words(text: str) -> str:
  """Small letters, one space between words, no quotes or final dot."""
  text = re.sub(r"\\text\{(.*?)\}|\\([{}])", r"\1\2", text)
  return " ".join(text.casefold().replace('"', "").split()).rstrip(".")


BENCHMARKS = (
  Benchmark("mmlu", "hf:cais/mmlu/all:test", read_mmlu, "choice", grade_choice),
  Benchmark(
    "mmlu_pro", "hf:TIGER-Lab/MMLU-Pro:test", read_mmlu, "choice", grade_choice
  ),
  Benchmark("gpqa", "", read_gpqa, "choice", grade_choice),
  Benchmark("bbh", "", read_bbh, "words", grade_words, reads_by_name=True),
)
