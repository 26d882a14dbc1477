"""The self-play step with a scripted policy and the real executor."""

import collections
import dataclasses
import json
from typing import cast

import numpy as np
import pytest
import scripted
from scripted_azr import (
  PROMPT_BUILDER,
  SETTINGS,
  TASK_TYPES,
  ScriptedPolicy,
  answer,
  proposer,
  settings,
)
from typed import instance_of, present

from azr_jax.rollout.policy import Policy
from azr_jax.systems.azr import solver
from azr_jax.systems.azr.calls import AZRCall
from azr_jax.systems.azr.system import AZR
from azr_jax.tasks import templates
from azr_jax.tasks.programs import buffer as buffer_lib
from azr_jax.tasks.programs import prompts
from azr_jax.tasks.programs import templates as program_templates
from azr_jax.tasks.programs.task import ZERO_TRIPLET, InductionTask, Triplet


@pytest.fixture
def played(context):
  def episode(steps=1, **changes):
    system = AZR(settings(**changes), context)
    policy = ScriptedPolicy()
    collected = [
      scripted.collect(system, policy, step + 1) for step in range(steps)
    ]
    return system, policy, collected

  return episode


def groups_of(trajectories):
  counts = {}
  for t in trajectories:
    counts[t.group_id] = counts.get(t.group_id, 0) + 1
  return counts


def test_a_step_gives_b_trajectories_per_task_and_role(played):
  _, _, (collected,) = played()
  counts = groups_of(collected.trajectories)
  assert counts == {
    (task_type, role): 2
    for task_type in TASK_TYPES
    for role in ("propose", "solve")
  }


def test_half_solved_proposals_earn_learnability(played):
  _, _, (collected,) = played()
  for t in collected.trajectories:
    if t.group_id[1] == "propose":
      assert t.reward == 0.5  # 1 - 2/4
      assert not t.reference
    else:
      assert t.reward == 1.0
      # Tasks of other types have other right answers, too.
      is_only = t.group_id[0] == "deduction"
      assert t.reference == (t.prompt.task.output if is_only else "")
    assert not t.feedback
  assert collected.metrics["learnability/azr/induction/mean"] == 0.5
  histogram = [
    collected.metrics[f"learnability/azr/induction/solved_{k}_of_4"]
    for k in range(5)
  ]
  assert histogram == [0, 0, SETTINGS["prompts"], 0, 0]
  assert collected.metrics["proposals/azr/deduction/valid_fraction"] == 1.0


def test_learnability_rollouts_can_be_trained_on(played):
  _, _, (collected,) = played(train_on_learnability=True)
  assert groups_of(collected.trajectories)["deduction", "solve"] == 2 + 2 * 4
  assert collected.metrics["count/azr/deduction/solve"] == 2


def test_buffers_grow_from_the_seeds(played):
  system, _, _ = played(steps=3)
  for buffer in system.buffers.values():
    assert len(buffer) == 2 + 3 * 2
  seeds = system.buffers["deduction"].tasks()[:2]
  assert all("#" not in seed.code for seed in seeds)
  assert "#" in system.buffers["deduction"].tasks()[-1].code


def test_current_tasks_are_solved_in_the_same_step(played):
  system, policy, _ = played()
  prompts = [
    p for p in policy.by_call[AZRCall.SOLVE] if "Find the output" in p.text
  ]
  assert {p.task for p in prompts} == {
    *system.buffers["deduction"].from_step(1)
  }


def test_previous_tasks_are_solved_a_step_later(played):
  system, policy, _ = played(steps=2, solve_from="previous")
  prompts = [
    p for p in policy.by_call[AZRCall.SOLVE] if "Find the output" in p.text
  ]
  assert {p.task for p in prompts[-2:]} == {
    *system.buffers["deduction"].from_step(1)
  }


