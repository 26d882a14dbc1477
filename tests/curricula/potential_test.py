"""Improvement potential: groups, stages, and the order of an epoch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.curricula import improvement_potential, passes
from azr_jax.curricula.improvement_potential import PassRate, stage_questions
from azr_jax.curricula.stages import CurriculumStages

TWENTY = [PassRate(correct, 20) for correct in range(21)]


def test_groups_of_twenty_responses_match_the_paper():
  groups = improvement_potential.group_by_thresholds(TWENTY)
  by_group = {g: [k for k in range(21) if groups[k] == g] for g in (1, 2, 3, 4)}
  assert by_group == {
    1: list(range(4, 17)),
    2: [3, 17],
    3: [2, 18],
    4: [0, 1, 19, 20],
  }
  assert TWENTY[4].potential == pytest.approx(0.64)


def test_groups_of_equal_size_have_the_same_tasks():
  """R1-CI, figure 14: ranges [0.64, 1], [0.48, 0.64) and [0.32, 0.48)."""
  counts = {"a": [10] * 5 + [3] * 3 + [2] * 4, "b": [8] + [17] * 6 + [18] * 2}
  counts["c"] = [10, 10, 0, 20]  # It has no question of groups 2 and 3.
  tasks = [task for task, values in counts.items() for _ in values]
  rates = [PassRate(k, 20) for values in counts.values() for k in values]
  ranges = {1: (0.64, 1.0), 2: (0.48, 0.63), 3: (0.32, 0.47)}
  seen = set()
  for group, (low, high) in ranges.items():
    chosen = improvement_potential.equal_group(rates, tasks, group, seed=0)
    assert [tasks[i] for i in chosen] == ["a"] * 3 + ["b"]
    assert all(low <= rates[i].potential <= high for i in chosen)
    assert not seen & {*chosen}
    seen |= {*chosen}
  draws = {
    tuple(improvement_potential.equal_group(rates, tasks, 1, seed))
    for seed in range(9)
  }
  assert len(draws) > 1  # Not always the first of a task.


@given(st.lists(st.integers(0, 20), min_size=4, max_size=60), st.integers(0, 9))
def test_quantiles_are_of_equal_size_and_in_order(counts, seed):
  keys = [PassRate(k, 20).potential for k in counts]
  groups = improvement_potential.group_by_quantiles(keys, seed)
  sizes = [groups.count(g) for g in (1, 2, 3, 4)]
  assert max(sizes) - min(sizes) <= 1
  for group, key in zip(groups, keys, strict=True):
    assert all(
      key >= other_key
      for other_group, other_key in zip(groups, keys, strict=True)
      if other_group > group
    )
  assert groups == improvement_potential.group_by_quantiles(keys, seed)


@pytest.mark.parametrize(
  "curriculum, sizes",
  [
    ("potential", [13, 15, 17, 21]),
    ("potential_alone", [13, 2, 2, 4]),
    ("online_merge", [13, 15, 17, 21]),
    ("online_unmerge", [13, 2, 2, 4]),
  ],
)
def test_each_stage_has_the_questions_of_its_curriculum(curriculum, sizes):
  groups = improvement_potential.make_groups(
    TWENTY, curriculum, "thresholds", 0
  )
  stages = [
    stage_questions(groups, curriculum, stage) for stage in (1, 2, 3, 4)
  ]
  assert [len(questions) for questions in stages] == sizes
  groups = improvement_potential.make_groups(TWENTY, "none", "thresholds", 0)
  assert stage_questions(groups, "none", 1) == list(range(21))


def test_difficulty_begins_with_the_easiest():
  groups = improvement_potential.make_groups(
    TWENTY, "difficulty", "quantiles", 0
  )
  assert groups[20] == 1 and groups[0] == 4
  assert groups == sorted(groups, reverse=True)
  with pytest.raises(ValueError, match="expected grouping='quantiles'"):
    improvement_potential.make_groups(TWENTY, "difficulty", "thresholds", 0)
  with pytest.raises(ValueError, match="curriculum='hardest'"):
    improvement_potential.make_groups(TWENTY, "hardest", "quantiles", 0)


def test_stages_have_equal_lengths_and_the_last_has_no_end():
  stages = [improvement_potential.stage_of(step, 3) for step in range(1, 16)]
  assert stages == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 6


@given(st.integers(1, 30), st.integers(0, 90), st.integers(0, 40))
def test_epochs_hold_every_item_once_and_can_be_resumed_anywhere(
  total, first, count
):
  whole = passes.epoch_indices(3, total, range(200))
  assert (
    passes.epoch_indices(3, total, range(first, first + count))
    == whole[first : first + count]
  )
  for start in range(0, 200 - total, total):
    assert sorted(whole[start : start + total]) == list(range(total))


@pytest.mark.parametrize("curriculum", improvement_potential.CURRICULA)
@pytest.mark.parametrize("min_count", [1, 4])
def test_a_stage_with_too_few_questions_takes_others(curriculum, min_count):
  grouping = "quantiles" if curriculum == "difficulty" else "thresholds"
  for correct in ((10, 10, 10, 0, 0), (0,) * 5, (10, 3, 2, 0, 0)):
    groups = improvement_potential.make_groups(
      [PassRate(count, 20) for count in correct], curriculum, grouping, 0
    )
    for stage in (1, 2, 3, 4):
      questions = stage_questions(groups, curriculum, stage, min_count)
      assert len(questions) >= min_count
  # Earlier groups come first, and no more than needed.
  groups = [1, 1, 2, 3, 4]
  if curriculum in ("potential_alone", "online_unmerge"):
    assert stage_questions(groups, curriculum, 2, 1) == [2]
  if curriculum != "none":
    assert stage_questions(groups, curriculum, 2, 3) == [0, 1, 2]
    assert stage_questions(groups, curriculum, 1, 3) == [0, 1, 2]


def test_stages_work_for_any_items_with_pass_rates():
  puzzles = [f"puzzle {number}" for number in range(6)]
  pass_rates = [PassRate(correct, 20) for correct in (10, 3, 2, 0, 9, 20)]
  first, second = [
    CurriculumStages(
      puzzles,
      rates,
      curriculum="potential",
      grouping="thresholds",
      stage_steps=3,
      seed=1,
    )
    for rates in (pass_rates, None)
  ]
  assert set(first.items_at(1, range(2), 2)) == {0, 4}
  assert set(first.items_at(4, range(3), 3)) == {0, 1, 4}
  assert set(first.items_at(11, range(6), 6)) == set(range(6))
  assert first.metrics(4, "x") == {
    "stage/x/number": 2.0,
    "stage/x/group1": 2.0,
    "stage/x/group2": 1.0,
    "stage/x/group3": 1.0,
    "stage/x/group4": 2.0,
  }
  second.load_state_dict(first.state_dict())
  assert second.items_at(5, range(3), 3) == first.items_at(5, range(3), 3)
  state = first.state_dict()
  state["groups"].pop("puzzle 3")
  with pytest.raises(ValueError, match="lacks 'puzzle 3'"):
    second.load_state_dict(state)
