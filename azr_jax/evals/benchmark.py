"""The interface of a benchmark: items, prompts and a grader."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from jaxtyping import Bool

from azr_jax.executor import Executor
from azr_jax.grading.outcome import Outcome
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.programs.task import Task
from azr_jax.tasks.templates import PromptFiles, PromptFormat


@dataclasses.dataclass(frozen=True)
class Item:
  """One question of a benchmark.

  Attributes:
    id: a name that is unique in the benchmark.
    question: the question, without the text that a prompt format adds.
    reference: data for the grader, which the model never sees. It is part of
      the records.
    subset: the subset for scores by subset; "" if there are none.
    hidden: further data for the grader, which is too large for records.
  """

  id: str
  question: str
  reference: Mapping[str, Any]
  subset: str = ""
  hidden: Any = None


@dataclasses.dataclass(frozen=True)
class ItemOutcome:
  """Whether a response is correct, and why.

  Attributes:
    correct: whether the response is correct.
    detail: a remark for the records, such as the extracted answer.
    timed_out: whether grading timed out. The response is then incorrect.
    limit: the executor limit that made the response incorrect although the
      benchmark has no such limit (`outcome.limit_of`); "" if there is none.
  """

  correct: bool
  detail: str = ""
  timed_out: bool = False
  limit: str = ""

  @classmethod
  def of(
    cls, outcome: Outcome, detail: str = "", limit: str = ""
  ) -> "ItemOutcome":
    """Converts a grader's outcome, with a remark and the limit that was hit."""
    if limit:
      detail = f"{detail}; ended by a limit of the executor"
    return cls(bool(outcome), detail, outcome is Outcome.TIMEOUT, limit)


Grader = Callable[[Executor, Item, str], "Future[ItemOutcome]"]
# Maps items, correctness and responses to additional scores.
Summary = Callable[
  [
    Sequence[Item],
    Bool[np.ndarray, "items samples"],
    Sequence[Sequence[str]],
  ],
  dict[str, float],
]


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """A benchmark: its data, and functions that write prompts and grade.

  Attributes:
    name: the name on the command line (`--benchmark`).
    source: the public data, as a spec of `tasks/records.py`; "" if there is no
      public source or the package contains the data.
    read: maps the records of `source` to items. If `opens_data` is set, maps
      the path or name of the data to items.
    answer_format: the answer that prompts ask for, a key of
      `prompt_formats.ANSWER_FORMATS`.
    grade: starts grading a response.
    prompt: writes an item's prompt in a prompt format, in a chat template, or
      by a user's prompts. None uses `prompt_formats.prompt`.
    prompt_files: the files of a user's prompts that `prompt` reads.
    summarize: computes scores besides pass@k, or None.
    opens_data: whether `read` opens the data itself: a folder, a file of the
      package, or generated items.
    limit_per_subset: whether `--limit` applies to each subset, instead of to
      all items together.
    default_limit: the number of items without `--limit`; 0 runs all.
    grade_truncated: whether to grade truncated responses. Otherwise a truncated
      response is graded as an empty one.
    task_of: maps an item to its program task and task type
      (`program_tasks.py`). None if the items are not program tasks.
    timeout_s: the benchmark's own limit in CPU seconds per test; 0 if it has
      none. The executor's limit applies in either case.
  """

  name: str
  source: str
  read: Callable[[Any], list[Item]]
  answer_format: str
  grade: Grader
  prompt: Callable[[Item, PromptFormat, Chat], str] | None = None
  prompt_files: PromptFiles = dataclasses.field(
    default_factory=dict, hash=False
  )
  summarize: Summary | None = None
  opens_data: bool = False
  limit_per_subset: bool = False
  default_limit: int = 0
  grade_truncated: bool = True
  task_of: Callable[[Item], tuple[str, Task]] | None = None
  timeout_s: float = 0.0

  def with_items(self, items: list[Item]) -> "Benchmark":
    """Returns this benchmark with fixed items; it then reads no data."""
    return dataclasses.replace(
      self, read=lambda data: items, opens_data=True, source=""
    )
