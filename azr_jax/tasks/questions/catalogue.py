"""The 144 tasks of seed 001: which are trained on, and what they ask for.

The table is `assets/question_tasks.tsv`, with the names that questions have.
Kinds and capabilities are those of the paper's table 6, which has none for six
of the BIG-Bench Hard tasks, and calls Logical Equation `Logical Deduction`. The
paper tells how many tasks of each collection are tested on (7 of SymBench's 33,
7 of BIG-Bench Hard's 27, 23 of reasoning-gym's 84), but not which: the split is
a permutation by NumPy's generator of seed (0, number of the collection).
"""

import csv
import dataclasses
import functools
import pathlib

_TABLE = pathlib.Path(__file__).parents[2] / "assets" / "question_tasks.tsv"
SPLITS = ("train", "test")
KINDS = ("execution", "planning", "reasoning")
CAPABILITIES = (
  "math",
  "spatial",
  "logical",
  "order",
  "optimization",
  "search",
)


@dataclasses.dataclass(frozen=True)
class Task:
  """A task.

  Attributes:
    name: as its questions name it, such as `gym/products`.
    split: one of `SPLITS`.
    kind: one of `KINDS`, or "".
    capabilities: some of `CAPABILITIES`.
  """

  name: str
  split: str
  kind: str
  capabilities: tuple[str, ...]


@functools.cache
def tasks() -> dict[str, Task]:
  """All tasks by name, in the order of the paper's appendix G."""
  with _TABLE.open(encoding="utf-8", newline="") as file:
    rows = csv.DictReader(file, delimiter="\t")
    return {
      row["task"]: Task(
        row["task"],
        row["split"],
        row["kind"],
        tuple(row["capabilities"].split()),
      )
      for row in rows
    }
