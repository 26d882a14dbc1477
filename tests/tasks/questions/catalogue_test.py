"""The table of tasks is complete, and its split is that of its seed."""

import numpy as np
import pytest

from azr_jax.tasks.questions import catalogue, gym


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
  tasks = catalogue.tasks().values()
  assert {task.kind for task in tasks} == {*catalogue.KINDS, ""}
  assert {c for task in tasks for c in task.capabilities} == {
    *catalogue.CAPABILITIES
  }
  assert [t.name for t in tasks if not t.kind] == [
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
  sets = [t.name for t in tasks if t.name.startswith(gym.PREFIX)]
  assert sets == [gym.PREFIX + name for name in gym.NAMES]
  # These are the entries of table 6.
  assert catalogue.tasks()["symbench/2048"].capabilities == (
    "math",
    "spatial",
    "logical",
  )
  assert catalogue.tasks()["gym/sokoban"].kind == "planning"
