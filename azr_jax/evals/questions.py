"""`questions`: reasoning tasks that code may help with, answered by an agent.

The data is a source of `tasks/questions/sources.py`, or several joined by `+`.
Sources are read with the held-out seed: generators make questions that no run
trains on, and of a public file only the held-out part is read. `--limit` counts
the questions of each task. The config key `evaluate.agents` selects the agents.
Scores are in the layout of R1-CI's table 3 (`question_table.py`).

Agents can also run other benchmarks whose answers are math, a choice or words,
such as GPQA and AIME, the out-of-distribution sets of R1-CI's table 4. The
benchmark's own grader then grades the text between the marks `<<<...>>>`.
"""

import dataclasses
import functools
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
from jaxtyping import Bool

from azr_jax.evals import question_table
from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.executor import Executor, futures
from azr_jax.grading import questions as grading
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.questions import prompts, sources
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.templates import PromptFormat
from azr_jax.tools import code_blocks

NAME = "questions"
_MAX_PER_TASK = 200


def read(data: str) -> list[Item]:
  """Reads items from files, or generates gym questions."""
  questions = sources.read_all(
    sources.split(data), _MAX_PER_TASK, sources.HELD_OUT_SEED
  )
  return [item(question) for question in questions]


def item(question: Question) -> Item:
  """Converts a question to an item; its task becomes the item's subset."""
  return Item(
    question.id,
    question.text,
    {"task": question.task, "reference": question.reference},
    question.task,
  )


def grade(
  executor: Executor, item: Item, response: str
) -> "Future[ItemOutcome]":
  """Grades the text between the last answer marks of a response."""
  answer = code_blocks.find_answer(response)
  pending = grading.submit(
    executor, item.reference["task"], item.reference["reference"], answer
  )
  return futures.then(
    pending,
    lambda outcome: ItemOutcome.of(
      outcome, "no answer" if answer is None else answer[:200]
    ),
  )


def _prompt(
  item: Item,
  prompt_format: PromptFormat,
  chat: Chat,
  solution_style: str,
  instruction: str = "",
) -> str:
  question = f"{item.question}{instruction}"
  return prompts.ask(question, solution_style, prompt_format, chat)


# Answer format -> an instruction to append to the question, and a template that
# makes the answer readable for the benchmark's grader.
_OTHERS = {
  "math": ("", "\\boxed{{{}}}"),
  "choice": ("\nAnswer with the letter of the right choice.", "\\boxed{{{}}}"),
  "words": ("", "The answer is {}"),
}


def score_name(benchmark: str, agent: str, agents: Sequence[str]) -> str:
  """Returns the name under which an agent's scores are reported.

  Args:
    agent: one of `agents`, or "" if the model answered without an agent.
    agents: all agents of the run. The name has a suffix if there are several.
  """
  return f"{benchmark}_{agent}" if len(agents) > 1 else benchmark


def answered_by(
  benchmark: Benchmark, agent: str, agents: Sequence[str] = ()
) -> Benchmark:
  """Returns the benchmark with an agent's prompts and answer format.

  Args:
    agent: an agent of `systems/code_interpreter/agents.py`.
    agents: all agents of the run, for `score_name`.

  Raises:
    ValueError: agents cannot answer this benchmark.
  """
  changed = dataclasses.replace(
    benchmark, name=score_name(benchmark.name, agent, agents)
  )
  solution_style = prompts.solution_style_of(agent)
  if benchmark.name == NAME:
    prompt = functools.partial(_prompt, solution_style=solution_style)
    return dataclasses.replace(
      changed, prompt=prompt, prompt_files=prompts.files_of([agent])
    )
  if benchmark.answer_format not in _OTHERS or benchmark.prompt is not None:
    raise ValueError(
      f"evaluate.agents={tuple(agents)}: expected () with benchmark "
      f"{benchmark.name!r}, because agents cannot answer it between <<<marks>>>"
    )
  instruction, template = _OTHERS[benchmark.answer_format]

  def grade_marked(
    executor: Executor, item: Item, response: str
  ) -> "Future[ItemOutcome]":
    answer = code_blocks.find_answer(response)
    if answer is None:
      return futures.done(ItemOutcome(False, "no answer"))
    return benchmark.grade(executor, item, template.format(answer))

  return dataclasses.replace(
    changed,
    prompt=functools.partial(
      _prompt, solution_style=solution_style, instruction=instruction
    ),
    prompt_files=prompts.files_of([agent]),
    grade=grade_marked,
  )


def summarize(
  items: Sequence[Item],
  correct: Bool[np.ndarray, "items samples"],
  responses: Sequence[Sequence[str]],
) -> dict[str, float]:
  """Returns the means of `question_table.means`."""
  del responses
  return question_table.means([item.subset for item in items], correct)


BENCHMARKS = (
  Benchmark(
    NAME,
    "",
    read,
    "words",
    grade,
    prompt=functools.partial(_prompt, solution_style="free"),
    prompt_files=prompts.files_of(["free"]),
    opens_data=True,
    limit_per_subset=True,
    summarize=summarize,
  ),
)
