"""What a benchmark is to the runner: its items, its grader, its prompts."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax.executor import Executor
from azr_jax.models.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class Item:
  """One question of a benchmark.

  Attributes:
    id: its name, unique in the benchmark.
    request: the question, without the text that a prompt format puts around it.
    reference: what the grader needs; the model never sees it.
    kind: the subset it belongs to, for scores by subset; "" if there are none.
  """

  id: str
  request: str
  reference: Mapping[str, Any]
  kind: str = ""


@dataclasses.dataclass(frozen=True)
class Grade:
  """Whether a response is correct, and why."""

  correct: bool
  detail: str = ""


Grader = Callable[[Executor, Item, str], "Future[Grade]"]
# Maps items, correctness [items, samples] and responses to further scores.
Summary = Callable[
  [Sequence[Item], np.ndarray, Sequence[Sequence[str]]], dict[str, float]
]


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """A benchmark.

  Attributes:
    name: its name on the command line (`--benchmark`).
    source: its public data, in the notation of `tasks/records.py`; "": it has
      no public source, or the package contains the data.
    read: maps the records of `source` to items; if `reads_by_name`, maps the
      path or name of the data to items.
    answer_format: which sentence closes a request, a key of
      `prompt_formats.ANSWER_FORMATS`.
    grade: starts the grading of a response.
    prompt: writes an item's prompt in a prompt format for a model's tokenizer;
      None: `prompt_formats.prompt` does.
    summarize: computes scores besides pass@k, or None.
    reads_by_name: whether `read` opens the data itself: a folder, a file of the
      package, or generated items.
    by_kind: whether `--limit` counts the items of each kind, not all items.
    default_limit: the number of items without `--limit`; 0: all.
  """

  name: str
  source: str
  read: Callable[[Any], list[Item]]
  answer_format: str
  grade: Grader
  prompt: Callable[[Item, str, Tokenizer], str] | None = None
  summarize: Summary | None = None
  reads_by_name: bool = False
  by_kind: bool = False
  default_limit: int = 0

  def holding(self, items: list[Item]) -> "Benchmark":
    """Returns this benchmark with fixed items, so that it reads no data."""
    return dataclasses.replace(
      self, read=lambda data: items, reads_by_name=True, source=""
    )
