"""Rewards in a user's file: in processes or the sandbox, single or grouped."""

import contextlib
import dataclasses
import re
import time
from typing import cast

import numpy as np
import pytest
import scripted
from typed import stand_in

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.functions import spec
from azr_jax.rollout.policy import Policy
from azr_jax.systems import dynamic_sampling
from azr_jax.systems.custom import rewards, system
from azr_jax.systems.custom.build import build_rewards
from azr_jax.systems.custom.settings import EXECUTOR, CustomSettings
from azr_jax.tasks.table.reading import Row

FILE = """
import asyncio, fractions, math, time

def right(completion, answer):
  return {"reward": float(completion == answer), "length": len(completion)}

def of_all(prompts, completions, answer, **columns):
  assert len(set(answer)) == 1 and columns["difficulty"] == [3] * len(answer)
  best = max(map(len, completions))
  return [len(one) / best for one in completions]

async def later(completion, prompt):
  await asyncio.sleep(0.01)
  return float(prompt in completion)

def picky(completion):
  if completion == "raise": raise KeyError("answer")
  if completion == "nan": return math.nan
  if completion == "hang": time.sleep(1000)
  if completion == "none": return None
  if completion == "huge": return {"reward": 1.0, "value": 10**400}
  if completion == "large": return -1.7e308
  if completion == "digits": return 10**5000
  if completion == "half": return fractions.Fraction(1, 2)
  return [1, 2] if completion == "list" else 1

def everything(**columns): return len(columns)
def ended(completion, finish_reason, num_tokens=0):
  return num_tokens * (finish_reason == "stop")
def wants(completion, gold): ...
def blind(answer): ...
"""
NUMBERS = "huge", "large", "digits", "half"
ROW = Row("ask", {"prompt": "ask", "answer": "yes", "difficulty": 3})


@pytest.fixture(scope="module")
def file(tmp_path_factory):
  path = tmp_path_factory.mktemp("rewards") / "mine.py"
  path.write_text(FILE)
  return path


def completion(text, reason="stop"):
  ids = np.zeros(len(text), np.int32)
  return types.Completion(
    ids, np.zeros(len(ids), np.float32), ids == 0, reason, text
  )


def grade(made, context, texts, row=ROW):
  """Returns the scores of texts by reward name."""
  completions = [completion(text) for text in texts]
  ones = [made.submit_one(context.jobs, row, one) for one in completions]
  group = made.submit_group(context.jobs, row, completions)
  context.jobs.wait_all()
  return {
    name: [
      (one.result() | {k: v[i] for k, v in group.result().items()})[name]
      for i, one in enumerate(ones)
    ]
    for name in made.names
  }


def settings_of(file, names, **more):
  reward = ",".join(
    f"{weight}*{file}:{name}" for weight, name in (n.split("*") for n in names)
  )
  return CustomSettings(data="x", reward=reward, **more)


def test_a_reward_reads_the_prefill_before_the_response(file, context):
  settings = settings_of(file, ["1*right", "1*of_all"])
  row = dataclasses.replace(ROW, prefill="y")
  made = build_rewards(settings, row.columns)
  try:
    found = grade(made, context, ["es", "yes"], row)
  finally:
    made.close()
  assert [one.value for one in found["right"]] == [1.0, 0.0]
  assert [one.value for one in found["of_all"]] == [0.75, 1.0]
  assert found["right"][0].metrics["length"] == 3


def test_several_forms_with_weights(file, context):
  names = ["1*right", "0.5*of_all", "-2*later", "1*everything", "1*ended"]
  made = build_rewards(settings_of(file, names), ROW.columns)
  try:
    found = grade(made, context, ["yes", "asked!"])
  finally:
    made.close()
  assert made.names == ["right", "of_all", "later", "everything", "ended"]
  assert made.weights == [1.0, 0.5, -2.0, 1.0, 1.0]
  values = {k: [s.value for s in v] for k, v in found.items()}
  assert values == {
    "right": [1.0, 0.0],
    "of_all": [0.5, 1.0],
    "later": [0.0, 1.0],
    "everything": [4.0, 4.0],  # prompt, completion, answer, difficulty
    "ended": [3.0, 6.0],
  }
  assert [s.metrics for s in found["right"]] == [{"length": 3}, {"length": 6}]


def test_failures_are_scores_and_other_completions_have_theirs(file, context):
  made = build_rewards(
    settings_of(file, ["1*picky"], timeout_s=1.0), ROW.columns
  )
  texts = ["good", "raise", "hang", "nan", "list", "none", *NUMBERS]
  try:
    begun = time.monotonic()
    found = grade(made, context, texts)["picky"]
  finally:
    made.close()
  assert time.monotonic() - begun < 500
  kinds = ["", "raised", "timeout", "not_finite", "wrong_shape", ""]
  kinds += ["too_large", "too_large", "wrong_type", ""]
  assert [score.failure for score in found] == kinds
  assert [score.value for score in found] == [1.0, *[None] * 8, 0.5]


