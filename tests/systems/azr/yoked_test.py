"""Runs that solve another run's tasks, and random labels."""

import collections
import dataclasses
import json

import numpy as np
import pytest
import scripted
from scripted_azr import ScriptedPolicy, settings

from azr_jax.config.settings import Invalid
from azr_jax.run.records import Records
from azr_jax.systems.azr.calls import AZRCall
from azr_jax.systems.azr.system import AZR


def play(context, folder, steps=2, **changes):
  """Returns a run's trajectories per step, and its policy."""
  records = Records(folder, context.hosts)
  system = AZR(
    settings(**changes), dataclasses.replace(context, records=records)
  )
  policy = ScriptedPolicy()
  batches = [scripted.collect(system, policy, 1 + n) for n in range(steps)]
  return batches, policy


def solved(batch):
  """Returns the (type, task) pairs that a step solved, in order."""
  return [
    (t.group_id[0], t.prompt.task)
    for t in batch.trajectories
    if t.group_id[1] == "solve"
  ]


def yoked(folder, **changes):
  return {"yoked_to": str(folder), "roles": ("solve",), **changes}


def test_a_yoked_run_solves_the_same_tasks_and_proposes_none(context, tmp_path):
  live, _ = play(context, tmp_path / "live")
  batches, policy = play(context, tmp_path / "a", **yoked(tmp_path / "live"))
  assert {*policy.by_call} == {AZRCall.SOLVE}
  for one, source in zip(batches, live, strict=True):
    assert solved(one) == solved(source) and len(one.trajectories) == 6
    rewards = [
      t.reward for t in source.trajectories if t.group_id[1] != "propose"
    ]
    assert [t.reward for t in one.trajectories] == rewards
  assert batches[0].metrics["correct/azr/induction/solve/mean"] == 1.0
  assert solved(live[0]) != solved(live[1])
  # A yoked run can be a source, too.
  again, _ = play(context, tmp_path / "b", **yoked(tmp_path / "a"))
  assert [*map(solved, again)] == [*map(solved, live)]


def test_a_step_without_usable_tasks_is_refused(context, tmp_path):
  live = tmp_path / "live"
  play(context, live, steps=1)
  with pytest.raises(
    ValueError, match="tasks/000002.jsonl has tasks of .*2 ste"
  ):
    play(context, tmp_path / "a", **yoked(live))
  few = yoked(live, task_types=("deduction",))
  with pytest.raises(ValueError, match="expected tasks of .'deduction'"):
    play(context, tmp_path / "b", steps=1, **few)
  path = live / "records/tasks/000001.jsonl"
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  path.write_text("".join(json.dumps(row | {"task": 1}) for row in rows[:1]))
  with pytest.raises(
    ValueError, match="000001.jsonl: expected tasks of a step"
  ):
    play(context, tmp_path / "c", steps=1, **yoked(live))
  rows[0]["task"]["output"] = ""
  path.write_text(json.dumps(rows[0]))
  with pytest.raises(ValueError, match="unverified_fraction=0"):
    play(context, tmp_path / "d", steps=1, **yoked(live))


@pytest.mark.parametrize(
  "key, value",
  [
    ("roles", ("propose", "solve")),
    ("train_on_learnability", True),
    ("unverified_fraction", 0.1),
    ("labels", "majority"),
  ],
)
def test_a_yoked_run_has_nothing_that_needs_proposals(key, value):
  with pytest.raises(Invalid, match=f"{key}=.*with yoked_to"):
    settings(**yoked("run", **{key: value}))


@pytest.mark.parametrize("is_yoked", [False, True])
def test_random_labels_are_right_half_of_the_time(context, tmp_path, is_yoked):
  changes = {
    "prompts": 64,
    "task_types": ("deduction",),
    "learnability_samples": 1,
  }
  if is_yoked:
    play(context, tmp_path / "live", steps=1, **changes)
    changes |= yoked(tmp_path / "live")
  found = []
  for seed in (0, 0, 1):
    seeded = dataclasses.replace(context, seed=seed)
    [batch], _ = play(
      seeded, tmp_path / "a", steps=1, labels="random", **changes
    )
    solutions = [t for t in batch.trajectories if t.group_id[1] == "solve"]
    found.append([t.reward for t in solutions])
    counts = collections.Counter(found[-1])
    assert {*counts} == {1.0, -0.5}
    # Six standard deviations of 64 fair coins.
    assert abs(counts[1.0] - 32) < 24
    proposed = [t for t in batch.trajectories if t.group_id[1] == "propose"]
    # The executor's grades: all of them are right, so learnability is 0.
    assert all(t.reward == 0 for t in proposed)
  assert found[0] == found[1] != found[2]
  assert np.mean(found[0]) != 1.0