def test_expressions_are_tasks_and_answers(context):
  class Writer(ScriptedPolicy):
    """Writes the scripted policy's answers as expressions."""

    def reply(self, prompt, sample):
      text = super().reply(prompt, sample)
      for number in range(4):
        text = text.replace(
          f"```input\n{number}\n", f"```input\n10 * {number} // 10\n"
        )
      return text

  system, policy = AZR(settings(), context), Writer()
  collected = scripted.collect(system, policy, 1)
  for buffer in system.buffers.values():
    for task in buffer.tasks():
      is_triplet = isinstance(task, Triplet)
      inputs = (
        (task.input,) if is_triplet else instance_of(InductionTask, task).inputs
      )
      assert all(text in ("0", "1", "2", "3") for text in inputs)
  assert not any("// 10" in prompt.text for prompt in policy.asked)
  for task_type in TASK_TYPES:
    assert collected.metrics[f"proposals/azr/{task_type}/valid_fraction"] == 1.0
    rate = collected.metrics[f"learnability/azr/{task_type}/solve_rate"]
    assert rate == 0.5


@pytest.mark.parametrize("answer_format", ["fenced", "published_code"])
def test_computed_outputs_are_right_by_the_published_rules_only(
  context, answer_format
):
  class Lazy(ScriptedPolicy):
    """Answers deduction tasks with expressions that compute the output."""

    def reply(self, prompt, sample):
      text = super().reply(prompt, sample)
      return text.replace("```output\n", "```output\n0 + ").replace(
        "0 + None", "None"
      )

  system = AZR(settings(answer_format=answer_format), context)
  metrics = scripted.collect(system, Lazy(), 1).metrics
  accepted = float(answer_format == "published_code")
  name = "azr/deduction"
  assert metrics[f"learnability/{name}/solve_rate"] == 0.5 * accepted
  assert metrics[f"correct/{name}/solve/mean"] == accepted
  assert metrics[f"correct/{name}/solve/computed_fraction"] == 1.0
  assert metrics["correct/azr/abduction/solve/mean"] == 1.0


def test_the_solver_never_sees_the_answer(played):
  _, policy, _ = played()
  for prompt in policy.asked:
    if "Find the output" in prompt.text:
      assert prompts.fence("output", prompt.task.output) not in prompt.text
    if "Write the program" in prompt.text:
      assert prompt.text.count("```input") == 2
      assert prompt.task.code not in prompt.text


def test_state_goes_through_json_and_continues_alike(played, context):
  system, _, _ = played(steps=2)
  other = AZR(settings(), context)
  other.load_state_dict(json.loads(json.dumps(system.state_dict())))
  for name, buffer in system.buffers.items():
    assert other.buffers[name].tasks() == buffer.tasks()


class Mute(ScriptedPolicy):
  """Proposes and solves nothing."""

  def reply(self, prompt, sample):
    return "nothing"


def test_a_model_that_cannot_propose_starts_from_the_zero_triplet(context):
  system = AZR(settings(), context)
  collected = scripted.collect(system, Mute(), 1)
  rewards = {t.reward for t in collected.trajectories}
  assert rewards == {-1.0}
  for t in collected.trajectories:
    expected = {"propose": "parts that were asked", "solve": "no final answer"}
    assert expected[t.group_id[1]] in t.feedback
  assert len(system.buffers["deduction"]) == 1
  metrics = collected.metrics
  assert metrics["proposals/azr/deduction/rejected_format"] == 2


def test_prompts_state_the_limits_of_the_executor(context):
  """Proposers see the time limit of validation, solvers that of grading."""
  limits = dataclasses.replace(
    context.sandbox, timeout_s=7.0, validation_fraction=0.5
  )
  context = dataclasses.replace(context, sandbox=limits)
  system = AZR(settings(prompt_format="full"), context)
  policy = Mute(limit=10_000)
  scripted.collect(system, policy, 1)
  proposing = [p.text for p in policy.asked if "Invent a Python" in p.text]
  assert proposing
  assert all("within 3.5 seconds of CPU time" in text for text in proposing)
  task = InductionTask("", ("1", "2"), ("1", "2"), "same")
  solving = solver.solve_prompt(
    cast(Policy, policy), "induction", task, system._prompt_builder
  )
  assert "within 7 seconds of CPU time" in solving.text


class LongOutputs(ScriptedPolicy):
  """Proposes programs whose output is far longer than their input."""

  def reply(self, prompt, sample):
    if "predict output" in prompt.text:
      self.made += 1
      code = f"def f(x):\n  return 'y' * (500 + x + {self.made})"
      return answer(("python", code), ("input", "1"))
    return super().reply(prompt, sample)


