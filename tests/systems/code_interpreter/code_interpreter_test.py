"""Code Interpreter: rewards, stages and trajectories of conversations."""

import contextlib
import copy
import dataclasses
import json
import types as plain_types
from typing import cast

import jax
import numpy as np
import pytest
import scripted
import training

from azr_jax import types
from azr_jax.curricula.improvement_potential import PassRate
from azr_jax.executor import futures
from azr_jax.grading.gym import grader
from azr_jax.grading.outcome import Outcome
from azr_jax.rollout.policy import Agent
from azr_jax.run.records import Records
from azr_jax.systems.code_interpreter import system as system_lib
from azr_jax.systems.code_interpreter.rewards import parts
from azr_jax.systems.code_interpreter.settings import CodeInterpreterSettings
from azr_jax.systems.code_interpreter.system import CodeInterpreter
from azr_jax.systems.dynamic_sampling import DynamicSamplingSettings
from azr_jax.tasks import templates
from azr_jax.tasks.questions import gym, pass_rates
from azr_jax.tools import code_blocks
from azr_jax.tools.python_tool import PythonTool

training.needs("reasoning_gym", extra="gym")

BLOCK = "```python\nprint(1)\n```"
LAST = "so <<<4>>>"


@pytest.mark.parametrize(
  "replies, finish, correct, total",
  [
    ([LAST], "stop", True, 1.1),
    ([LAST], "stop", False, 0.1),
    (["four"], "stop", False, -0.1),
    ([BLOCK, LAST], "stop", True, 1.1),
    ([BLOCK + " and", LAST], "stop", True, 0.9),
    ([BLOCK] * 5 + [LAST], "stop", True, 1.1),
    ([BLOCK] * 6 + [LAST], "stop", True, 1.0),
    ([BLOCK] * 6 + [BLOCK], "turns", False, -0.2),
    ([LAST], "length", True, 0.9),
  ],
)
def test_the_parts_of_the_reward(replies, finish, correct, total):
  rewards = parts(
    replies,
    finish,
    correct,
    format_reward=0.1,
    turn_penalty=0.1,
    max_turns=6,
  )
  assert set(rewards) == {"correct", "format", "turns"}
  assert sum(rewards.values()) == pytest.approx(total)


class Letters:
  """A tokenizer whose tokens are letters."""

  def encode(self, text):
    return list(map(ord, text))

  def decode(self, ids):
    return "".join(map(chr, ids))


class ScriptedPolicy(scripted.Policy):
  """By sample: answers correctly, with code, wrongly, and not at all."""

  tokenizer = Letters()
  sampler = plain_types.SimpleNamespace(
    settings=plain_types.SimpleNamespace(prompt_buckets=(80,))
  )

  key = jax.random.key(0)
  sampled = plain_types.SimpleNamespace(seconds=0.0)

  def __init__(self, answers):
    self.answers = answers
    self.asked = []
    self.params = {"w": np.ones(3, np.float32)}
    self.first_sample = 0
    self.most_answers = 1000

  @contextlib.contextmanager
  def with_key(self, key, temperature):
    """At 0.2 it answers as the first sample, at 0.4 as the second ..."""
    policy = copy.copy(self)
    policy.first_sample = (0.2, 0.4, 0.6, 0.8).index(temperature)
    yield policy

  def prompt(self, text, task=None, question=""):
    return types.Prompt(text, tuple(self.tokenizer.encode(text)), task)

  def fits(self, prompt):
    return len(prompt.token_ids) < 400

  @scripted.samples
  def sample(self, prompts, n, prompt_numbers=None, tool_runner=None, call=0):
    assert tool_runner == "interpreter"
    for index, prompt in enumerate(prompts):
      if len(self.asked) == self.most_answers:
        raise KeyboardInterrupt
      self.asked.append(prompt.task.id)
      for sample in range(n):
        completion = self.completion(prompt.task, sample + self.first_sample)
        yield index, sample, completion

  def completion(self, question, sample):
    reference = self.answers[question.id]
    turns = [
      (f"<<<{reference}>>>",),
      (
        BLOCK,
        f"{code_blocks.OUTPUT_PREFIX}<<<7>>>{code_blocks.OUTPUT_SUFFIX}",
        f"<<<{reference}>>>",
      ),
      ("<<<zzz>>>",),
      (
        BLOCK,
        f"{code_blocks.OUTPUT_PREFIX}<<<{reference}>>>{code_blocks.OUTPUT_SUFFIX}",
        "hm",
      ),
    ][sample]
    ids = self.tokenizer.encode("".join(turns))
    mask = [turn % 2 == 0 for turn, p in enumerate(turns) for _ in p]
    return types.Completion(
      np.array(ids, np.int32),
      np.zeros(len(ids), np.float32),
      np.array(mask),
      "stop",
      "".join(turns),
    )


