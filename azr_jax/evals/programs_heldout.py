"""`programs_heldout`: 300 held-out tasks of each of AZR's task types.

`--limit` applies to each type. pass@1 is over all types.
"""

import pathlib
from concurrent.futures import Future

from azr_jax.corpora.programs import heldout
from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.executor import Executor, futures
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.programs import parsing, prompts, solving, templates
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.templates import PromptFormat, Templates


def read(data: str) -> list[Item]:
  """Reads items from a file of tasks; by default from the package's file."""
  path = pathlib.Path(data).expanduser() if data else heldout.ASSET
  return [
    Item(
      f"{entry.task_type}/{index}",
      solving.solve_prompt_text(entry.task_type, entry.task, "compact"),
      {"task": task_lib.to_json(entry.task)},
      entry.task_type,
    )
    for index, entry in enumerate(heldout.read(path))
  ]


def _task(item: Item) -> task_lib.Task:
  return task_lib.from_json(item.reference["task"])


def grade(
  executor: Executor, item: Item, response: str
) -> "Future[ItemOutcome]":
  """Grades a response as in training of AZR's solver."""
  detail = "" if parsing.well_formatted(response) else "bad format"
  graded = solving.submit_grading(
    executor, item.subset, _task(item), [response]
  )
  return futures.then(
    graded, lambda outcomes: ItemOutcome.of(outcomes[0], detail)
  )


def prompt(item: Item, prompt_format: PromptFormat, chat: Chat) -> str:
  """Returns the solver's prompt in a format of `tasks.programs.prompts`."""
  del chat  # no format of this benchmark uses a chat template
  if isinstance(prompt_format, Templates):
    limit_s = ExecutorSettings().timeout_s
    builder = PromptBuilder(
      prompts.FULL, limit_s, limit_s, custom_templates=prompt_format
    )
    return builder.solve(item.subset, _task(item))
  return solving.solve_prompt_text(item.subset, _task(item), prompt_format)


BENCHMARKS = (
  Benchmark(
    "programs_heldout",
    "",
    read,
    "code",
    grade,
    prompt=prompt,
    prompt_files=templates.SOLVER_FILES,
    opens_data=True,
    limit_per_subset=True,
    task_of=lambda item: (item.subset, _task(item)),
  ),
)