def test_a_seed_enters_only_the_buffers_whose_solver_it_fits(context):
  system = AZR(settings(), context)
  policy = LongOutputs(limit=450)
  scripted.collect(system, policy, 1)
  for name, buffer in system.buffers.items():
    for task in buffer.tasks():
      prompt = solver.solve_prompt(
        cast(Policy, policy), name, task, PROMPT_BUILDER
      )
      assert policy.fits(prompt)
  tasks = system.buffers["deduction"].tasks()
  outputs = [instance_of(Triplet, task).output for task in tasks]
  assert any(len(output) > 450 for output in outputs)


def test_no_program_that_fits_leaves_the_zero_triplet(context):
  buffer = buffer_lib.TaskBuffer(50)
  long_code = "def f(x):\n  return x" + " + 1" * 200
  buffer.add(Triplet(long_code, "1", "201"), 0)
  prompt = proposer().prompt(
    cast(Policy, ScriptedPolicy(limit=300)),
    "induction",
    {"deduction": buffer},
    np.random.default_rng(0),
  )
  assert prompt.task.program == ZERO_TRIPLET.code


class Repeating(ScriptedPolicy):
  """Proposes the same program each time, with different names."""

  def reply(self, prompt, sample):
    if "New program" in prompt.text:
      self.made += 1
      name = f"x{self.made}"
      code = f"def f({name}):\n  return {name} + 7"
      return answer(("python", code), ("input", "1"))
    return super().reply(prompt, sample)


@pytest.mark.parametrize("duplicates, sizes", [("keep", 4), ("reject", 1)])
def test_programs_alike_but_for_names_are_duplicates(
  context, duplicates, sizes
):
  system = AZR(settings(duplicates=duplicates), context)
  for buffer in system.buffers.values():
    buffer.add(ZERO_TRIPLET, 0)  # Not empty, so there is no seeding.
  policy = Repeating()
  first = scripted.collect(system, policy, 1).metrics
  second = scripted.collect(system, policy, 2).metrics
  name = "proposals/azr/deduction"
  assert first[f"{name}/duplicate_fraction"] == 0.5
  assert second[f"{name}/duplicate_fraction"] == 1.0
  assert len(system.buffers["deduction"]) == 1 + sizes
  rejected = second.get(f"{name}/rejected_duplicate", 0.0)
  assert rejected == (2.0 if duplicates == "reject" else 0.0)
  # One of the tasks is the seed, which never counts as fresh.
  fresh = 1 - 1 / (1 + (2 if duplicates == "keep" else 1))
  fraction = first["buffer/azr/deduction/fresh_fraction"]
  assert fraction == pytest.approx(fresh)


def test_answers_tell_the_buffer_what_is_learnable(played):
  system, _, _ = played(steps=2, revisit="potential", evict="learnable")
  entries = system.buffers["deduction"].state_dict()["entries"]
  counts = [entry["num_responses"] for entry in entries]
  # Tasks proposed here have at least their four learnability rollouts.
  assert sum(count >= 4 for count in counts) >= 4
  assert all(
    entry["num_correct"] <= entry["num_responses"] for entry in entries
  )


class Commented(ScriptedPolicy):
  def reply(self, prompt, sample):
    if "New program" in prompt.text:
      code = "y = 2\ndef f(x):\n  # why\n  return x + 1"
      return answer(("python", code), ("input", "1"))
    return super().reply(prompt, sample)


@pytest.mark.parametrize(
  "strip, code",
  [
    ((), "y = 2\ndef f(x):\n  # why\n  return x + 1"),
    (("comments",), "y = 2\n\ndef f(x):\n  return x + 1"),
    (("globals",), "def f(x):\n  return x + 1"),
  ],
)
def test_programs_are_stripped_before_they_become_tasks(context, strip, code):
  system = AZR(settings(strip=strip), context)
  for buffer in system.buffers.values():
    buffer.add(ZERO_TRIPLET, 0)  # Not empty, so there is no seeding.
  scripted.collect(system, Commented(), 1)
  assert system.buffers["deduction"].tasks()[-1].code == code


# (Call, completions per prompt).
PROPOSED = AZRCall.PROPOSE, 1
LEARNED = AZRCall.LEARN, 4
SOLVED = AZRCall.SOLVE, 1


def test_call_numbers_stay_the_same():
  """They are part of random keys and of paused groups in checkpoints."""
  assert list(AZRCall) == [0, 1, 2, 3, 4]
  assert AZRCall.PROPOSE < AZRCall.LEARN < AZRCall.SOLVE < AZRCall.VOTE
  assert json.dumps(AZRCall.SOLVE) == "2"