def test_the_sandbox_gives_the_same_scores(file, context, tmp_path):
  alone = tmp_path / "alone.py"  # The sandbox has no `asyncio`.
  alone.write_text(
    "\ufeff" + FILE.replace("asyncio, ", "").partition("async def")[0]
  )
  with alone.open("a") as more:
    more.write(FILE[FILE.index("def picky") :])
  settings = settings_of(
    alone, ["1*right", "1*of_all", "1*picky"], where="executor"
  )
  made = build_rewards(settings, ROW.columns)
  assert made.processes() == []
  found = grade(made, context, ["yes", "raise", "nan", "list", *NUMBERS])
  assert [s.value for s in found["right"]] == [1.0, *[0.0] * 7]
  assert [s.value for s in found["of_all"]][:4] == [0.5, 5 / 6, 0.5, 4 / 6]
  kinds = [s.failure for s in found["picky"]]
  assert kinds[:4] == ["", "raised", "not_finite", "wrong_shape"]
  # More than 4,300 digits: Python raises when writing JSON.
  assert kinds[4:] == ["too_large", "too_large", "raised", ""]
  assert found["picky"][-1].value == 0.5
  assert found["picky"][1].message == "KeyError in the sandbox"


@pytest.mark.parametrize(
  "names, more, message",
  [
    (["1*wants"], {}, "wants takes 'gold': expected some of .*'answer'"),
    (["1*blind"], {}, "blind takes ['answer']: expected 'completion' or"),
    (["1*wants"], {"where": "executor"}, "wants takes 'gold'"),
    (["1*later"], {"where": "executor"}, "one of the functions .*'right'"),
    (["1*nobody"], {}, "has no function or class 'nobody'"),
  ],
)
def test_a_reward_that_cannot_work_is_refused_at_the_start(
  file, names, more, message
):
  pattern = re.escape(message).replace(r"\.\*", ".*")
  with pytest.raises(ValueError, match=pattern) as refusal:
    build_rewards(settings_of(file, names, **more), ROW.columns)
  assert "\n" not in str(refusal.value)


def test_a_text_names_rewards_and_weights():
  parts = rewards.parse("a/b.py:f, 0.1*pkg.mod:g,-2 * judge,c.py:f")
  assert [(p.name, p.spec, p.weight) for p in parts] == [
    ("f", "a/b.py:f", 1.0),
    ("g", "pkg.mod:g", 0.1),
    ("judge", "judge", -2.0),
    ("f_2", "c.py:f", 1.0),
  ]
  for wrong in ("", " , ", "f", "x*a.py:f", "a.py"):
    with pytest.raises(Invalid, match="expected .*FILE.py:NAME"):
      rewards.parse(wrong)
  with pytest.raises(Invalid, match="expected weights of at most 1e.15"):
    rewards.parse("1e999*a.py:f")


class Refusing(scripted.Policy):
  """Rejects every prompt as too long."""

  def prompt(self, text, task=None, question=""):
    return types.Prompt(text, (1,), task)

  def fits(self, prompt):
    return False


def test_data_without_a_usable_row_are_refused_in_one_line(
  file, context, tmp_path
):
  data = tmp_path / "rows.csv"
  data.write_text("prompt,answer\n1 + 2,3\n3 + 4,7\n")
  settings = CustomSettings(
    data=str(data),
    reward=f"{file}:right",
    prompts=1,
    eval_fraction=0.5,
    chat="off",
  )
  made = system.Custom.build(settings, context)
  with contextlib.closing(made):
    with pytest.raises(ValueError, match="of this step fits .*=.8,.: expected"):
      scripted.collect(made, Refusing(), 1)
    policy = cast(Policy, Refusing())
    with pytest.raises(ValueError, match="of the evaluation's rows fits"):
      policy.loop.run(made.evaluate(policy, 0, 1))
  data.write_text("prompt,answer\n1 + 2,3\n")
  with pytest.raises(ValueError, match="custom.data: 0 rows to train on"):
    system.Custom.build(settings, context)


def groups_of(*correct):
  """Returns one group; `correct` of each response, None if ungraded."""
  done = completion("yes")
  trajectories = [
    types.Trajectory(
      types.Prompt("", ()),
      done,
      0.5,
      0,
      {"reward_f": 0.5} if one is None else {"correct": one},
    )
    for one in correct
  ]
  group = dynamic_sampling.Group(0, trajectories)
  return dynamic_sampling.Groups([[group]], max_prompts=1)


def test_what_no_reward_grades_is_incorrect_beside_what_one_grades():
  given = groups_of(1.0, None)
  [group] = system.complete_grades(given).kept
  assert [dict(t.metrics) for t in group.trajectories] == [
    {"correct": 1.0},
    {"reward_f": 0.5, "correct": 0.0},
  ]
  # The input trajectories have not changed.
  assert given.kept[0].trajectories[1].metrics == {"reward_f": 0.5}
  ungraded = groups_of(None, None)
  assert system.complete_grades(ungraded) == ungraded


def test_functions_that_were_passed_are_found_by_name(context):
  secret = 3.0
  given = {"f": spec.given(lambda completion: secret * len(completion), "f")}
  settings = CustomSettings(data="x", reward="0.5*given:f")
  made = build_rewards(settings, ROW.columns, given)
  try:
    assert [s.value for s in grade(made, context, ["ab"])["f"]] == [6.0]
  finally:
    made.close()
  with pytest.raises(Invalid, match="'given:f' was passed to azr_jax.api"):
    build_rewards(settings, ROW.columns)


def test_rewards_with_jobs_of_their_own_report_their_waits(context):
  settings = CustomSettings(data="x", reward="y", prompts=1)
  made = stand_in(rewards.Rewards)
  own = system.Custom(settings, context, [ROW], [], made)
  waits = {"time/verdict_wait", "time/verdict_early_fraction"}
  assert own._job_metrics().keys() == waits
  settings = dataclasses.replace(settings, where=EXECUTOR)
  shared = system.Custom(settings, context, [ROW], [], made)
  assert shared._job_metrics() == {}