class NoInterpreter(str):
  def metrics(self):
    return {"interpreter/calls": 2.0}

  def state_dict(self):
    return {}

  def load_state_dict(self, state):
    assert not state


class Scripted(CodeInterpreter):
  """The system with a scripted tool and agents."""

  def make_tool(self, clock=None):
    return cast(PythonTool, NoInterpreter("interpreter"))

  def make_agents(self) -> dict[str, Agent]:
    def ask(policy, prompts, samples, numbers):
      assert len(numbers) == len(prompts)
      return policy.sample(prompts, samples, tool_runner="interpreter")

    return {"text": ask, "code_agent": ask}


@pytest.fixture(name="make")
def make_system(context):
  questions = gym.make("gcd", 8, 3)
  answers = {q.id: grader.stored_answer(q.reference) for q in questions}

  def make(
    curriculum="none",
    correct=(10,) * 8,
    prompts=2,
    folder=None,
    max_prompts=1,
    templates=None,
  ):
    settings = CodeInterpreterSettings(
      prompts=prompts,
      group_size=4,
      prompt_format="compact",
      pass_rate_temperatures=(0.2, 0.4, 0.6, 0.8),
      pass_rate_agents=("text", "code_agent"),
      curriculum=curriculum,
      pass_rates="" if correct is None else "a file",
      stage_steps=2,
      dynamic_sampling=DynamicSamplingSettings(max_prompts=max_prompts),
    )
    rates = correct and [PassRate(n, 20) for n in correct]
    kept = Records(folder, context.hosts)
    own = dataclasses.replace(context, records=kept, templates=templates)
    system = Scripted(settings, own, questions, rates)
    return system, ScriptedPolicy(answers), questions

  return make


def test_conversations_become_trajectories_with_their_rewards(make):
  system, policy, _ = make()
  collected = scripted.collect(system, policy, 1)
  assert len(collected.trajectories) == 8
  for first in (0, 4):
    rewards = [t.reward for t in collected.trajectories[first : first + 4]]
    # An answer in the tool output does not count.
    assert rewards == pytest.approx([1.1, 1.1, 0.1, -0.1])
    group = collected.trajectories[first : first + 4]
    assert [t.feedback for t in group] == [
      "",
      "",
      "The final answer zzz is wrong.",
      "There is no final answer. The last output of the code was:\n"
      f"<<<{grader.stored_answer(group[3].prompt.task.reference)}>>>",
    ]
    assert all(t.reference in group[3].feedback for t in group)
  metrics = collected.metrics
  assert metrics["correct/code_interpreter/solve/mean"] == 0.5
  assert metrics["correct_by_task/gym/gcd"] == 0.5
  assert metrics["calls/code_interpreter/solve/mean"] == 0.5
  assert metrics["calls/code_interpreter/none_fraction"] == 0.5
  assert metrics["groups/code_interpreter/equal_fraction"] == 0.0
  assert metrics["interpreter/calls"] == 2.0
  groups = {t.group_id for t in collected.trajectories}
  assert len(groups) == 2


