"""Benchmarks: their items, prompts and graders, as the runner takes them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax.executor import Executor
from azr_jax.grading.outcome import Outcome
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.programs.task import Task


@dataclasses.dataclass(frozen=True)
class Item:
  """One question of a benchmark.

  Attributes:
    id: its name, unique in the benchmark.
    question: the question, without the text that a prompt format puts around
      it.
    reference: what the grader needs; the model never sees it.
    subset: the name of its subset, for scores by subset; "": there are none.
    hidden: what the grader needs besides, and is too large for records.
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
    correct: whether it is correct.
    detail: a remark of the benchmark's kind.
    timed_out: whether a limit of time ended its grading, so that it is not
      correct.
    limit: the executor limit that made it incorrect, though the benchmark has
      no such limit (`outcome.limit_of`); empty if there is none.
  """

  correct: bool
  detail: str = ""
  timed_out: bool = False
  limit: str = ""

  @classmethod
  def of(
    cls, outcome: Outcome, detail: str = "", limit: str = ""
  ) -> "ItemOutcome":
    """Returns this outcome of a response, with a remark."""
    if limit:
      detail = f"{detail}; ended by a limit of the executor"
    return cls(bool(outcome), detail, outcome is Outcome.TIMEOUT, limit)


Grader = Callable[[Executor, Item, str], "Future[ItemOutcome]"]
# Maps items, correctness [items, samples] and responses to further scores.
Summary = Callable[
  [Sequence[Item], np.ndarray, Sequence[Sequence[str]]], dict[str, float]
]


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """The data of a benchmark, and the functions that prompt and grade.

  Attributes:
    name: its name on the command line (`--benchmark`).
    source: its public data, in the notation of `tasks/records.py`; "": it has
      no public source, or the package contains the data.
    read: maps the records of `source` to items; if `opens_data`, maps the
      path or name of the data to items.
    answer_format: the form in which a prompt asks for the answer, a key of
      `prompt_formats.ANSWER_FORMATS`.
    grade: starts the grading of a response.
    prompt: writes an item's prompt in a prompt format, or in a chat template.
      None uses `prompt_formats.prompt`.
    summarize: computes scores besides pass@k, or None.
    opens_data: whether `read` opens the data itself: a folder, a file of the
      package, or generated items.
    limit_per_subset: whether `--limit` counts the items of each subset, not all
      items.
    default_limit: the number of items without `--limit`; 0: all.
    grade_truncated: whether a response that was truncated is graded; otherwise
      it is graded as an empty one.
    task_of: maps an item to the program task that it is, with its type, where
      there is one (`program_tasks.py`).
    timeout_s: CPU seconds of a test by the benchmark's own rules; 0: it has
      none, and the executor's limit holds.
  """

  name: str
  source: str
  read: Callable[[Any], list[Item]]
  answer_format: str
  grade: Grader
  prompt: Callable[[Item, str, Chat], str] | None = None
  summarize: Summary | None = None
  opens_data: bool = False
  limit_per_subset: bool = False
  default_limit: int = 0
  grade_truncated: bool = True
  task_of: Callable[[Item], tuple[str, Task]] | None = None
  timeout_s: float = 0.0

  def with_items(self, items: list[Item]) -> "Benchmark":
    """Returns this benchmark with fixed items, so that it reads no data."""
    return dataclasses.replace(
      self, read=lambda data: items, opens_data=True, source=""
    )
