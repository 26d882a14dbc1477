"""The table of tasks is whole, and its split is the one that it says."""

import numpy as np
import pytest

from azr_jax.tasks.questions import catalogue, gym


@pytest.mark.parametrize(
  "number, collection, total, tested",
  [(0, "symbench/", 33, 7), (1, "bbh/", 27, 7), (2, "gym/", 84, 23)],
)
def test_the_split_is_that_of_its_seed(number, collection, total, tested):
  own = [name for name in catalogue.tasks() if name.startswith(collection)]
  assert len(own) == total
  order = np.random.default_rng((0, number)).permutation(total)
  test = {own[i] for i in order[:tested].tolist()}
  for name in own:
    split = "test" if name in test else "train"
    assert catalogue.tasks()[name].split == split


def test_tags_are_known_and_gym_sets_are_those_that_can_be_made():
  found = catalogue.tasks().values()
  assert {task.kind for task in found} == {*catalogue.KINDS, ""}
  assert {c for task in found for c in task.capabilities} == {
    *catalogue.CAPABILITIES
  }
  assert [t.name for t in found if not t.kind] == [
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
  sets = [t.name for t in found if t.name.startswith(gym.PREFIX)]
  assert sets == [gym.PREFIX + name for name in gym.NAMES]
  # Table 6, as printed.
  assert catalogue.tasks()["symbench/2048"].capabilities == (
    "math",
    "spatial",
    "logical",
  )
  assert catalogue.tasks()["gym/sokoban"].kind == "planning"
