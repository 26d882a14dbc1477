"""An ORZ step with a scripted policy: order, rewards, metrics, state."""

import dataclasses
import json
from typing import Any, cast

import numpy as np
import pytest
import scripted
from typed import present

from azr_jax import types
from azr_jax.config.settings import Invalid, build
from azr_jax.configs import evaluate, orz
from azr_jax.curricula.bandit import BanditSettings
from azr_jax.evals import mathematics, registry, runner
from azr_jax.evals.items import ItemOptions
from azr_jax.rollout.policy import Policy
from azr_jax.systems.orz.settings import ORZSettings
from azr_jax.systems.orz.system import ORZ
from azr_jax.tasks import templates
from azr_jax.tasks.mathematics import prompts
from azr_jax.tasks.mathematics.problem import Problem

SETTINGS: dict[str, Any] = dict(
  prompts=4,
  group_size=3,
  prompt_format="compact",
  grader="rules",
  truncated_grade="incorrect",
)
PROBLEMS = [Problem(f"what is {n} + 1", str(n + 1)) for n in range(10)]


class ScriptedPolicy(scripted.Policy):
  """Answers right, wrong, and right but truncated after the box."""

  def __init__(self):
    self.asked = []

  def prompt(self, text, task=None, question=""):
    return types.Prompt(text, (1, 2), task)

  def fits(self, prompt):
    return len(prompt.text) < 40

  @scripted.samples
  def sample(self, asked, n=1, prompt_numbers=None, tool_runner=None, call=0):
    self.asked += [prompt.task for prompt in asked]
    for index, prompt in enumerate(asked):
      for sample in range(n):
        answer = prompt.task.answer if sample != 1 else "-1"
        text = prompts.format_response("so", answer)
        reason = "length" if sample == 2 else "stop"
        repeated = 20 if sample == 2 else 0
        ids = np.arange(1, 30 - repeated, dtype=np.int32)
        ids = np.append(ids, np.full(repeated, 7, np.int32))
        yield (
          index,
          sample,
          types.Completion(
            ids,
            np.zeros(len(ids), np.float32),
            np.ones(len(ids), bool),
            reason,
            text,
          ),
        )


@pytest.fixture(name="system")
def make_system(context):
  def system(problems=PROBLEMS, **changes):
    return ORZ(ORZSettings(**(SETTINGS | changes)), context, [problems])

  return system


BY_SOURCE = (PROBLEMS[:5], PROBLEMS[5:])


class Uneven(ScriptedPolicy):
  """Solves problems of the second source in one of three samples."""

  @scripted.samples
  def sample(self, asked, n=1, prompt_numbers=None, tool_runner=None, call=0):
    for index, sample, done in ScriptedPolicy.sample(self, asked, n):
      if asked[index].task in BY_SOURCE[0]:
        done = dataclasses.replace(done, text=prompts.format_response("", "-1"))
      yield index, sample, done


def test_a_bandit_prefers_the_source_that_is_learned_from(context):
  settings = ORZSettings(
    **SETTINGS | {"curriculum": "bandit"},
    data=("a", "b"),
    bandit=BanditSettings(0.5, 0.1),
  )
  whole = ORZ(settings, context, BY_SOURCE)
  steps = [scripted.collect(whole, Uneven(), step) for step in range(1, 7)]
  metrics = steps[-1].metrics
  assert metrics["curriculum/value/source0"] == 0.0
  assert metrics["curriculum/probability/source1"] > 0.9
  resumed = ORZ(settings, context, BY_SOURCE)
  resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
  policies = Uneven(), Uneven()
  again = [
    scripted.collect(system, policy, 7).metrics
    for system, policy in zip((whole, resumed), policies, strict=True)
  ]
  assert policies[0].asked == policies[1].asked
  learned = [
    {k: v for k, v in m.items() if not k.startswith(("executor/", "time/"))}
    for m in again
  ]
  assert learned[0] == learned[1]


def test_a_bandit_needs_groups():
  with pytest.raises(Invalid, match="group_size"):
    build(ORZSettings, SETTINGS | {"curriculum": "bandit", "group_size": 1})