class Counting(ScriptedPolicy):
  """Counts the prompts of each `sample` call."""

  def __init__(self):
    super().__init__()
    self.streams = collections.Counter()

  @scripted.samples
  def sample(self, asked, n=1, prompt_numbers=None, call=0):
    self.streams[call, n] += len(asked)
    return super().sample(asked, n)


@pytest.mark.parametrize(
  "changes, streams",
  [
    ({}, {PROPOSED, LEARNED, SOLVED}),
    ({"roles": ("solve",)}, {PROPOSED, SOLVED}),
    ({"roles": ("propose",)}, {PROPOSED, LEARNED}),
    # The buffers select by the pass rates of all rollouts.
    (
      {"roles": ("solve",), "evict": "learnable"},
      {PROPOSED, LEARNED, SOLVED},
    ),
    (
      {"roles": ("propose",), "revisit": "adaptive"},
      {PROPOSED, LEARNED, SOLVED},
    ),
    (
      {"roles": ("solve",), "train_on_learnability": True},
      {PROPOSED, LEARNED, SOLVED},
    ),
  ],
)
def test_nothing_is_sampled_that_is_thrown_away(context, changes, streams):
  chosen = settings(**changes)
  system, policy = AZR(chosen, context), Counting()
  for buffer in system.buffers.values():
    buffer.add(ZERO_TRIPLET, 0)  # Not empty, so there is no seeding.
  collected = scripted.collect(system, policy, 1)
  assert policy.streams == dict.fromkeys(streams, 6)
  load = present(AZR.about(chosen).load)
  assert load.sequences == sum(6 * n for _, n in streams)
  assert load.prompts == 6 * len(streams)
  assert load.trained == len(collected.trajectories)
  roles = {t.group_id[1] for t in collected.trajectories}
  assert roles == set(chosen.roles)


def test_formats_of_all_replies_are_counted(context):
  class Careless(ScriptedPolicy):
    """Adds text after the answer of its first proposal and of some rollouts."""

    def reply(self, prompt, sample):
      text = super().reply(prompt, sample)
      is_first = "predict output" in prompt.text and self.made % 2
      return f"{text}!" if is_first or sample == 3 else text

  system, policy = AZR(settings(), context), Careless()
  for buffer in system.buffers.values():
    buffer.add(ZERO_TRIPLET, 0)
  metrics = scripted.collect(system, policy, 1).metrics
  name = "azr/deduction"
  # One task is valid, but its response is malformed and earns -1.
  assert metrics[f"proposals/{name}/valid_fraction"] == 0.5
  assert metrics[f"proposals/{name}/task_fraction"] == 1.0
  assert metrics[f"formatted/{name}/propose/mean"] == 0.5
  assert metrics[f"formatted/{name}/learnability/mean"] == 0.75
  assert metrics[f"formatted/{name}/solve/mean"] == 1.0
  assert metrics[f"count/{name}/learnability"] == 4
  # Responses of the role that does not train are counted too.
  system = AZR(settings(roles=("solve",)), context)
  metrics = scripted.collect(system, Careless(), 1).metrics
  assert metrics[f"formatted/{name}/propose/mean"] == 0.5
  assert f"reward/{name}/propose/mean" not in metrics


def test_fillers_are_never_tasks_of_the_step(context):
  """AZR, 3.3.2: the batch is filled with previously validated tasks."""

  class Half(ScriptedPolicy):
    def reply(self, prompt, sample):
      text = super().reply(prompt, sample)
      return "" if "New program" in prompt.text and self.made % 2 else text

  system, policy = AZR(settings(prompts=8), context), Half()
  for buffer in system.buffers.values():
    buffer.add(ZERO_TRIPLET, 0)
  scripted.collect(system, policy, 1)
  prompts = [
    p for p in policy.by_call[AZRCall.SOLVE] if "Find the output" in p.text
  ]
  fresh = system.buffers["deduction"].from_step(1)
  assert len(fresh) == 4
  solved = collections.Counter(prompt.task for prompt in prompts)
  assert solved == collections.Counter(fresh + [ZERO_TRIPLET] * 4)


