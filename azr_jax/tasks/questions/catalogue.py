"""The 144 tasks of R1-CI with their split.

`assets/question_tasks.tsv` lists the tasks by the names that questions use. It
also has the kinds and capabilities of the paper's table 6, which the code does
not use. The paper omits them for six BIG-Bench Hard tasks and calls Logical
Equation `Logical Deduction`. It gives the number of test tasks per collection
(7 of SymBench's 33, 7 of BIG-Bench Hard's 27, 23 of reasoning-gym's 84) but not
their names. We split by a permutation from NumPy's generator with the seed (0,
number of the collection).
"""

import csv
import dataclasses
import functools
import pathlib

_TABLE = pathlib.Path(__file__).parents[2] / "assets" / "question_tasks.tsv"
SPLITS = ("train", "test")


@dataclasses.dataclass(frozen=True)
class CatalogueTask:
  """A task of the catalogue.

  Attributes:
    name: the value of `Question.task`, such as `gym/products`.
    split: one of `SPLITS`.
  """

  name: str
  split: str


@functools.cache
def tasks() -> dict[str, CatalogueTask]:
  """Returns all tasks by name, in the order of the paper's appendix G."""
  with _TABLE.open(encoding="utf-8", newline="") as file:
    rows = csv.DictReader(file, delimiter="\t")
    return {
      row["task"]: CatalogueTask(row["task"], row["split"]) for row in rows
    }