def test_a_truncated_answer_is_incorrect_or_graded(system):
  for rule, rewards in (("incorrect", [1, 0, 0]), ("graded", [1, 0, 1])):
    collected = scripted.collect(
      system(truncated_grade=rule), ScriptedPolicy(), 1
    )
    assert [t.reward for t in collected.trajectories] == rewards * 4
    for t in collected.trajectories:
      assert ("final answer" in t.feedback) is (t.reward == 0)
      assert t.reference == t.prompt.task.answer
    groups = [t.group_id for t in collected.trajectories]
    assert groups == [("solve", i) for i in range(4) for _ in range(3)]


# (Response, finish reason, (correct if truncated responses are graded, correct
# if they are not)).
ENDINGS = [
  (prompts.format_response("so", "6"), "stop", (1, 1)),
  (prompts.format_response("so", "6"), "length", (1, 0)),
  (prompts.format_response("so", "\\frac{12}{2}"), "stop", (1, 1)),
  (prompts.format_response("so", "5"), "stop", (0, 0)),
  # A box or a number outside answer tags is not an answer.
  ("we try n = 6. Wait, maybe", "length", (0, 0)),
  ("the answer is \\boxed{6}", "stop", (0, 0)),
  ("so</think>\n<answer>6</answer>", "stop", (0, 0)),
]


class EndingPolicy(ScriptedPolicy):
  """Answers each prompt with every response in `ENDINGS`."""

  tokenizer = None

  def fits(self, prompt):
    return True

  @scripted.samples
  def sample(self, asked, n=1, prompt_numbers=None, tool_runner=None, call=0):
    self.asked += asked
    for index in range(len(asked)):
      for sample in range(n):
        text, reason, _ = ENDINGS[sample]
        ids = np.arange(1, 9, dtype=np.int32)
        logprobs = np.zeros(8, np.float32)
        yield (
          index,
          sample,
          types.Completion(ids, logprobs, ids > 0, reason, text),
        )


@pytest.mark.parametrize("rule", ["graded", "incorrect"])
@pytest.mark.parametrize("name", ["problems", "aime24", "gsm8k"])
def test_benchmarks_are_asked_and_graded_exactly_as_the_reward_is(
  system, context, executor, rule, name
):
  """So are selections by records and by a run's state."""
  count = len(ENDINGS)
  wanted = [rights[rule == "incorrect"] for _, _, rights in ENDINGS]
  problem, training = Problem("what is 5 + 1", "6"), EndingPolicy()
  trained = system(
    [problem],
    prompts=1,
    group_size=count,
    truncated_grade=rule,
    prompt_format="full",
  )
  rewards = [
    t.reward for t in scripted.collect(trained, training, 1).trajectories
  ]
  assert rewards == wanted
  settings = mathematics.MathematicsSettings("reward", "rules", rule)
  benchmark = mathematics.with_grading(
    registry.BENCHMARKS[name], **vars(settings)
  )
  items = mathematics.read_problems(
    [{"question": "what is 5 + 1", "answer": "6"}]
  )
  scoring = EndingPolicy()
  scores = runner.run(
    benchmark.with_items(items),
    cast(Policy, scoring),
    executor,
    context.hosts,
    ItemOptions("", 0, "full", count),
    None,
  )
  assert scores[f"{name}/pass@1/unbiased"] == pytest.approx(np.mean(wanted))
  assert [p.text for p in scoring.asked] == [p.text for p in training.asked]


def test_problems_are_asked_in_a_user_s_words(context, tmp_path):
  (tmp_path / "math.txt").write_text("New words: {QUESTION} <think>")
  read = templates.read(str(tmp_path), ORZ.prompt_files(ORZSettings()))
  settings = ORZSettings(**SETTINGS)
  system = ORZ(
    settings, dataclasses.replace(context, templates=read), [PROBLEMS]
  )
  collected = scripted.collect(system, ScriptedPolicy(), 1)
  texts = {f"New words: {one.question} <think>" for one in PROBLEMS}
  asked = {t.prompt.text for t in collected.trajectories}
  assert len(asked) == settings.prompts and asked <= texts