def test_questions_are_asked_in_a_user_s_words(make, tmp_path):
  (tmp_path / "question_free.txt").write_text("New words: {QUESTION}")
  needed = CodeInterpreter.prompt_files(CodeInterpreterSettings())
  read = templates.read(str(tmp_path), needed)
  system, policy, questions = make(templates=read)
  collected = scripted.collect(system, policy, 1)
  asked = {t.prompt.text for t in collected.trajectories}
  assert len(asked) == 2
  assert asked <= {f"New words: {one.text}" for one in questions}


def test_questions_that_all_conversations_solve_are_replaced(make):
  (system, policy, questions), (other, again, _) = (
    make(max_prompts=3) for _ in range(2)
  )
  easy = {question.id for question in questions[:6]}
  answer = policy.completion
  for one in (policy, again):
    one.completion = lambda question, sample: answer(
      question, 0 if question.id in easy else sample
    )
  collected = scripted.collect(system, policy, 1)
  assert collected.metrics["dynamic_sampling/code_interpreter/sampled"] == len(
    policy.asked
  )
  assert policy.asked == list(dict.fromkeys(policy.asked))
  kept = {t.prompt.task.id for t in collected.trajectories}
  for place in range(2):
    group = collected.trajectories[4 * place : 4 * place + 4]
    differ = group[0].prompt.task.id not in easy
    assert (len({t.reward for t in group}) > 1) == differ
  dropped = set(policy.asked) - kept
  assert dropped and dropped <= easy
  # A stage has two steps, and the next stage restarts its epochs.
  other.load_state_dict(json.loads(json.dumps(system.state_dict())))
  for step in (2, 3):
    runs = [
      scripted.collect(one, by, step).trajectories
      for one, by in ((system, policy), (other, again))
    ]
    rewards = [[(t.group_id, t.reward) for t in run] for run in runs]
    assert rewards[0] == rewards[1]
  # Verdicts arrive in any order, so only the prompts are compared.
  assert sorted(policy.asked[-len(again.asked) :]) == sorted(again.asked)
  assert system.state_dict() == other.state_dict()
  assert system.state_dict()["order"]["epochs_of"] == 2


def test_a_timeout_is_told_apart_from_a_wrong_answer(make, monkeypatch):
  def submit(executor, task, reference, answer):
    return futures.done(
      Outcome.INCORRECT if answer is None else Outcome.TIMEOUT
    )

  monkeypatch.setattr(system_lib.grading, "submit", submit)
  system, policy, _ = make()
  metrics = scripted.collect(system, policy, 1).metrics
  name = "correct/code_interpreter/solve"
  assert metrics[f"{name}/mean"] == 0.0
  assert metrics[f"{name}/timeout_fraction"] == 0.75
  assert metrics[f"{name}/lost_fraction"] == 0.0
  assert not any(key.startswith(("timed_out", "lost")) for key in metrics)


def questions_of(system, step):
  stages, count = system._stages, system.settings.prompts
  positions = system._order.take(stages.steps_before(step), stages.stage(step))
  return stages.items_at(step, positions, count)


