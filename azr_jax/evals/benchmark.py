"""What a benchmark is to the runner, and what it says of an answer."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax.executor import Executor
from azr_jax.models.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class Item:
  """One thing to ask.

  Attributes:
    id: its name, unique in the benchmark.
    request: what is asked, without the frame that a prompt style puts around.
    reference: what the grader needs; never shown to the model.
    kind: the subset it belongs to, for scores by subset; "" if there are none.
  """

  id: str
  request: str
  reference: Mapping[str, Any]
  kind: str = ""


@dataclasses.dataclass(frozen=True)
class Grade:
  """What an answer is worth: right or not, and why."""

  correct: bool
  detail: str = ""


Grader = Callable[[Executor, Item, str], "Future[Grade]"]
# From items, verdicts [items, samples] and replies, to more scores.
Summary = Callable[
  [Sequence[Item], np.ndarray, Sequence[Sequence[str]]], dict[str, float]
]


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """A benchmark.

  Attributes:
    name: what `--benchmark` calls it.
    source: where its public data is, as `tasks/records.py` reads it; "": the
      package has it.
    read: from records of `source`'s layout to items; from the data's name, if
      `reads_by_name`.
    form: what is asked for at the end of a request, see `frames.py`.
    grade: starts the grading of a reply.
    prompt: writes an item's prompt in a style for a model's tokenizer; None:
      `frames.prompt` does.
    summarize: scores besides pass@k, or None.
    reads_by_name: `read` finds its data itself: a folder, what the package
      has, or what is made on the spot.
    by_kind: `--limit` is of each kind, not of all items.
    default_limit: items if none is given; 0: all.
  """

  name: str
  source: str
  read: Callable[[Any], list[Item]]
  form: str
  grade: Grader
  prompt: Callable[[Item, str, Tokenizer], str] | None = None
  summarize: Summary | None = None
  reads_by_name: bool = False
  by_kind: bool = False
  default_limit: int = 0

  def holding(self, items: list[Item]) -> "Benchmark":
    """The benchmark of these items, which reads no data."""
    return dataclasses.replace(
      self, read=lambda data: items, reads_by_name=True, source=""
    )
