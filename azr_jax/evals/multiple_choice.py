"""Benchmarks with multiple-choice and short answers: MMLU, GPQA, BBH.

| name | layout of the data |
| --- | --- |
| `mmlu` | question, choices, answer (index or letter), subject |
| `mmlu_pro` | question, options, answer (letter), category |
| `gpqa` | GPQA's original columns; needs `--data`, because GPQA's authors ask
  people not to publish the questions |
| `bbh` | a file of examples with input and target, or a folder of such files |

GPQA's choices are shuffled, seeded by a hash of the question.
"""

import hashlib
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax.evals import answer_extraction
from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.executor import Executor, futures, literals
from azr_jax.tasks.questions import bbh

LETTERS = "ABCDEFGHIJ"
# `\text{...}`, closed on its line or not, or an escaped brace.
_LATEX = re.compile(r"\\text\{([^}\n]*+)(\})?|\\([{}])")


def _question_with_choices(question: str, choices: Sequence[str]) -> str:
  """Returns a question followed by its choices, one lettered line each."""
  listed = "\n".join(
    f"({letter}) {choice}"
    for letter, choice in zip(LETTERS, choices, strict=False)
  )
  return f"{question.strip()}\n{listed}"


def read_mmlu(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Converts MMLU or MMLU-Pro records to items."""
  items = []
  for index, record in enumerate(raw):
    choices = record.get("choices") or record["options"]
    answer = record["answer"]
    letter = LETTERS[answer] if isinstance(answer, int) else str(answer).strip()
    subset = record.get("subject") or record.get("category") or ""
    items.append(
      Item(
        str(record.get("question_id", index)),
        _question_with_choices(record["question"], choices),
        {"answer": letter, "letters": LETTERS[: len(choices)]},
        str(subset),
      )
    )
  return items


def read_gpqa(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Converts GPQA records to items."""
  items = []
  for index, record in enumerate(raw):
    question = record["Question"]
    choices = [record["Correct Answer"]]
    choices += [record[f"Incorrect Answer {n}"] for n in (1, 2, 3)]
    digest = hashlib.sha256(question.encode()).digest()
    rng = np.random.default_rng(list(digest))
    order = rng.permutation(len(choices)).tolist()
    items.append(
      Item(
        str(record.get("Record ID", index)),
        _question_with_choices(
          question, [choices[index].strip() for index in order]
        ),
        {
          "answer": LETTERS[order.index(0)],
          "letters": LETTERS[: len(choices)],
        },
        str(record.get("High-level domain", "")),
      )
    )
  return items


def read_bbh(spec: Any) -> list[Item]:
  """Reads a task's file, or a folder of task files; subsets are tasks."""
  return [
    Item(
      question.id.removeprefix(bbh.PREFIX),
      question.text,
      {"answer": literals.literal_value(question.reference)},
      question.task.removeprefix(bbh.PREFIX),
    )
    for question in bbh.read(pathlib.Path(str(spec)).expanduser())
  ]


def grade_choice(
  executor: Executor, item: Item, response: str
) -> "Future[ItemOutcome]":
  """Compares the letter that a response chooses with the reference."""
  del executor
  letter = answer_extraction.choice(response, item.reference["letters"])
  return futures.done(
    ItemOutcome(letter == item.reference["answer"], letter or "no answer")
  )


def grade_words(
  executor: Executor, item: Item, response: str
) -> "Future[ItemOutcome]":
  """Compares a short answer with the reference; for `(B)`, just the letter."""
  del executor
  reference = item.reference["answer"]
  if re.fullmatch(r"\([A-Z]\)", reference):
    letter = answer_extraction.choice(response, "A-Z")
    correct = f"({letter})" == reference
    return futures.done(ItemOutcome(correct, letter or "no answer"))
  answer = answer_extraction.last_words(response)
  candidates = answer, answer_extraction.short_answer(response)
  correct = any(
    normalized(text) == normalized(reference) for text in candidates if text
  )
  return futures.done(ItemOutcome(correct, (answer or "")[:200]))


def normalized(text: str) -> str:
  """Lower-cases a text; strips LaTeX, quotes, extra spaces and a final dot."""
  text = _LATEX.sub(_without_latex, text)
  return " ".join(text.casefold().replace('"', "").split()).rstrip(".")


def _without_latex(match: re.Match[str]) -> str:
  if match[3]:
    return match[3]
  # Unclosed: the match is the rest of the line. Any `\text{` in it is unclosed,
  # too, so only escaped braces are replaced.
  return match[1] if match[2] else match[0].replace("\\{", "{")


BENCHMARKS = (
  Benchmark("mmlu", "hf:cais/mmlu/all:test", read_mmlu, "choice", grade_choice),
  Benchmark(
    "mmlu_pro", "hf:TIGER-Lab/MMLU-Pro:test", read_mmlu, "choice", grade_choice
  ),
  Benchmark("gpqa", "", read_gpqa, "choice", grade_choice),
  Benchmark("bbh", "", read_bbh, "words", grade_words, opens_data=True),
)
