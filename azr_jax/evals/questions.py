"""`questions`: reasoning tasks that code may help with, answered by an agent.

The data is a source of `tasks/questions/sources.py`, or several joined by `+`.
They are read with the seed that holds questions out: generators make others
than any run trains on, and of a public file this part is never trained on.
`--limit` counts the questions of each task. The config key `evaluate.agent`
selects one of the four agents; otherwise the model answers alone.
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
_MAX_PER_TASK = 200


def read(data: str) -> list[Item]:
  """Reads items from files, or generates gym questions."""
  questions = sources.read_all(
    sources.split(data), _MAX_PER_TASK, sources.HELD_OUT_SEED
  )
  return [item(question) for question in questions]


def item(question: Question) -> Item:
  """Converts a question to an item, whose subset is the question's task."""
  return Item(
    question.id,
    question.text,
    {"task": question.task, "reference": question.reference},
    question.task,
  )


def grade(executor: Executor, item: Item, response: str) -> "Future[Grade]":
  """Grades the text between the last answer marks of a response."""
  answer = code_blocks.find_answer(response)
  pending = grading.submit(
    executor, item.reference["task"], item.reference["reference"], answer
  )
  return futures.then(
    pending,
    lambda outcome: Grade.of(
      outcome, "no answer" if answer is None else answer[:200]
    ),
  )


def _prompt(
  item: Item, prompt_format: str, tokenizer: Tokenizer, form: str
) -> str:
  return prompts.ask(item.request, form, prompt_format, tokenizer)


def asked_by(benchmark: Benchmark, agent: str) -> Benchmark:
  """Returns the benchmark with an agent's prompts.

  The agents are those of `systems/code_interpreter/agents.py`.
  """
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
    opens_data=True,
    limit_per_subset=True,
  ),
)
