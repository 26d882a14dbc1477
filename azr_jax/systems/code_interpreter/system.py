"""R1-Code-Interpreter: reasoning with code that runs between turns.

The life of a step (`GroupSystem.collect`):
1. Take the next questions of the stage. Every epoch is shuffled differently.
2. Sample several conversations about each question: the model reasons, writes
   code, reads the tool output, and continues until it answers
   (`tools/python_tool.py`). A question whose conversations have equal rewards
   may be replaced (`systems/dynamic_sampling.py`).
3. Grade the answers. The reward has terms for correctness, format and the
   number of turns (`rewards.py`).
4. Every conversation becomes a trajectory. The `loss_mask` of tool output is
   false. With `learner.estimator = "grpo"` the other conversations about a
   question are the baseline.

Stages order the questions by improvement potential, largest first
(`curricula/improvement_potential.py`). Online curricula estimate the potential
with the current policy before each stage.

Paper: R1-CI (arXiv 2505.21668). The paper prints the reference model in the
denominator of the ratio; here it is the sampling policy, as in GRPO.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.curricula import improvement_potential
from azr_jax.curricula.improvement_potential import ONLINE, PassRate
from azr_jax.curricula.stages import CurriculumStages
from azr_jax.grading import questions as grading
from azr_jax.grading.outcome import Outcome, of_answer
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout.policy import Agent, Policy
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.tool_runner import split_turns
from azr_jax.systems import collect, dynamic_sampling
from azr_jax.systems import groups as groups_lib
from azr_jax.systems.code_interpreter import (
  agents,
  measurement,
  online_potential,
  self_checks,
)
from azr_jax.systems.code_interpreter import rewards as rewards_lib
from azr_jax.systems.code_interpreter.codesteer import CodeSteer
from azr_jax.systems.code_interpreter.settings import CodeInterpreterSettings
from azr_jax.systems.dynamic_sampling import Groups
from azr_jax.systems.groups import GroupSystem, StepItems
from azr_jax.systems.system import About, Context, SuggestedScoring
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.questions import pass_rates as pass_rates_lib
from azr_jax.tasks.questions import prompts, sources
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.templates import PromptFiles
from azr_jax.tools import code_blocks
from azr_jax.tools.python_tool import PythonTool

# State keys of the tool and of the epoch order.
_TOOL = "tool"
_ORDER = "order"
# Metric family -> what a healthy value looks like.
_HEALTHY = {
  "stage": "number rises; every group is large enough for a stage",
  "correct_by_task": "rises where code helps",
  "self_check": "fraction of conversations that check an earlier answer with "
  "code (heuristic)",
  "tokens_per_turn": "grows only if accuracy does",
  "turns": "reward term for more than max_turns turns: near 0",
  "calls": "scripts per conversation; rises where code helps",
  "num_turns": "turns per conversation: fewer than max_turns",
  "format": "near +rewards.format after a few steps",
  "interpreter": "slots_decoding high, "
  "time/interpreter_overlap_fraction near 1",
}
# Prompt format -> variant of `configs/evaluate.py` that uses it.
_SCORING_VARIANTS = {
  "chat": "questions",
  "full": "questions_full",
  "few_shot": "questions_small",
  "compact": "questions_tiny",
}


class CodeInterpreter(GroupSystem[StepItems]):
  """The R1-CI system. Its state is the group of each question."""

  name = "code_interpreter"
  Settings = CodeInterpreterSettings
  settings: CodeInterpreterSettings

  def __init__(
    self,
    settings: CodeInterpreterSettings,
    context: Context,
    questions: Sequence[Question],
    pass_rates: Sequence[PassRate] | None = None,
  ):
    """Makes the system.

    Args:
      context: the resources of the run.
      questions: the training questions.
      pass_rates: the pass rate of each question, for stages. None if unknown.

    Raises:
      ValueError: there are fewer questions than a step takes.
    """
    super().__init__(settings, context)
    if len(questions) < settings.prompts:
      raise ValueError(
        f"{len(questions)} questions: expected at least "
        f"code_interpreter.prompts={settings.prompts}"
      )
    self._questions = list(questions)
    self._stages = CurriculumStages(
      [question.id for question in questions],
      pass_rates,
      curriculum=settings.curriculum,
      grouping=settings.grouping,
      stage_steps=settings.stage_steps,
      seed=context.seed,
    )
    self._order = dynamic_sampling.EpochOrder(
      settings.prompts, settings.dynamic_sampling.max_prompts
    )
    self._tool = self.make_tool(context.clock)

  @classmethod
  def build(
    cls, settings: CodeInterpreterSettings, context: Context
  ) -> "CodeInterpreter":
    """Reads the questions and their pass rates, and makes the system.

    Raises:
      ValueError: a file is wrong, or has too few questions.
    """
    questions = sources.of_tasks(
      sources.read_all(settings.questions, settings.count, settings.data_seed),
      settings.tasks,
      settings.num_tasks,
      context.seed,
    )
    pass_rates = None
    if settings.needs_pass_rates:
      path = pathlib.Path(settings.pass_rates).expanduser()
      context.sandbox.require_same(pass_rates_lib.sandbox_of(path), str(path))
      pass_rates = pass_rates_lib.read_for(path, questions)
      if settings.shuffle_pass_rates:
        streams.generator(context.seed, Purpose.SHUFFLED_PASS_RATES).shuffle(
          pass_rates
        )
    if settings.only_group:
      assert pass_rates is not None
      tasks = [question.task for question in questions]
      kept = improvement_potential.equal_group(
        pass_rates, tasks, settings.only_group, context.seed
      )
      if len(kept) < settings.prompts:
        raise ValueError(
          f"only_group={settings.only_group}: each group has as many questions "
          f"of a task as the smallest of the three, {len(kept)} in all; "
          f"expected code_interpreter.prompts={settings.prompts} or more: rate "
          "more questions, or with more answers each"
        )
      questions = [questions[index] for index in kept]
      pass_rates = None
    return cls(settings, context, questions, pass_rates)

  @classmethod
  def check(
    cls, settings: CodeInterpreterSettings, rollout: SamplerSettings
  ) -> None:
    """Rejects tool calls without `rollout.extend_chunk`."""
    if settings.tool.max_calls and not rollout.extend_chunk:
      raise Invalid(
        "rollout.extend_chunk",
        "=0: expected at least 1, because tool output extends the slots",
      )

  @classmethod
  def prompt_files(cls, settings: CodeInterpreterSettings) -> PromptFiles:
    """Returns the prompts of conversations, and of agents that measure."""
    measures = settings.curriculum in ONLINE
    measuring = settings.pass_rate_agents if measures else ()
    return prompts.files_of(["code_agent", *measuring])

  @classmethod
  def about(cls, settings: CodeInterpreterSettings) -> About:
    """Returns facts about the system under these settings."""
    return dataclasses.replace(
      super().about(settings),
      paper=(
        "R1-Code-Interpreter: LLMs Reason with Code via Supervised and "
        "Multi-stage Reinforcement Learning",
        "https://arxiv.org/abs/2505.21668",
      ),
      metrics=_HEALTHY,
      scoring=_scoring(settings),
    )

  def benchmark_agent(self, benchmark: str) -> Agent | None:
    """Returns the trained agent for benchmark `questions`, None for others."""
    if benchmark != "questions":
      return None
    jobs = SharedJobs(self.context.executor, self.context.hosts)
    return self._make_agent("code_agent", self.make_tool(), jobs)

  def make_tool(self, clock: DecodeClock | None = None) -> PythonTool:
    """Returns a tool that runs the code of conversations.

    Args:
      clock: the decode clock of the training steps' event loop. It makes two
        runs of a seed receive outputs at the same decode call. None delivers
        outputs as soon as they arrive.
    """
    context = self.context
    return PythonTool(
      context.tokenizer,
      context.executor,
      context.hosts,
      clock,
      importable=context.sandbox.libraries,
      timeout_s=context.sandbox.timeout_s,
      **vars(self.settings.tool),
    )

  def make_agents(self) -> dict[str, Agent]:
    """Returns the agents that estimate pass rates, by name."""
    tool = self.make_tool()
    jobs = SharedJobs(self.context.executor, self.context.hosts)
    return {
      name: self._make_agent(name, tool, jobs)
      for name in self.settings.pass_rate_agents
    }

  def _make_agent(self, name: str, tool: PythonTool, jobs: SharedJobs) -> Agent:
    settings = self.settings
    steer = CodeSteer(
      jobs,
      settings.prompt_format,
      tool.libraries,
      settings.arguments,
      self.context.templates,
      **vars(settings.steer),
    )
    return agents.make(name, tool, jobs, steer.ask)

  def state_dict(self) -> dict[str, Any]:
    """Returns the state of the stages, the epoch order and the tool."""
    state = {**self._stages.state_dict(), _TOOL: self._tool.state_dict()}
    if self.settings.dynamic_sampling.is_enabled:
      state[_ORDER] = self._order.state_dict()
    return state

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    self._stages.load_state_dict(state)
    self._tool.load_state_dict(state.get(_TOOL, {}))
    self._order.load_state_dict(state.get(_ORDER, {}))

  def can_sample_ahead(self, step: int) -> bool:
    """Returns False for steps that measure pass rates."""
    return not self._stages.needs_pass_rates(step)

  async def take(self, policy: Policy, step: int) -> StepItems:
    """Takes the next questions of the stage; first measures pass rates if due.

    An online curriculum measures them before each stage.
    """
    if self._stages.needs_pass_rates(step):
      self._stages.regroup(self._estimate_pass_rates(policy, step), step)
    positions = self._order.take(
      self._stages.steps_before(step), self._stages.stage(step)
    )
    indices = self._stages.items_at(step, positions, self.settings.prompts)
    return StepItems(indices, positions)

  def observe(self, step: int, taken: StepItems, groups: Groups) -> None:
    """Puts unused questions back into the epoch order."""
    stage = self._stages.stage(step)
    self._order.return_unused(taken.positions, groups, stage)

  async def sample_group(
    self, policy: Policy, taken: StepItems, index: int
  ) -> list[types.Trajectory]:
    """Returns graded conversations about a question; [] if it is too long."""
    settings, question = self.settings, self._questions[taken.items[index]]
    chat = Chat(policy.tokenizer, settings.arguments)
    text = prompts.ask(
      question.text,
      "free",
      self.context.prompt_format(settings.prompt_format),
      chat,
    )
    prompt = policy.prompt(text, question, question.text)
    if not policy.fits(prompt):
      return []

    def grade(completion: types.Completion) -> "Future[Outcome]":
      last = _turns(policy, completion)[::2][-1]
      return self._grade(question, code_blocks.find_answer(last))

    graded = await collect.sample_group(
      policy,
      prompt,
      index,
      settings.group_size,
      grade,
      jobs=self.context.jobs,
      tool_runner=self._tool,
    )
    reference = grading.stored_answer(question.task, question.reference)
    trajectories = []
    for one in graded:
      turns = _turns(policy, one.completion)
      parts = rewards_lib.parts(
        turns[::2],
        one.completion.finish_reason,
        bool(one.grade),
        format_reward=settings.rewards.format,
        turn_penalty=settings.rewards.turn_penalty,
        max_turns=settings.rewards.max_turns,
      )
      trajectories.append(
        _trajectory(prompt, one, turns, parts, index, reference)
      )
    return trajectories

  def _estimate_pass_rates(self, policy: Policy, step: int) -> list[PassRate]:
    """Measures the pass rate of each question over all agents."""
    settings = self.settings
    return online_potential.estimate(
      policy,
      self._questions,
      measurement.potential_eval_passes(
        settings.pass_rate_agents, settings.pass_rate_temperatures
      ),
      self.make_agents(),
      self.context.prompt_format(settings.prompt_format),
      self.context,
      self._stages.stage(step),
      settings.arguments,
    )

  def _grade(self, question: Question, answer: str | None) -> "Future[Outcome]":
    return self.context.jobs.submit(
      lambda executor: grading.submit(
        executor, question.task, question.reference, answer
      )
    )

  def step_metrics(
    self, step: int, taken: StepItems, groups: Groups
  ) -> dict[str, float]:
    """Returns means over conversations, accuracy by task, tool and stage."""
    del taken
    trajectories = groups_lib.trajectories(groups.sampled)
    metrics = collect.solve_metrics(
      trajectories, "code_interpreter/solve", self.settings.group_size
    )
    for name in trajectories[0].metrics:
      if name in collect.OUTCOME_METRICS:
        continue
      values = [t.metrics[name] for t in trajectories]
      metrics[f"{name}/code_interpreter/solve/mean"] = float(np.mean(values))
    calls = np.array([t.metrics["calls"] for t in trajectories])
    metrics["calls/code_interpreter/none_fraction"] = float(np.mean(calls == 0))
    tasks = np.array([t.prompt.task.task for t in trajectories])
    correct = np.array([t.metrics["correct"] for t in trajectories])
    for task in sorted({*tasks.tolist()}):
      metrics[f"correct_by_task/{task}"] = float(correct[tasks == task].mean())
    metrics |= self._tool.metrics()
    return metrics | self._stages.metrics(step, self.name)


def _scoring(settings: CodeInterpreterSettings) -> SuggestedScoring:
  """Suggests scoring on questions held out of the run's sources."""
  data = sources.held_out(settings.questions)
  note = ""
  if sources.UNKNOWN in data:
    note = (
      f"replace {sources.UNKNOWN} by questions that this run did not train on"
    )
  variant = _SCORING_VARIANTS[settings.prompt_format]
  return SuggestedScoring(variant, "questions", data, note)


