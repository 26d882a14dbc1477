"""Math benchmarks.

| name | reference answers |
| --- | --- |
| `aime24`, `aime25`, `amc23` | whole numbers |
| `math500`, `minerva`, `olympiadbench` | any mathematical expression |
| `gsm8k` | the number after `####` |
| `problems` | the answers in any data that `configs/orz.py` can train on |

Answers are compared by rules and, if the rules find them unequal, by algebra in
the executor. OlympiadBench's records may set a tolerance. By default the answer
of a response is its last box or number. `MathematicsSettings` can switch to the
prompt and grading of ORZ's reward.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from azr_jax.config.settings import Settings, setting
from azr_jax.evals import answer_extraction
from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.executor import Executor, futures
from azr_jax.grading.mathematics import extraction, numbers, reward
from azr_jax.grading.mathematics import grader as grader_lib
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.mathematics import problem as problem_lib
from azr_jax.tasks.mathematics import prompts, sources
from azr_jax.tasks.templates import PromptFormat

# The benchmark with ORZ's own problems, and the setting for its reward rule.
PROBLEMS, REWARD = "problems", "reward"


def read_problems(raw: Iterable[Any]) -> list[Item]:
  """Converts records of any layout that `problem.from_record` knows."""
  return [_item(index, record) for index, record in enumerate(raw)]


def read_any(spec: str) -> list[Item]:
  """Reads items from a source of `tasks/mathematics/sources.py`."""
  return [
    _from_problem(index, problem)
    for index, problem in enumerate(sources.read(spec))
  ]


def _item(index: int, record: Any) -> Item:
  return _from_problem(index, problem_lib.from_record(record))


def _from_problem(index: int, problem: problem_lib.Problem) -> Item:
  return Item(str(index), problem.question, {"answer": problem.answer})


def read_minerva(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  r"""Converts Minerva's records.

  If a record has no answer, takes the last `\boxed` of its solution.
  """
  items = []
  for index, record in enumerate(raw):
    boxed = extraction.last_boxed(record.get("solution") or "")
    if record.get("answer") is None and boxed is not None:
      record = {**record, "answer": boxed}
    items.append(_item(index, record))
  return items


def read_olympiad(raw: Iterable[Mapping[str, Any]]) -> list[Item]:
  """Converts records of OlympiadBench's English text-only questions."""
  items = []
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
    items.append(
      Item(
        str(index),
        question,
        {"answer": str(answer), "tolerance": _tolerance(error)},
        str(record.get("subfield", "")),
      )
    )
  return items


def _tolerance(text: Any) -> float:
  """Returns a record's tolerance; 0 if it has none, as is usual."""
  try:
    return float(text)
  except (TypeError, ValueError):
    return 0.0


def grade(
  executor: Executor, item: Item, response: str
) -> "Future[ItemOutcome]":
  """Compares the response's last box, or last number, with the reference."""
  answer = answer_extraction.math(response)
  tolerance = numbers.Tolerance(absolute=item.reference.get("tolerance", 0.0))
  return futures.then(
    grader_lib.submit(
      executor, item.reference["answer"], answer, tolerance=tolerance
    ),
    lambda outcome: ItemOutcome.of(
      outcome, "no answer" if answer is None else answer[:200]
    ),
  )


def _grade_as_reward(
  executor: Executor, item: Item, response: str, mode: str
) -> "Future[ItemOutcome]":
  """Grades a response by ORZ's reward rule, in one of `grader_lib.MODES`."""
  answer = reward.find_answer(response, "stop", reward.GRADED)
  tolerance = numbers.Tolerance(absolute=item.reference.get("tolerance", 0.0))
  return futures.then(
    reward.submit(executor, item.reference["answer"], answer, mode, tolerance),
    lambda outcome: ItemOutcome.of(
      outcome, "no answer" if answer is None else answer[:200]
    ),
  )


def _training_prompt(
  item: Item, prompt_format: PromptFormat, chat: Chat
) -> str:
  del chat
  return prompts.solve_prompt(item.question, prompt_format)


@dataclasses.dataclass(frozen=True)
class MathematicsSettings(Settings):
  """Prompts and grading of math benchmarks.

  The benchmark `problems` always uses the prompt and reward of ORZ's training.
  """

  answer: str = setting(
    "last",
    "last: grade the last box or number; reward: use ORZ's training prompt "
    "and reward rule",
    paper="ORZ: reward",
    choices=("last", REWARD),
  )
  grader: str = setting(
    "math_verify",
    "grader of the reward rule",
    choices=grader_lib.MODES,
  )
  truncated_grade: str = setting(
    reward.GRADED,
    "how the reward rule grades the answer of a truncated response",
    choices=reward.TRUNCATED_GRADES,
  )


def with_grading(
  benchmark: Benchmark, *, answer: str, grader: str, truncated_grade: str
) -> Benchmark:
  """Returns a benchmark with the prompts and grading that the values name.

  Benchmarks with answers other than math or choices are returned unchanged.
  `MathematicsSettings` describes the values.
  """
  uses_reward_prompt = answer == REWARD and (
    benchmark.answer_format in ("math", "choice")
  )
  if benchmark.name != PROBLEMS and not uses_reward_prompt:
    return benchmark
  return dataclasses.replace(
    benchmark,
    grade=functools.partial(_grade_as_reward, mode=grader),
    prompt=_training_prompt,
    prompt_files=prompts.FILES,
    grade_truncated=truncated_grade == reward.GRADED,
  )


_make = functools.partial(
  Benchmark, read=read_problems, answer_format="math", grade=grade
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
    PROBLEMS,
    "",
    read_any,
    "math",
    functools.partial(_grade_as_reward, mode="math_verify"),
    prompt=_training_prompt,
    prompt_files=prompts.FILES,
    opens_data=True,
  ),
)
