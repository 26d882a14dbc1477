"""The table of tasks is complete, and its split follows from the seed."""

import csv
import itertools
import pathlib

import numpy as np
import pytest

import azr_jax
from azr_jax.tasks.questions import catalogue, gym

TABLE = pathlib.Path(azr_jax.__file__).parent / "assets" / "question_tasks.tsv"
KINDS = {"execution", "planning", "reasoning"}
CAPABILITIES = {
  *("math", "spatial", "logical"),
  *("order", "optimization", "search"),
}


@pytest.mark.parametrize(
  "number, collection, total, tested",
  [(0, "symbench/", 33, 7), (1, "bbh/", 27, 7), (2, "gym/", 84, 23)],
)
def test_the_split_is_that_of_its_seed(number, collection, total, tested):
  names = [name for name in catalogue.tasks() if name.startswith(collection)]
  assert len(names) == total
  order = np.random.default_rng((0, number)).permutation(total)
  test = {names[i] for i in order[:tested].tolist()}
  for name in names:
    split = "test" if name in test else "train"
    assert catalogue.tasks()[name].split == split


def test_kinds_are_known_and_gym_sets_can_be_generated():
  with TABLE.open(encoding="utf-8", newline="") as file:
    rows = {row["task"]: row for row in csv.DictReader(file, delimiter="\t")}
  assert {row["kind"] for row in rows.values()} == {*KINDS, ""}
  capabilities = {k: row["capabilities"].split() for k, row in rows.items()}
  assert {*itertools.chain(*capabilities.values())} == CAPABILITIES
  assert [name for name, row in rows.items() if not row["kind"]] == [
    f"bbh/{name}"
    for name in (
      "boolean_expressions",
      "causal_judgement",
      "date_understanding",
      "disambiguation_qa",
      "formal_fallacies",
      "geometric_shapes",
    )
  ]
  assert list(rows) == list(catalogue.tasks())
  sets = [name for name in rows if name.startswith(gym.PREFIX)]
  assert sets == [gym.PREFIX + name for name in gym.NAMES]
  # The paper's table 6.
  assert capabilities["symbench/2048"] == ["math", "spatial", "logical"]
  assert rows["gym/sokoban"]["kind"] == "planning"