def _turns(policy: Policy, completion: types.Completion) -> list[str]:
  """Returns the texts of model turns and tool outputs, alternating."""
  turns = split_turns(
    completion.token_ids.tolist(), completion.loss_mask.tolist()
  )
  return [policy.tokenizer.decode(ids) for _, ids in turns]


def _trajectory(
  prompt: types.Prompt,
  rollout: collect.GradedCompletion[Outcome],
  turns: Sequence[str],
  parts: dict[str, float],
  group: int,
  reference: str,
) -> types.Trajectory:
  completion = rollout.completion
  num_turns = len(turns[::2])
  num_written = int(completion.loss_mask.sum())
  is_output = np.diff(completion.loss_mask.astype(int)) == -1
  return types.Trajectory(
    prompt=prompt,
    completion=completion,
    reward=sum(parts.values()),
    group_id=("solve", group),
    metrics={
      **collect.outcome_metrics(rollout.grade),
      **parts,
      "num_turns": float(num_turns),
      "calls": float(np.count_nonzero(is_output)),
      "tokens": float(num_written),
      "tokens_per_turn": num_written / num_turns,
      "self_check": float(self_checks.has_self_check(turns)),
    },
    feedback=_feedback(rollout.grade, turns),
    reference=reference,
  )


def _feedback(outcome: Outcome, turns: Sequence[str]) -> str:
  """Returns what a teacher reads about a conversation; "" if it is correct.

  Args:
    outcome: the outcome of the final answer.
    turns: the texts of model turns and tool outputs, alternating.
  """
  answer = code_blocks.find_answer(turns[::2][-1])
  text = collect.feedback(outcome, said=of_answer(outcome, answer).said)
  if not text or len(turns) == 1:
    return text
  output = turns[1::2][-1].removeprefix(code_blocks.OUTPUT_PREFIX).strip()
  return f"{text} The last output of the code was:\n{output}"
