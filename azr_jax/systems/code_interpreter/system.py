"""R1-Code-Interpreter: reasoning with code that is run on the way.

One step, as `CodeInterpreter.collect`:
1. the next questions of the stage, in an order shuffled anew for every epoch;
2. several conversations about each: the model reasons, writes code, sees what
   it prints, and goes on, until it gives an answer (`rollout/python_tool.py`);
3. the answer is graded, and the reward has a part for it, for the format, and
   for the number of turns (`rewards.py`);
4. every conversation becomes a trajectory; tool output is in it, but not
   learned. With `learner.estimator = "grpo"` the other conversations about a
   question are the baseline.

In stages of improvement potential (`curricula/improvement_potential.py`) the
questions with most to learn from come first. The online orders measure them
anew before each stage, by the policy itself.

Paper: R1-CI (arXiv 2505.21668). Its printed ratio has the reference's
probability below the line; the policy that sampled is meant, and is used here.
"""

import pathlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.curricula.improvement_potential import Measured
from azr_jax.curricula.stages import Stages
from azr_jax.grading import questions as grading
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout import code_blocks
from azr_jax.rollout.environment import split_responses
from azr_jax.rollout.policy import Agent, Policy
from azr_jax.rollout.python_tool import PythonTool
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.systems import collect
from azr_jax.systems.code_interpreter import agents
from azr_jax.systems.code_interpreter import rewards as rewards_lib
from azr_jax.systems.code_interpreter.settings import CodeInterpreterSettings
from azr_jax.systems.system import Context, Evaluation, StepLoad, System
from azr_jax.tasks.questions import measured as measured_lib
from azr_jax.tasks.questions import prompts, sources
from azr_jax.tasks.questions.question import Question
from azr_jax.types import RolloutBatch