def test_stages_take_their_groups_and_a_resumed_run_the_same_questions(make):
  groups = (4, 1, 2, 1, 3, 1, 2, 4)
  of_group = (None, 10, 3, 2, 0)
  correct = [of_group[group] for group in groups]
  system, _, _ = make("potential", correct)
  turns = [questions_of(system, step) for step in range(1, 12)]
  for step, turn in enumerate(turns, 1):
    stage = min(1 + (step - 1) // 2, 4)
    assert len(turn) == 2 and all(groups[i] <= stage for i in turn)
  assert {i for turn in turns[6:] for i in turn} == set(range(8))
  other, _, _ = make("potential", (10,) * 8)
  other.load_state_dict(system.state_dict())
  assert [questions_of(other, step) for step in range(1, 12)] == turns
  with pytest.raises(ValueError, match="8 questions: expected at least"):
    make("potential", correct, prompts=9)


@pytest.mark.parametrize(
  "curriculum, reads",
  [("none", False), ("online_merge", False), ("potential", True)],
)
def test_only_offline_curricula_read_the_file_of_pass_rates(
  context, tmp_path, curriculum, reads
):
  questions = gym.make("gcd", 8, 0)
  path = tmp_path / "pass_rates.jsonl"
  correct = (10, 10, 0, 0, 0, 0, 0, 0)
  pass_rates.write(path, questions, [PassRate(n, 20) for n in correct])
  settings = CodeInterpreterSettings(
    questions=("gym:gcd",),
    count=8,
    prompts=2,
    curriculum=curriculum,
    pass_rates=str(path),
  )
  system = Scripted.build(settings, context)
  metrics = system._stages.metrics(1, "x")
  assert metrics["stage/x/group1"] == (2 if reads else 8)
  path.unlink()
  if reads:
    with pytest.raises(ValueError, match="there is no such file"):
      Scripted.build(settings, context)
  else:
    Scripted.build(settings, context)


def test_shuffled_pass_rates_keep_the_sizes_of_groups(context, tmp_path):
  questions = gym.make("gcd", 8, 0)
  path = tmp_path / "pass_rates.jsonl"
  correct = (10, 10, 0, 0, 0, 0, 0, 0)
  pass_rates.write(path, questions, [PassRate(n, 20) for n in correct])
  groups = []
  for shuffled in (False, True, True):
    settings = CodeInterpreterSettings(
      questions=("gym:gcd",),
      count=8,
      prompts=2,
      pass_rates=str(path),
      shuffle_pass_rates=shuffled,
    )
    groups.append(Scripted.build(settings, context)._stages.state_dict())
  plain, first, second = (list(state["groups"].values()) for state in groups)
  assert plain[:2] == [1, 1] and first == second != plain
  assert sorted(first) == sorted(plain)
  with pytest.raises(ValueError, match="shuffle_pass_rates"):
    CodeInterpreterSettings(curriculum="none", shuffle_pass_rates=True)


def test_a_run_trains_on_some_tasks_or_on_one_group(context, tmp_path):
  """R1-CI, figures 3 (c, d) and 14."""
  sources = ("gym:gcd", "gym:lcm", "gym:count_bits")
  questions = [one for name in sources for one in gym.make(name[4:], 8, 0)]
  path = tmp_path / "pass_rates.jsonl"
  # Each task has two questions of each of groups 1, 2 and 3, and two others.
  correct = (10, 9, 3, 17, 2, 18, 0, 20) * 3
  pass_rates.write(path, questions, [PassRate(n, 20) for n in correct])

  def tasks_of(prompts=2, **keys):
    settings = CodeInterpreterSettings(
      questions=sources,
      count=8,
      prompts=prompts,
      curriculum="none",
      pass_rates=str(path),
      **keys,
    )
    built = Scripted.build(settings, context)
    return [(one.task, one.id) for one in built._questions]

  assert len(tasks_of()) == 24
  one = tasks_of(tasks=("gym/gcd",))
  assert {task for task, _ in one} == {"gym/gcd"} and len(one) == 8
  two = tasks_of(num_tasks=2)
  assert len({task for task, _ in two}) == 2 and len(two) == 16
  assert tasks_of(tasks=("gym/",)) == tasks_of()
  ids = [one.id for one in questions]
  for group, places in ((1, (0, 1)), (2, (2, 3)), (3, (4, 5))):
    wanted = {ids[8 * task + place] for task in range(3) for place in places}
    assert {id_ for _, id_ in tasks_of(only_group=group)} == wanted
  with pytest.raises(ValueError, match="'bbh/snarks' has no question"):
    tasks_of(tasks=("bbh/snarks",))
  with pytest.raises(ValueError, match="num_tasks=4: expected at most 3"):
    tasks_of(num_tasks=4)
  with pytest.raises(ValueError, match="only_group=3: .*, 6 in all; .*=7 or"):
    tasks_of(only_group=3, prompts=7)
  with pytest.raises(ValueError, match="only_group"):
    CodeInterpreterSettings(curriculum="potential", only_group=1)


def test_online_stages_estimate_pass_rates_before_they_begin(make):
  system, policy, questions = make("online_merge", correct=None, prompts=2)
  every = [question.id for question in questions]
  for step, estimates in ((1, True), (2, False), (3, True), (4, False)):
    policy.asked.clear()
    metrics = scripted.collect(system, policy, step).metrics
    # Two agents answer every question at four temperatures before the step's
    # own prompts.
    assert policy.asked[:-2] == (every * 8 if estimates else [])
    # Three of the four texts end with the correct answer.
    sizes = [metrics[f"stage/code_interpreter/group{g}"] for g in (1, 2, 3, 4)]
    assert sizes == [8, 0, 0, 0]
  resumed, _, _ = make("online_merge", correct=None)
  resumed.load_state_dict(system.state_dict())
  policy.asked.clear()
  scripted.collect(resumed, policy, 4)
  assert len(policy.asked) == 2  # This stage's pass rates are already measured.
  scripted.collect(resumed, policy, 5)
  assert len(policy.asked) == 2 + 64 + 2


@pytest.mark.parametrize("store", [False, True])
def test_a_killed_measurement_goes_on_with_its_records(
  make, tmp_path, store, strict_store
):
  folder = strict_store if store else tmp_path / "run"
  whole, policy, questions = make("online_merge", correct=None)
  scripted.collect(whole, policy, 1)
  killed, policy, _ = make("online_merge", correct=None, folder=folder)
  policy.most_answers = 21  # in the third pass
  with pytest.raises(KeyboardInterrupt):
    scripted.collect(killed, policy, 1)
  kept = tmp_path / "run" / "records" / "potential" / "stage_1"
  if not store:  # The kill also truncated a line.
    cut = kept / "code_agent_0.2.jsonl"
    cut.write_bytes(cut.read_bytes()[:-20])
  recorded = sum(
    line.endswith(b"}\n")
    for path in kept.glob("*.jsonl")
    for line in path.read_bytes().splitlines(keepends=True)
  )
  # An object store only holds complete passes.
  assert recorded == 16 if store else 15 <= recorded <= 20
  resumed, policy, _ = make("online_merge", correct=None, folder=folder)
  scripted.collect(resumed, policy, 1)
  assert len(policy.asked) == 64 - recorded + 2
  assert resumed.state_dict() == whole.state_dict()
  assert {path.name for path in kept.glob("*.jsonl")} == {
    "pass_rates.jsonl",
    *(
      f"{a}_{t}.jsonl"
      for a in ("text", "code_agent")
      for t in (0.2, 0.4, 0.6, 0.8)
    ),
  }
  # Records and rates equal those of azr_jax.potential.
  rates = pass_rates.read_for(kept / "pass_rates.jsonl", questions)
  assert rates == [PassRate(6, 8)] * 8
  record = json.loads(
    (kept / "code_agent_0.4.jsonl").read_text().splitlines()[0]
  )
  assert record["correct"] == [True] and record["subset"] == "gym/gcd"


def test_records_of_another_policy_are_not_used(make, tmp_path, capsys):
  system, policy, _ = make("online_merge", correct=None, folder=tmp_path)
  scripted.collect(system, policy, 1)
  for params, asked in ((1.0, 2), (1.5, 64 + 2)):
    again, policy, _ = make("online_merge", correct=None, folder=tmp_path)
    policy.params = {"w": np.full(3, params, np.float32)}
    scripted.collect(again, policy, 1)
    assert len(policy.asked) == asked
  assert "records were made with other params;" in capsys.readouterr().err