def test_average16_has_the_rule_of_the_reward_by_preset():
  for preset in ("paper", "published_code", "ours"):
    train = orz.get_config(f"7b+{preset}")
    score = evaluate.get_config(f"average16+{preset}")
    rule = score.evaluate.mathematics
    assert rule.answer == "reward"
    assert rule.grader == train.orz.grader
    assert rule.truncated_grade == train.orz.truncated_grade
    periodic = train.evaluation.mathematics.truncated_grade
    assert periodic == train.orz.truncated_grade
    assert score.rollout.stop_strings == train.rollout.stop_strings
    assert score.rollout.max_tokens == train.rollout.max_tokens
    assert score.evaluate.prompt_format == train.orz.prompt_format
    command = ORZ.about(build(ORZSettings, train.orz.to_dict())).scoring
    named = evaluate.get_config(present(command).variant)
    assert named.evaluate.mathematics == rule


def test_every_epoch_has_every_problem_once_in_another_order(system):
  policy = ScriptedPolicy()
  orz = system(prompts=5)
  for step in range(1, 5):
    scripted.collect(orz, policy, step)
  first, second = policy.asked[:10], policy.asked[10:]
  assert set(first) == set(second) == set(PROBLEMS)
  assert first != second


def test_a_step_that_crosses_two_epochs_is_whole(system):
  policy = ScriptedPolicy()
  for step in range(1, 6):
    scripted.collect(system(), policy, step)
  assert len(policy.asked) == 20
  assert sorted(map(PROBLEMS.index, policy.asked)) == sorted([*range(10)] * 2)


def test_metrics_tell_repetition_and_truncation(system):
  metrics = scripted.collect(system(), ScriptedPolicy(), 1).metrics
  assert metrics["correct/orz/solve/mean"] == pytest.approx(1 / 3)
  assert metrics["correct/orz/solve/any"] == 1
  assert metrics["health/orz/truncated_fraction"] == pytest.approx(1 / 3)
  assert metrics["health/orz/formatted_fraction"] == 1
  # The first 10 of 29 tokens are new, and 19 repeat.
  fraction = metrics["health/orz/repeated_token_fraction"]
  assert fraction == pytest.approx(19 / 87)
  assert metrics["health/orz/grpo_advantage_on_repetition"] < 0


class New(ScriptedPolicy):
  """Samples responses in which no token occurs twice."""

  @scripted.samples
  def sample(self, asked, n=1, prompt_numbers=None, tool_runner=None, call=0):
    for index, sample, done in ScriptedPolicy.sample(self, asked, n):
      ids = np.arange(len(done.token_ids), dtype=np.int32)
      yield index, sample, dataclasses.replace(done, token_ids=ids)


def test_tokens_that_no_response_repeats_have_no_advantage(system):
  """A zero would distort the mean over steps."""
  metrics = scripted.collect(system(), New(), 1).metrics
  assert metrics["health/orz/repeated_token_fraction"] == 0
  assert "health/orz/grpo_advantage_on_repetition" not in metrics


def test_the_state_goes_through_json(system):
  first = system()
  scripted.collect(first, ScriptedPolicy(), 1)
  state = json.loads(json.dumps(first.state_dict()))
  assert [counts[1:] for counts in state["solved"]] == [[1, 3]] * 4
  other = system()
  other.load_state_dict(state)
  assert other.state_dict() == first.state_dict()


def test_a_prompt_that_is_too_long_is_left_out(system):
  long = [Problem(f"{n}" + " and so on" * 9, "1") for n in range(3)]
  orz = system([PROBLEMS[0], *long])
  collected = scripted.collect(orz, ScriptedPolicy(), 1)
  assert len(collected.trajectories) == SETTINGS["group_size"]
  assert collected.metrics["count/orz/too_long"] == 3
  orz = system([*long, *long])
  with pytest.raises(ValueError, match="no prompt of this step fits .*=.8,.: "):
    scripted.collect(orz, ScriptedPolicy(), 1)


def test_too_few_problems_are_refused(system):
  with pytest.raises(ValueError, match=r"expected at least orz.prompts=11"):
    system(prompts=11)
