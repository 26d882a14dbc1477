"""R1-Code-Interpreter: reasoning with code that is run on the way.

One step, as `CodeInterpreter.collect`:
1. the next questions of the stage, in an order shuffled anew for every pass;
2. several conversations about each: the model reasons, writes code, sees what
   it prints, and goes on, until it gives an answer (`rollout/python_tool.py`);
3. the answer is graded, and the reward has a part for it, for the form, and
   for the number of replies (`code_interpreter_rewards.py`);
4. every conversation becomes a trajectory; what the interpreter wrote is in
   it, but not learned. With `learner.estimator = "grpo"` the other
   conversations about a question are the baseline.

In stages of improvement potential (`curricula/improvement_potential.py`) the
questions with most to learn from come first. The online orders measure them
anew before each stage, by the policy itself.

Paper: seed 001. Its printed ratio has the reference's probability below the
line; the policy that sampled is meant, and is used here.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.curricula.improvement_potential import Measured
from azr_jax.curricula.stages import Stages
from azr_jax.grading import questions as grading
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.verification import Verification
from azr_jax.rollout import code_blocks
from azr_jax.rollout.environment import split_replies
from azr_jax.rollout.policy import Ask, Policy
from azr_jax.rollout.python_tool import PythonTool
from azr_jax.systems.code_interpreter import rewards as rewards_lib
from azr_jax.tasks.questions import prompts
from azr_jax.tasks.questions.question import Question
from azr_jax.types import RolloutBatch


@dataclasses.dataclass(frozen=True)
class CodeInterpreterSettings:
  """What does not change.

  Attributes:
    prompts: questions of a step.
    samples: conversations about each.
    prompt_style: one of `prompts.STYLES`.
    measure_samples: answers of each agent to each question, where potential
      is measured by the policy; paper: 5.
    rewards: see there.
  """

  prompts: int
  samples: int
  prompt_style: str
  measure_samples: int
  rewards: rewards_lib.RewardRules


class CodeInterpreter:
  """The system; its state is the groups that the questions are in."""

  def __init__(
    self,
    settings: CodeInterpreterSettings,
    questions: Sequence[Question],
    stages: Stages,
    verification: Verification,
    make_interpreter: Callable[[Tokenizer], PythonTool],
    make_agents: Callable[[Tokenizer], Mapping[str, Ask]],
  ):
    """Makes the system.

    Args:
      settings: see there.
      questions: what to train on.
      stages: which of them a step takes.
      verification: grades answers.
      make_interpreter: runs the code of conversations.
      make_agents: those that potential is measured by, by name.

    Raises:
      ValueError: there are fewer questions than a step takes.
    """
    if len(questions) < settings.prompts:
      raise ValueError(
        f"{len(questions)} questions: expected at least "
        f"code_interpreter.prompts={settings.prompts}"
      )
    self._settings = settings
    self._questions = list(questions)
    self._stages = stages
    self._verification = verification
    self._make_interpreter = make_interpreter
    self._make_agents = make_agents
    self._interpreter: PythonTool | None = None

  def state_dict(self) -> dict[str, Any]:
    """The stages'."""
    return self._stages.state_dict()

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    self._stages.load_state_dict(state)

  def turn(self, step: int) -> list[int]:
    """The questions of a step, by index."""
    return self._stages.sample(step, self._settings.prompts)

  def collect(self, policy: Policy, step: int) -> RolloutBatch:
    """Plays one step; see the module's docstring."""
    settings = self._settings
    if self._interpreter is None:
      self._interpreter = self._make_interpreter(policy.tokenizer)
    if self._stages.wants_measurement(step):
      self._stages.regroup(self._measure(policy), step)
    asked = []
    for index in self.turn(step):
      question = self._questions[index]
      text = prompts.ask(
        question.text, "free", settings.prompt_style, policy.tokenizer
      )
      prompt = policy.prompt(text, question)
      if policy.fits(prompt):
        asked.append(prompt)
    if not asked:
      raise ValueError(
        "no question of this step fits the last of rollout.prompt_buckets; "
        "expected a larger bucket"
      )
    found = {}
    for index, sample, completion in policy.sample(
      asked, settings.samples, environment=self._interpreter
    ):
      replies = [
        policy.tokenizer.decode(ids)
        for ids in split_replies(
          completion.token_ids.tolist(), completion.loss_mask.tolist()
        )
      ]
      answer = code_blocks.find_answer(replies[-1])
      verdict = self._grade(asked[index].task, answer)
      found[index, sample] = completion, replies, verdict
    self._verification.settle()
    trajectories = []
    for index, prompt in enumerate(asked):
      for sample in range(settings.samples):
        completion, replies, verdict = found[index, sample]
        parts = rewards_lib.parts(
          settings.rewards, replies, completion.finish_reason, verdict.result()
        )
        trajectories.append(
          _trajectory(prompt, completion, replies, parts, index)
        )
    metrics = self._metrics(trajectories)
    metrics["count/code_interpreter/too_long"] = float(
      settings.prompts - len(asked)
    )
    metrics |= self._interpreter.metrics() | self._verification.metrics()
    metrics |= self._stages.metrics(step, "code_interpreter")
    return RolloutBatch(trajectories, metrics)

  def _measure(self, policy: Policy) -> list[Measured]:
    """How the policy answers every question, by each agent.

    At the temperature of training: another would need programs of its own.
    What is too long to be asked counts as never right.
    """
    samples = self._settings.measure_samples
    agents = self._make_agents(policy.tokenizer)
    verdicts = []
    for agent, ask in agents.items():
      asked = []
      for place, question in enumerate(self._questions):
        text = prompts.ask(
          question.text,
          prompts.form_of(agent),
          self._settings.prompt_style,
          policy.tokenizer,
        )
        prompt = policy.prompt(text, question)
        if policy.fits(prompt):
          asked.append((place, prompt))
      numbers = [place for place, _ in asked]
      for index, _, completion in ask(
        policy, [prompt for _, prompt in asked], samples, numbers
      ):
        answer = code_blocks.find_answer(completion.text)
        verdicts.append(
          (asked[index][0], self._grade(asked[index][1].task, answer))
        )
      self._verification.settle()
    right = np.zeros(len(self._questions), int)
    for place, verdict in verdicts:
      right[place] += verdict.result()
    return [Measured(int(one), samples * len(agents)) for one in right]

  def _grade(self, question: Question, answer: str | None) -> "Future[bool]":
    return self._verification.submit(
      lambda executor: grading.submit(
        executor, question.task, question.reference, answer
      )
    )

  def _metrics(
    self, trajectories: Sequence[types.Trajectory]
  ) -> dict[str, float]:
    """Means over conversations, and shares of right answers by task."""
    samples = self._settings.samples
    names = trajectories[0].metrics
    found = {
      f"{name}/code_interpreter/solve/mean": float(
        np.mean([t.metrics[name] for t in trajectories])
      )
      for name in names
    }
    rewards = np.array([t.reward for t in trajectories])
    groups = rewards.reshape(-1, samples)
    calls = np.array([t.metrics["calls"] for t in trajectories])
    found |= {
      "reward/code_interpreter/solve/mean": float(rewards.mean()),
      "groups/code_interpreter/equal_share": float(
        np.mean(np.ptp(groups, axis=1) == 0)
      ),
      "calls/code_interpreter/none_share": float(np.mean(calls == 0)),
      "count/code_interpreter/solve": float(len(trajectories)),
    }
    tasks = np.array([t.prompt.task.task for t in trajectories])
    correct = np.array([t.metrics["correct"] for t in trajectories])
    for task in sorted({*tasks.tolist()}):
      found[f"correct_by_task/{task}"] = float(correct[tasks == task].mean())
    return found


def _trajectory(
  prompt: types.Prompt,
  completion: types.Completion,
  replies: Sequence[str],
  parts: dict[str, float],
  index: int,
) -> types.Trajectory:
  own = int(completion.loss_mask.sum())
  return types.Trajectory(
    prompt=prompt,
    completion=completion,
    reward=sum(parts.values()),
    group_id=("solve", index),
    metrics={
      **parts,
      "replies": float(len(replies)),
      "calls": float(
        np.count_nonzero(np.diff(completion.loss_mask.astype(int)) == -1)
      ),
      "tokens": float(own),
      "tokens_of_a_reply": own / len(replies),
      "self_check": float(code_blocks.checks_itself(replies)),
    },
  )
