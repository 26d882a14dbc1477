"""Runs program benchmarks with the solver's training prompts.

In-distribution results (AZR, figure 14 and appendix C.2) use the prompts and
grading of training: deduction for CRUXEval-O and LiveCodeBench's execution
scenario, abduction for CRUXEval-I.
"""

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future

from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.executor import Executor, futures
from azr_jax.grading import programs
from azr_jax.grading.outcome import Outcome
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.programs import parsing, prompts, solving, templates
from azr_jax.tasks.programs.task import ABDUCTION, Task, Triplet
from azr_jax.tasks.templates import PromptFormat, Templates

TRAINING = "training"
# `full` is missing: for public benchmarks it means their own `full` format.
SOLVER_FORMATS = (prompts.COMPACT, prompts.FEW_SHOT)
# (task type, task) -> the solver's prompt in training.
SolverPrompt = Callable[[str, Task], str]


def with_training_prompt(
  benchmark: Benchmark, solver_prompt: SolverPrompt | None
) -> Benchmark:
  """Returns a benchmark with the prompts and grading of training.

  Its `prompt` raises ValueError if the items are not program tasks, or if
  training has no solver.

  Args:
    benchmark: a benchmark of program tasks.
    solver_prompt: writes the prompts. None if training solves no programs.
  """
  task_of = benchmark.task_of

  def prompt(item: Item, prompt_format: PromptFormat, chat: Chat) -> str:
    del prompt_format, chat
    if task_of is None or solver_prompt is None:
      raise ValueError(
        f"config.evaluation.prompt_format={TRAINING!r}: expected the name of "
        f"another format, because training asks nothing like {benchmark.name!r}"
      )
    return solver_prompt(*task_of(item))

  def grade(
    executor: Executor, item: Item, response: str
  ) -> "Future[ItemOutcome]":
    assert task_of is not None
    detail = "" if parsing.well_formatted(response) else "bad format"
    return futures.then(
      _submit(executor, *task_of(item), item, response),
      lambda outcome: ItemOutcome.of(outcome, detail),
    )

  return dataclasses.replace(
    benchmark, prompt=prompt, grade=grade, prompt_files=templates.SOLVER_FILES
  )


def in_format(benchmark: Benchmark, prompt_format: PromptFormat) -> Benchmark:
  """Switches a benchmark to training's prompts and grading, if it applies.

  Args:
    benchmark: the benchmark. It is returned unchanged if it writes its own
      prompts or if its items are not program tasks.
    prompt_format: the prompt format. Only `SOLVER_FORMATS` change the
      benchmark.
  """
  if (
    isinstance(prompt_format, Templates)
    or prompt_format not in SOLVER_FORMATS
    or benchmark.prompt is not None
    or benchmark.task_of is None
  ):
    return benchmark

  def solver_prompt(task_type: str, task: Task) -> str:
    return solving.solve_prompt_text(task_type, task, prompt_format)

  return with_training_prompt(benchmark, solver_prompt)


def _submit(
  executor: Executor, task_type: str, task: Task, item: Item, response: str
) -> "Future[Outcome]":
  """Starts grading a response as in training, but as leniently as CRUXEval.

  As in CRUXEval's own grader, an output may be an expression. If an item's
  arguments are objects, an answer's arguments may be objects, too.
  """
  if task_type == ABDUCTION and isinstance(task, Triplet):
    return programs.submit_abduction_answer(
      executor,
      task.code,
      task.output,
      parsing.parse_input_answer(response),
      item.reference.get("objects", False),
    )
  graded = solving.submit_grading(
    executor, task_type, task, [response], may_compute=True
  )
  return futures.then(graded, lambda outcomes: outcomes[0])