class CodeInterpreter(System):
  """The system; its state is the groups that the questions are in."""

  name = "code_interpreter"
  Settings = CodeInterpreterSettings
  METRICS = {
    "stage": "number rises; groups of a size worth a stage",
    "correct_by_task": "rises where code helps",
    "self_check": "share of conversations that check an answer by code",
    "tokens_of_a_reply": "does not grow without accuracy",
    "turns": "penalty for more than max_turns turns: near 0",
    "calls": "scripts of a conversation; rises where code helps",
    "replies": "turns of a conversation: fewer than max_turns",
    "form": "near +rewards.format after a few steps",
    "interpreter": "slots_writing high; overlap_share near 1; timeouts rare",
  }

  def __init__(
    self,
    settings: CodeInterpreterSettings,
    context: Context,
    questions: Sequence[Question],
    measured: Sequence[Measured] | None = None,
  ):
    """Makes the system.

    Args:
      settings: how it asks and rewards.
      context: what the trainer gives.
      questions: what to train on.
      measured: the pass rate of each question, for stages.

    Raises:
      ValueError: there are fewer questions than a step takes.
    """
    super().__init__(settings, context)
    if len(questions) < settings.prompts:
      raise ValueError(
        f"{len(questions)} questions: expected at least "
        f"code_interpreter.prompts={settings.prompts}"
      )
    self._settings = settings
    self._jobs = context.jobs
    self._questions = list(questions)
    self._stages = Stages(
      [question.id for question in questions],
      measured,
      order=settings.order,
      grouping=settings.grouping,
      stage_steps=settings.stage_steps,
      seed=context.seed,
    )
    self._tool = self.make_tool()

  @classmethod
  def build(
    cls, settings: CodeInterpreterSettings, context: Context
  ) -> "CodeInterpreter":
    """Reads the questions and their pass rates, and makes the system."""
    questions = sources.read_all(
      settings.questions, settings.count, settings.data_seed
    )
    measured = None
    if settings.measured:
      path = pathlib.Path(settings.measured).expanduser()
      measured = measured_lib.of_all(path, questions)
    return cls(settings, context, questions, measured)

  @classmethod
  def check(
    cls, settings: CodeInterpreterSettings, rollout: SamplerSettings
  ) -> None:
    """Refuses tools without room for their output."""
    if settings.tool.max_calls and not rollout.extend_chunk:
      raise Invalid(
        "rollout.extend_chunk",
        "=0: expected at least 1, because tool output is read into the slots",
      )

  @classmethod
  def step_load(cls, settings: CodeInterpreterSettings) -> StepLoad:
    """Returns the load of a step."""
    conversations = settings.prompts * settings.group_size
    return StepLoad(conversations, conversations, settings.prompts)

  @classmethod
  def evaluation(cls, settings: CodeInterpreterSettings) -> Evaluation:
    """Returns the questions that were trained on, held out by seed."""
    full = settings.prompt_style == "full"
    return Evaluation(
      "questions" if full else "questions_tiny",
      "questions",
      "+".join(settings.questions),
    )

  def make_tool(self) -> PythonTool:
    """Returns a tool that runs the code of conversations."""
    context = self.context
    return PythonTool(
      self._settings.tool,
      context.tokenizer,
      context.executor,
      context.hosts,
      context.script_timeout_s,
    )

  def make_agents(self) -> dict[str, Agent]:
    """Returns the agents that pass rates are measured by, by their names."""
    settings, tool = self._settings, self.make_tool()
    jobs = SharedJobs(self.context.executor, self.context.hosts)
    return {
      name: agents.make(name, tool, jobs, settings.prompt_style)
      for name in settings.measure_agents
    }

  def state_dict(self) -> dict[str, Any]:
    """Returns the state of the stages."""
    return self._stages.state_dict()

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    self._stages.load_state_dict(state)

  def questions_of(self, step: int) -> list[int]:
    """Returns the indices of the questions of a step."""
    return self._stages.sample(step, self._settings.prompts)

  def collect(self, policy: Policy, step: int) -> RolloutBatch:
    """Plays one step; see the module's docstring."""
    settings = self._settings
    if self._stages.wants_measurement(step):
      self._stages.regroup(self._measure(policy), step)
    questions = [self._questions[i] for i in self.questions_of(step)]
    _, asked = self._ask(policy, questions, "free")
    if not asked:
      raise ValueError(
        "no question of this step fits the last of rollout.prompt_buckets; "
        "expected a larger bucket"
      )

    def submit(index: int, completion: types.Completion) -> "Future[bool]":
      last = _responses(policy, completion)[-1]
      return self._grade(asked[index].task, code_blocks.find_answer(last))

    stream = policy.sample(asked, settings.group_size, environment=self._tool)
    trajectories = []
    for group, answers in enumerate(
      collect.sample_and_grade(stream, submit, self._jobs)
    ):
      for answer in answers:
        responses = _responses(policy, answer.completion)
        parts = rewards_lib.parts(
          settings.rewards,
          responses,
          answer.completion.finish_reason,
          answer.grade,
        )
        trajectories.append(
          _trajectory(asked[group], answer.completion, responses, parts, group)
        )
    metrics = self._metrics(trajectories)
    metrics["count/code_interpreter/too_long"] = float(
      settings.prompts - len(asked)
    )
    metrics |= self._tool.metrics() | self._jobs.metrics()
    metrics |= self._stages.metrics(step, "code_interpreter")
    return RolloutBatch(trajectories, metrics)

  def _ask(
    self, policy: Policy, questions: Sequence[Question], form: str
  ) -> tuple[list[int], list[types.Prompt]]:
    """Returns the prompts of a form that fit, and the questions' indices."""
    kept, asked = [], []
    for index, question in enumerate(questions):
      text = prompts.ask(
        question.text, form, self._settings.prompt_style, policy.tokenizer
      )
      prompt = policy.prompt(text, question)
      if policy.fits(prompt):
        kept.append(index)
        asked.append(prompt)
    return kept, asked

  def _measure(self, policy: Policy) -> list[Measured]:
    """Returns how often the policy solves every question, by all agents.

    It samples at the temperature of training, because another one would need
    compiled functions of its own. A question that is too long is never solved.
    """
    settings = self._settings
    right = np.zeros(len(self._questions), int)
    all_agents = self.make_agents()
    for name, agent in all_agents.items():
      kept, asked = self._ask(policy, self._questions, prompts.form_of(name))

      def submit(
        index: int, completion: types.Completion, asked=asked
      ) -> "Future[bool]":
        answer = code_blocks.find_answer(completion.text)
        return self._grade(asked[index].task, answer)

      stream = agent(policy, asked, settings.measure_samples, kept)
      graded = collect.sample_and_grade(stream, submit, self._jobs)
      for index, answers in zip(kept, graded, strict=True):
        right[index] += sum(answer.grade for answer in answers)
    asked_times = settings.measure_samples * len(all_agents)
    return [Measured(int(count), asked_times) for count in right]

  def _grade(self, question: Question, answer: str | None) -> "Future[bool]":
    return self._jobs.submit(
      lambda executor: grading.submit(
        executor, question.task, question.reference, answer
      )
    )

  def _metrics(
    self, trajectories: Sequence[types.Trajectory]
  ) -> dict[str, float]:
    """Returns means over conversations, and accuracy by task."""
    metrics = collect.solve_metrics(
      trajectories, "code_interpreter/solve", self._settings.group_size
    )
    for name in trajectories[0].metrics:
      values = [t.metrics[name] for t in trajectories]
      metrics[f"{name}/code_interpreter/solve/mean"] = float(np.mean(values))
    calls = np.array([t.metrics["calls"] for t in trajectories])
    metrics["calls/code_interpreter/none_share"] = float(np.mean(calls == 0))
    tasks = np.array([t.prompt.task.task for t in trajectories])
    correct = np.array([t.metrics["correct"] for t in trajectories])
    for task in sorted({*tasks.tolist()}):
      metrics[f"correct_by_task/{task}"] = float(correct[tasks == task].mean())
    return metrics


def _responses(policy: Policy, completion: types.Completion) -> list[str]:
  """Returns the texts of the model's turns."""
  return [
    policy.tokenizer.decode(ids)
    for ids in split_responses(
      completion.token_ids.tolist(), completion.loss_mask.tolist()
    )
  ]


def _trajectory(
  prompt: types.Prompt,
  completion: types.Completion,
  responses: Sequence[str],
  parts: dict[str, float],
  group: int,
) -> types.Trajectory:
  num_written = int(completion.loss_mask.sum())
  is_output = np.diff(completion.loss_mask.astype(int)) == -1
  return types.Trajectory(
    prompt=prompt,
    completion=completion,
    reward=sum(parts.values()),
    group_id=("solve", group),
    metrics={
      **parts,
      "replies": float(len(responses)),
      "calls": float(np.count_nonzero(is_output)),
      "tokens": float(num_written),
      "tokens_of_a_reply": num_written / len(responses),
      "self_check": float(code_blocks.has_self_check(responses)),
    },
  )
