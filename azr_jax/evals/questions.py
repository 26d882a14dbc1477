"""`questions`: reasoning tasks that code may help with, by one of four agents.

Its data is a source of `tasks/questions/sources.py`, or several joined by `+`;
what is made is made anew, other questions than any run trains on. `--limit` is
of each task. Which agent answers is `evaluate.agent`; without one, the reply is
the model's own.
"""

import dataclasses
import functools
from concurrent.futures import Future

from azr_jax.evals.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor, futures
from azr_jax.grading import questions as grading
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout import code_blocks
from azr_jax.tasks.questions import prompts, sources
from azr_jax.tasks.questions.question import Question

NAME = "questions"
_MOST = 200  # Of each task.
HELD_OUT_SEED = 99  # Which no configuration trains on.


def read(data: str) -> list[Item]:
  """Items of a file, or of gym sets."""
  found = sources.read_all(sources.split(data), _MOST, HELD_OUT_SEED)
  return [item(question) for question in found]


def item(question: Question) -> Item:
  """A question as an item."""
  return Item(
    question.id,
    question.text,
    {"task": question.task, "reference": question.reference},
    question.task,
  )


def grade(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """Grades what stands between the last answer marks."""
  answer = code_blocks.find_answer(reply)
  verdict = grading.submit(
    executor, item.reference["task"], item.reference["reference"], answer
  )
  return futures.then(
    verdict,
    lambda correct: Grade(
      correct, "no answer" if answer is None else answer[:200]
    ),
  )


def _prompt(item: Item, style: str, tokenizer: Tokenizer, form: str) -> str:
  return prompts.ask(item.request, form, style, tokenizer)


def asked_by(benchmark: Benchmark, agent: str) -> Benchmark:
  """The benchmark with an agent's prompts (code_interpreter/agents.py)."""
  form = prompts.form_of(agent)
  return dataclasses.replace(
    benchmark, prompt=functools.partial(_prompt, form=form)
  )


BENCHMARKS = (
  Benchmark(
    NAME,
    "",
    read,
    "words",
    grade,
    prompt=functools.partial(_prompt, form="free"),
    reads_by_name=True,
    by_kind=True,
  ),
)
