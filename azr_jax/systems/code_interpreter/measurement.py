"""Runs agents over questions; an interrupted pass resumes.

`azr_jax.potential`, `azr_jax.trajectories` and the online curricula of training
(`online_potential.py`) share this code and its record format.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from azr_jax.curricula.improvement_potential import PassRate
from azr_jax.evals import questions as benchmark_lib
from azr_jax.evals import record_files, runner
from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.evals.items import ItemOptions
from azr_jax.executor import Executor
from azr_jax.parallel.hosts import Hosts
from azr_jax.rollout.policy import Agent, Policy
from azr_jax.systems.code_interpreter import agents as agents_lib
from azr_jax.tasks.questions import prompts
from azr_jax.tasks.questions.question import Question
from azr_jax.tasks.templates import PromptFormat

# The paper only says that there are five temperatures.
TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)


@dataclasses.dataclass(frozen=True)
class EvalPass:
  """One pass over all questions.

  Attributes:
    name: the name of the pass's record file.
    agent: one of `agents.AGENTS`, or `agents.CONVERSATION`.
    solution_style: the style of the prompts, one of `prompts.SOLUTION_STYLES`.
    temperature: the sampling temperature.
    samples: the number of responses per question.
  """

  name: str
  agent: str
  solution_style: str
  temperature: float
  samples: int


def potential_eval_passes(
  agents: Sequence[str], temperatures: Sequence[float]
) -> list[EvalPass]:
  """Returns one pass per agent and temperature (R1-CI, section 4.3)."""
  return [
    EvalPass(
      f"{agent}_{temperature:g}",
      agent,
      prompts.solution_style_of(agent),
      temperature,
      1,
    )
    for temperature in temperatures
    for agent in agents
  ]


def run(
  eval_pass: EvalPass,
  questions: Sequence[Question],
  policy: Policy,
  executor: Executor,
  hosts: Hosts,
  prompt_format: PromptFormat,
  path: pathlib.Path,
  agent: Agent,
  template_arguments: Mapping[str, Any],
  say: Callable[[str], None],
) -> None:
  """Answers and grades the questions without a record, and records the results.

  Args:
    eval_pass: the pass; its temperature must be the policy's.
    questions: the questions of the pass.
    policy: answers the questions. Do not reuse its key after the pass.
    executor: grades the answers.
    hosts: the hosts of the run. Either all of them see the file, or none does.
    prompt_format: one of `prompts.PROMPT_FORMATS`, or a user's prompts.
    path: the record file.
    agent: the agent of `eval_pass.agent`.
    template_arguments: extra arguments of the chat template, by name.
    say: prints a status line.
  """
  items = [benchmark_lib.item(question) for question in questions]
  options = ItemOptions(
    "", 0, prompt_format, eval_pass.samples, template_arguments
  )
  benchmark = _benchmark(eval_pass, items)
  runner.run(benchmark, policy, executor, hosts, options, path, agent, say)


def rates(
  questions: Sequence[Question], paths: Iterable[pathlib.Path]
) -> list[PassRate]:
  """Returns the pass rate of each question over complete record files.

  Questions without a record were too long to ask, and count as wrong.
  """
  correct = dict.fromkeys((question.id for question in questions), 0)
  samples = 0
  for path in paths:
    graded = 1
    for record in record_files.read(path):
      correct[record["id"]] += sum(record["correct"])
      graded = len(record["correct"])
    samples += graded
  return [PassRate(correct[question.id], samples) for question in questions]


def _benchmark(eval_pass: EvalPass, items: list[Item]) -> Benchmark:
  """Returns a benchmark of the items, with the prompts and grader of a pass."""

  def grade(executor: Executor, item: Item, text: str) -> "Future[ItemOutcome]":
    if eval_pass.agent == agents_lib.CONVERSATION:
      text = agents_lib.read_conversation(text)[-1]
    return benchmark_lib.grade(executor, item, text)

  return Benchmark(
    eval_pass.name,
    "",
    lambda data: items,
    "words",
    grade,
    prompt=lambda item, prompt_format, chat: prompts.ask(
      item.question, eval_pass.solution_style, prompt_format, chat
    ),
    opens_data=True,
    limit_per_subset=True,
  )