@pytest.mark.parametrize(
  "name, aggregation, intrinsic_for, expected",
  [
    ("answer_diversity", "sum", "valid", 1.0),  # 1 - 2/4, and 1 - 1/2
    ("surprise", "sum", "valid", 1.5),  # No answers before this step.
    ("surprise", "plus_product", "learnable", 1.5),
    ("surprise", "times_sum", "valid", 0.5),
  ],
)
def test_intrinsic_rewards_reach_the_proposer(
  context, name, aggregation, intrinsic_for, expected
):
  chosen = settings(
    intrinsic=(name,),
    intrinsic_weights=(1.0,),
    aggregation=aggregation,
    intrinsic_for=intrinsic_for,
  )
  collected = scripted.collect(AZR(chosen, context), ScriptedPolicy(), 1)
  rewards = [
    t.reward
    for t in collected.trajectories
    if t.group_id == ("deduction", "propose")
  ]
  assert rewards == [expected, expected]


class Perfect(ScriptedPolicy):
  """Solves everything, so eq. 4 gives 0."""

  def reply(self, prompt, sample):
    return super().reply(prompt, 0)


@pytest.mark.parametrize(
  "aggregation, intrinsic_for, expected",
  [
    ("sum", "valid", 0.5),  # eq. 11
    ("times_sum", "valid", 0.0),  # eq. 12
    ("times_product", "valid", 0.0),  # eq. 13
    ("plus_product", "valid", 0.5),  # eq. 14
    ("sum", "learnable", 0.0),
    ("plus_product", "learnable", 0.0),
  ],
)
def test_intrinsic_rewards_where_eq_4_is_0(
  context, aggregation, intrinsic_for, expected
):
  chosen = settings(
    intrinsic=("surprise",),
    intrinsic_weights=(0.5,),
    aggregation=aggregation,
    intrinsic_for=intrinsic_for,
  )
  collected = scripted.collect(AZR(chosen, context), Perfect(), 1)
  for t in collected.trajectories:
    if t.group_id[1] == "propose":
      assert t.reward == expected


LEETCODE = {
  "prompt": "import random\nfrom typing import *\nimport math\n\n",
  "completion": (
    "class Solution:\n  def add(self, a: List[int], b: List[int]) -> List[int]:"
    "\n    return a + b\n"
  ),
  "entry_point": "Solution().add",
  "input_output": [{"input": "a = [1], b = [2]", "output": "[1, 2]"}],
}


def test_seeds_come_from_a_file_and_the_model_adds_the_rest(context, tmp_path):
  path = tmp_path / "seeds.jsonl"
  valid = {"code": "def f(x):\n  return x * 9", "input": "3"}
  broken = {"code": "def f(x):\n  return 1 / 0", "input": "3"}
  rows = [valid, broken, valid, LEETCODE]
  path.write_text("\n".join(map(json.dumps, rows)))
  chosen = settings(seeds=str(path), seed_factor=2)
  system = AZR(chosen, context)
  scripted.collect(system, ScriptedPolicy(), 1)
  *of_file, proposed = system.buffers["deduction"].tasks()[:3]
  # A file's seeds come in random order.
  program, method = sorted(of_file, key=lambda task: len(task.code))
  assert program == Triplet("def f(x):\n  return x * 9", "3", "27")
  method = instance_of(Triplet, method)
  assert "Solution().add" in method.code and method.output == "[1, 2]"
  assert "return x + " in proposed.code  # The policy proposed it.
  path.write_text('{"text": "x"}')
  system = AZR(chosen, context)
  with pytest.raises(ValueError, match="record 0.*expected code and input"):
    scripted.collect(system, ScriptedPolicy(), 1)


def test_a_run_with_templates_uses_no_other_prompt_text(context, tmp_path):
  (tmp_path / "frame.txt").write_text("{TASK_INSTRUCTION} New words <think>")
  for role in ("propose", "solve"):
    name = f"{role}_deduction"
    required = program_templates.FILES[name].required
    text = " ".join(f"{{{one}}}" for one in required)
    (tmp_path / f"{name}.txt").write_text(text)
  chosen = settings(task_types=("deduction",))
  needed = AZR.prompt_files(chosen)
  read = templates.read(str(tmp_path), needed)
  read.require(needed)
  policy = Mute()
  system = AZR(chosen, dataclasses.replace(context, templates=read))
  scripted.collect(system, policy, 1)
  assert all(p.text.endswith(" New words <think>") for p in policy.asked)
