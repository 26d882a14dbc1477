"""Seeding: rounds of B prompts, resume after a kill, reuse of seed files."""

import copy
import dataclasses
import json

import pytest
import scripted
from scripted_azr import (
  PROMPT_BUILDER,
  ScriptedPolicy,
  answer,
  proposer,
  settings,
)
from typed import instance_of

from azr_jax.run.records import Records
from azr_jax.systems.azr import seeding
from azr_jax.systems.azr.system import AZR
from azr_jax.tasks.programs import buffer as buffer_lib
from azr_jax.tasks.programs.seed_files import TRIPLETS
from azr_jax.tasks.programs.task import ZERO_TRIPLET, InductionTask, Triplet

CHOSEN = dict(prompts=2, seed_factor=3, seed_rounds=20)


class Killed(Exception):
  """Simulates a kill of the process."""


class Numbered(ScriptedPolicy):
  """Derives proposals from its branch, as a policy does from its random key."""

  def __init__(self, dies_before=None):
    super().__init__()
    self.rounds = []
    self.dies_before = dies_before

  def branch(self, *numbers):
    if numbers == self.dies_before:
      raise Killed
    self.rounds.append(numbers)
    other = copy.copy(self)  # The branch shares the lists.
    other.made = 1000 * numbers[0] + 10 * numbers[1]
    return other


@pytest.fixture
def keeping(context, tmp_path):
  return dataclasses.replace(
    context, records=Records(tmp_path / "run", context.hosts)
  )


def seed(context, policy, run_seed=0, **changes):
  """Returns the filled buffers of all task types."""
  chosen = settings(**CHOSEN | changes)
  buffers = {t: buffer_lib.TaskBuffer(50) for t in chosen.task_types}
  seeds = seeding.Seeding(
    policy,
    dataclasses.replace(context, seed=run_seed),
    proposer(**CHOSEN | changes),
    PROMPT_BUILDER,
    task_types=chosen.task_types,
    prompts=chosen.prompts,
    target=chosen.seed_target,
    max_rounds=chosen.seed_rounds,
    file=chosen.appendix.seeds,
  )
  policy.loop.run(seeds.fill(buffers))
  return {name: buffer.tasks() for name, buffer in buffers.items()}


def test_rounds_of_b_prompts_show_the_seeds_so_far(context):
  policy, said = Numbered(), []
  seeds = seed(dataclasses.replace(context, say=said.append), policy)
  assert len(said) == 6
  assert said[2] == f"seeding: 6 of 6 {TRIPLETS} after round 3"
  assert {name: len(tasks) for name, tasks in seeds.items()} == {
    "deduction": 6,
    "abduction": 6,
    "induction": 6,
  }
  assert seeds["deduction"] == seeds["abduction"]
  marks = "predict output", "predict input", "a message"
  kinds = [next(m for m in marks if m in p.text) for p in policy.asked]
  assert kinds == [marks[kind] for kind in (0, 0, 1, 1, 0, 0, 2, 2, 2, 2, 2, 2)]
  # The first round has no seeds; later rounds show earlier seeds.
  programs = [task.code for task in seeds["deduction"]]
  for index, prompt in enumerate(policy.asked[:6]):
    shown = prompt.task.references
    known = programs[: index // 2 * 2] or [ZERO_TRIPLET.code]
    assert set(shown) <= set(known)


def test_a_killed_seeding_goes_on_with_its_next_round(context, keeping):
  want = seed(context, Numbered())
  for dies_before in ((0, 2), (2, 1)):
    with pytest.raises(Killed):
      seed(keeping, Numbered(dies_before))
  policy = Numbered()
  assert seed(keeping, policy) == want
  assert policy.rounds == [(2, 1), (2, 2)]
  # All seeds are written by now.
  policy = Numbered()
  assert seed(keeping, policy) == want and not policy.rounds


def test_a_run_starts_from_the_seeds_of_another(context, keeping, tmp_path):
  want = seed(keeping, Numbered())
  path = tmp_path / "run/records/seeds.jsonl"
  policy = Numbered()
  got = seed(context, policy, seeds=str(path))
  assert not policy.rounds
  for name, tasks in want.items():
    assert set(got[name]) == set(tasks)
  # A smaller run uses a part; a larger one samples more.
  assert set(
    seed(context, policy, seeds=str(path), seed_factor=1)["deduction"]
  ) < set(want["deduction"])
  assert not policy.rounds
  seed(context, policy, seeds=str(path), seed_factor=4)
  assert policy.rounds
  # Induction seeds with another number of cases are not used.
  four = [len(instance_of(InductionTask, t).inputs) for t in got["induction"]]
  assert set(four) == {4}


def test_errors_are_read_as_errors(context, keeping, tmp_path):
  class Failing(Numbered):
    def reply(self, prompt, sample):
      if "predict error" not in prompt.text:
        return super().reply(prompt, sample)
      self.made += 1
      code = f"def f(x):\n  return {self.made} // x"
      return answer(("python", code), ("input", "0"))

  types = ("error_deduction", "deduction")
  want = seed(keeping, Failing(), task_types=types)
  path = tmp_path / "run/records/seeds.jsonl"
  policy = Failing()
  got = seed(context, policy, task_types=types, seeds=str(path))
  assert not policy.rounds
  errors = got["error_deduction"]
  assert set(errors) == set(want["error_deduction"])
  assert {instance_of(Triplet, t).output for t in errors} == {
    "ZeroDivisionError"
  }


def test_a_file_is_shuffled_by_the_seed(context, tmp_path):
  path = tmp_path / "programs.jsonl"
  rows = [
    {"code": f"def f(x):\n  return x + {i}", "input": "1"} for i in range(30)
  ]
  path.write_text("\n".join(map(json.dumps, rows)))

  def chosen(run_seed):
    seeds = seed(context, Numbered(), run_seed, seeds=str(path))
    return [task.code for task in seeds["deduction"]]

  first = chosen(0)
  assert first == chosen(0) != chosen(1)
  assert set(first) != {row["code"] for row in rows[:6]}


def test_a_file_of_other_tasks_is_refused(context, tmp_path):
  path = tmp_path / "programs.jsonl"
  path.write_text('{"code": "def f(x):\\n  return x", "input": "1"}')
  with pytest.raises(ValueError, match="expected records of errors"):
    seed(context, Numbered(), task_types=("error_deduction",), seeds=str(path))


def test_seeding_leaves_the_samples_of_the_step_as_they_are(context, keeping):
  """A run that is killed after seeding repeats its first step exactly."""
  calls = []

  class Counting(Numbered):
    @scripted.samples
    def sample(self, asked, n=1, prompt_numbers=None, call=0):
      calls.append(len(asked))
      return super().sample(asked, n)

  first = scripted.collect(AZR(settings(**CHOSEN), keeping), Counting(), 1)
  seeding_and_step = len(calls)
  again = scripted.collect(AZR(settings(**CHOSEN), keeping), Counting(), 1)
  step = len(calls) - seeding_and_step
  assert seeding_and_step - step == 6 * CHOSEN["prompts"]
  for one, other in zip(first.trajectories, again.trajectories, strict=True):
    assert one.prompt == other.prompt
    assert one.completion.text == other.completion.text
  metrics = [
    {k: v for k, v in batch.metrics.items() if not k.startswith("time/")}
    for batch in (first, again)
  ]
  assert metrics[0] == metrics[1]
