"""R1-Code-Interpreter: reasoning with code that is run on the way.

One step, as `CodeInterpreter.collect`:
1. the next questions of the stage, in an order shuffled anew for every pass;
2. several conversations about each: the model reasons, writes code, sees what
   it prints, and goes on, until it gives an answer (`rollout/interpreter.py`);
3. the answer is graded, and the reward has a part for it, for the form, and
   for the number of replies (`code_interpreter_rewards.py`);
4. every conversation becomes a trajectory; what the interpreter wrote is in
   it, but not learned. With `learner.estimator = "grpo"` the other
   conversations about a question are the baseline.

In stages of improvement potential (`curricula/potential.py`) the questions
with most to learn from come first.

Paper: seed 001. Its printed ratio has the reference's probability below the
line; the policy that sampled is meant, and is used here.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.curricula import passes, potential
from azr_jax.grading import questions as grading
from azr_jax.grading.verification import Verification
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.interpreter import Interpreter
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.turns import split_replies
from azr_jax.systems import code_interpreter_rewards as rewards_lib
from azr_jax.systems.system import Collected
from azr_jax.tasks import code_blocks
from azr_jax.tasks.questions import prompts
from azr_jax.tasks.questions.question import Question


@dataclasses.dataclass(frozen=True)
class CodeInterpreterSettings:
  """What does not change.

  Attributes:
    prompts: questions of a step.
    samples: conversations about each.
    prompt_style: one of `prompts.STYLES`.
    order: one of `potential.ORDERS`.
    stage_steps: steps of a stage.
    rewards: see there.
    seed: root of every host-side random draw.
  """

  prompts: int
  samples: int
  prompt_style: str
  order: str
  stage_steps: int
  rewards: rewards_lib.RewardRules
  seed: int


class CodeInterpreter:
  """The system; its state is the groups that the questions are in."""

  def __init__(
    self,
    settings: CodeInterpreterSettings,
    questions: Sequence[Question],
    groups: Sequence[int],
    verification: Verification,
    make_interpreter: Callable[[Tokenizer], Interpreter],
  ):
    """Makes the system.

    Args:
      settings: see there.
      questions: what to train on.
      groups: of each question, from 1 on, see `potential.make_groups`.
      verification: grades answers.
      make_interpreter: runs the code of conversations.

    Raises:
      ValueError: the first stage has fewer questions than a step.
    """
    first = potential.pool(groups, settings.order, 1)
    if len(first) < settings.prompts:
      raise ValueError(
        f"{len(first)} questions in the first stage: expected at least "
        f"code_interpreter.prompts={settings.prompts}"
      )
    self._settings = settings
    self._questions = list(questions)
    self._groups = list(groups)
    self._verification = verification
    self._make_interpreter = make_interpreter
    self._interpreter: Interpreter | None = None

  def state_dict(self) -> dict[str, Any]:
    """The groups, by the questions' ids."""
    names = [question.id for question in self._questions]
    return {"groups": dict(zip(names, self._groups, strict=True))}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    self._groups = [state["groups"][q.id] for q in self._questions]

  def turn(self, step: int) -> list[int]:
    """The questions of a step, by index."""
    settings = self._settings
    stage = potential.stage_of(step, settings.stage_steps)
    pool = potential.pool(self._groups, settings.order, stage)
    first = (step - 1 - (stage - 1) * settings.stage_steps) * settings.prompts
    chosen = passes.turn(
      (settings.seed, stage), len(pool), first, settings.prompts
    )
    return [pool[place] for place in chosen]

  def collect(self, policy: Policy, step: int) -> Collected:
    """Plays one step; see the module's docstring."""
    settings = self._settings
    if self._interpreter is None:
      self._interpreter = self._make_interpreter(policy.tokenizer)
    asked = []
    for index in self.turn(step):
      question = self._questions[index]
      text = prompts.ask(question.text, "free", settings.prompt_style)
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
      asked, settings.samples, turns=self._interpreter
    ):
      replies = [
        policy.tokenizer.decode(ids)
        for ids in split_replies(
          completion.token_ids.tolist(), completion.loss_mask.tolist()
        )
      ]
      question = asked[index].task
      answer = code_blocks.find_answer(replies[-1])
      verdict = self._verification.submit(
        lambda executor, q=question, answer=answer: grading.submit(
          executor, q.task, q.reference, answer
        )
      )
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
    metrics = self._metrics(trajectories, step)
    metrics["count/code_interpreter/too_long"] = float(
      settings.prompts - len(asked)
    )
    metrics |= self._interpreter.metrics() | self._verification.metrics()
    return Collected(trajectories, metrics)

  def _metrics(
    self, trajectories: Sequence[types.Trajectory], step: int
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
      "stage/code_interpreter": float(
        potential.stage_of(step, self._settings.stage_steps)
      ),
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
    baseline_group=("solve", index),
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
