"""Runs that solve another run's tasks, and random labels."""

import collections
import dataclasses
import json

import pytest
import scripted
from scripted_azr import ScriptedPolicy, settings

from azr_jax.config.settings import Invalid
from azr_jax.run.records import Records
from azr_jax.systems.azr.system import AZR


def play(context, folder, steps=2, **changes):
  """Returns a run's batches, a step each."""
  records = Records(folder, context.hosts)
  run = dataclasses.replace(context, records=records, steps=steps)
  system, policy = AZR(settings(**changes), run), ScriptedPolicy()
  return [scripted.collect(system, policy, 1 + n) for n in range(steps)]


def of_role(batch, role):
  return [t for t in batch.trajectories if t.group_id[1] == role]


def solved(batch):
  """Returns the (type, task) pairs that a step solved, in order."""
  return [(t.group_id[0], t.prompt.task) for t in of_role(batch, "solve")]


def test_a_yoked_run_proposes_and_solves_the_tasks_of_the_other(
  context, tmp_path
):
  live = play(context, tmp_path / "live")
  # The scripted policy proposes the same tasks in each run, so these are moved.
  folder = tmp_path / "live/records/tasks"
  (folder / "000001.jsonl").rename(folder / "x")
  (folder / "000002.jsonl").rename(folder / "000001.jsonl")
  (folder / "x").rename(folder / "000002.jsonl")
  run = str(tmp_path / "live")
  batches = play(context, tmp_path / "yoked", yoked_to=run)
  assert [*map(solved, batches)] == [solved(live[1]), solved(live[0])]
  assert solved(live[0]) != solved(live[1])
  for one, source in zip(batches, live, strict=True):
    proposed = [t.prompt.text for t in of_role(one, "propose")]
    assert proposed == [t.prompt.text for t in of_role(source, "propose")]
  # A yoked run can be a source, too. It may have fewer types and prompts.
  again = play(context, tmp_path / "again", yoked_to=str(tmp_path / "yoked"))
  assert [*map(solved, again)] == [*map(solved, batches)]
  more = play(context, tmp_path / "more", yoked_to=run, prompts=3)
  assert [*map(solved, more)] == [*map(solved, batches)]
  assert len(of_role(more[0], "propose")) == 9


def test_a_run_whose_tasks_cannot_be_solved_is_refused(context, tmp_path):
  live = tmp_path / "live"
  play(context, live, steps=1)
  yoked = {"steps": 1, "yoked_to": str(live)}
  with pytest.raises(ValueError, match=r"tasks/000002.jsonl has no .*2 steps"):
    play(context, tmp_path / "a", **yoked | {"steps": 2})
  with pytest.raises(ValueError, match="6 tasks .* expected .*'deduction'"):
    play(context, tmp_path / "b", **yoked, task_types=("deduction",))
  with pytest.raises(ValueError, match=r"at most azr.prompts=1 of each"):
    play(context, tmp_path / "c", **yoked, prompts=1)
  path = live / "records/tasks/000001.jsonl"
  first = json.loads(path.read_text().splitlines()[0])
  path.write_text(json.dumps(first | {"task": 1}))
  with pytest.raises(ValueError, match="000001.jsonl: expected tasks"):
    play(context, tmp_path / "d", **yoked)
  path.write_text(json.dumps(first | {"task": first["task"] | {"output": ""}}))
  with pytest.raises(ValueError, match="unverified_fraction=0"):
    play(context, tmp_path / "e", **yoked)
  long = first["task"] | {"input": "1" * 100_000}
  path.write_text(json.dumps(first | {"task": long}))
  with pytest.raises(ValueError, match="a task of step 1 has a prompt of"):
    play(context, tmp_path / "f", **yoked)


@pytest.mark.parametrize(
  "changes, words",
  [
    ({"yoked_to": "run", "train_on_learnability": True}, "with yoked_to"),
    ({"yoked_to": "run", "unverified_fraction": 0.1}, "with yoked_to"),
    ({"yoked_to": "run", "labels": "majority"}, "with yoked_to"),
    ({"labels": "random", "unverified_fraction": 0.1}, "with labels='random'"),
    ({"labels": "random", "revisit": "adaptive"}, "whose rates are random"),
  ],
)
def test_what_would_undo_a_control_is_refused(changes, words):
  with pytest.raises(Invalid, match=words):
    settings(**changes)


def test_random_labels_are_right_half_of_the_time(context, tmp_path):
  found = []
  for seed in (0, 0, 1):
    seeded = dataclasses.replace(context, seed=seed)
    [batch] = play(
      *(seeded, tmp_path / "a", 1),
      prompts=64,
      task_types=("deduction",),
      labels="random",
      train_on_learnability=True,
    )
    found.append([t.reward for t in of_role(batch, "solve")])
    counts = collections.Counter(found[-1])
    # A solution and four rollouts of 64 tasks; six standard deviations.
    assert {*counts} == {1.0, -0.5} and len(found[-1]) == 320
    assert abs(counts[1.0] - 160) < 54
    # The executor's grades: half of the rollouts are right, so 1 - 2/4.
    rewards = [t.reward for t in of_role(batch, "propose")]
    assert rewards == [0.5] * 64
    # All solutions and half of the rollouts are right: 60 % of all.
    gap = batch.metrics["labels/azr/deduction/gap"]
    assert gap == pytest.approx(counts[1.0] / 320 - 0.6)
  assert found[0] == found[1] != found[2]
