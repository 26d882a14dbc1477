"""Builds the agents of section `evaluate` that answer benchmarks.

All of them are Code Interpreter agents (`code_interpreter/agents.py`). The
trainer and the evaluations import them only through this module.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from azr_jax.config.settings import Invalid
from azr_jax.evals import questions, registry
from azr_jax.executor import Executor
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.policy import Agent
from azr_jax.systems.code_interpreter import agents
from azr_jax.systems.code_interpreter.codesteer import (
  CodeSteer,
  CodeSteerSettings,
)
from azr_jax.tasks.templates import PromptFormat, Templates
from azr_jax.tools.python_tool import PythonTool, PythonToolSettings

AGENTS = agents.AGENTS
SteerSettings = CodeSteerSettings


class AgentSettings(Protocol):
  """The agent settings within section `evaluate`.

  Attributes:
    agents: the agents that answer; if empty, the model answers alone.
    prompt_format: the built-in prompt format.
    arguments: extra arguments of the chat template, for `steer`.
    tool: limits of the code interpreter.
  """

  @property
  def agents(self) -> tuple[str, ...]: ...
  @property
  def prompt_format(self) -> str: ...
  @property
  def arguments(self) -> Mapping[str, Any]: ...
  @property
  def tool(self) -> PythonToolSettings: ...
  @property
  def steer(self) -> CodeSteerSettings: ...


def build(
  settings: AgentSettings,
  name: str,
  tokenizer: Tokenizer,
  executor: Executor,
  hosts: Hosts,
  sandbox: ExecutorSettings,
  prompt_format: PromptFormat,
) -> Agent:
  """Builds an agent.

  Args:
    settings: section `evaluate`.
    name: one of `AGENTS`, or `code_interpreter.agents.CONVERSATION`.
    tokenizer: the policy's tokenizer.
    executor: runs the agent's scripts.
    hosts: the processes over which scripts are distributed.
    sandbox: limits and libraries of the executor.
    prompt_format: how the solver of `steer` is asked: a format's name, or a
      user's prompts.

  Raises:
    ValueError: the agent is unknown.
  """
  tool = PythonTool(
    tokenizer,
    executor,
    hosts,
    importable=sandbox.libraries,
    timeout_s=sandbox.timeout_s,
    **vars(settings.tool),
  )
  jobs = SharedJobs(executor, hosts)
  steer = CodeSteer(
    jobs,
    settings.prompt_format,
    tool.libraries,
    settings.arguments,
    prompt_format if isinstance(prompt_format, Templates) else None,
    **vars(settings.steer),
  )
  return agents.make(name, tool, jobs, steer.ask)


def agent_names(
  settings: AgentSettings, benchmarks: Sequence[str]
) -> tuple[str, ...]:
  """Returns the agents that answer; ("",) if the model answers alone.

  Args:
    settings: section `evaluate`.
    benchmarks: names of `evals/registry.py`.

  Raises:
    Invalid: a benchmark needs an agent.
    ValueError: no agent can answer a benchmark.
  """
  if questions.NAME in benchmarks and not settings.agents:
    raise Invalid(
      "config.evaluate.agents",
      f"=(): expected some of {AGENTS} with benchmark "
      f"{questions.NAME!r}, as in configs/evaluate.py:questions",
    )
  for name in benchmarks if settings.agents else ():
    questions.answered_by(
      registry.find(name), settings.agents[0], settings.agents
    )
  return settings.agents or ("",)
