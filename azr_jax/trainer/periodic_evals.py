"""Benchmarks that score the policy before, during and after training."""

import functools
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
from jaxtyping import Array, Key

from azr_jax import types
from azr_jax.evals import items as items_lib
from azr_jax.evals import (
  program_tasks,
  questions,
  registry,
  runner,
)
from azr_jax.evals.benchmark import Benchmark
from azr_jax.evals.items import ItemOptions
from azr_jax.executor import Executor
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.policy import Agent, Policy
from azr_jax.rollout.sampler import Sampler
from azr_jax.run import metrics as metrics_lib
from azr_jax.run.session import Run
from azr_jax.run.step_log import StepLog
from azr_jax.systems.system import System
from azr_jax.tasks.templates import Templates
from azr_jax.trainer.evaluation_settings import PeriodicSettings

# Scores a policy by the system's own evaluation.
Own: TypeAlias = Callable[[Policy], Coroutine[Any, Any, dict[str, float]]]


@runtime_checkable
class AnswersBenchmarks(Protocol):
  """A system that trains an agent which can answer benchmarks."""

  def benchmark_agent(self, benchmark: str) -> Agent | None:
    """Returns the agent for a benchmark; None if the policy answers alone."""


@runtime_checkable
class SolvesPrograms(Protocol):
  """A system whose solver is trained on program tasks."""

  def solver_prompt(self, task_type: str, task: Any) -> str:
    """Returns the prompt with which training asks a program task.

    Args:
      task_type: a type of `tasks/programs/task.py`.
      task: a task of this type.
    """


class PeriodicEvals:
  """The benchmarks of section `evaluation`, with their data."""

  def __init__(
    self,
    benchmarks: Mapping[Benchmark, ItemOptions],
    agents: Mapping[str, Agent],
    own: Own | None,
    executor: Executor,
    sampler: Sampler,
    tokenizer: Tokenizer,
    key: Key[Array, ""],
    *,
    every: int,
    steps: int,
    temperature: float,
  ):
    """Initializes the evaluations; `build` reads their data.

    Args:
      benchmarks: the benchmarks with their items, and how to run each.
      agents: the agent that answers each benchmark, by its name.
      own: the system's own evaluation. None if it has none.
      executor: grades answers.
      sampler: samples from the final policy.
      tokenizer: the model's tokenizer.
      key: the random key of all evaluations. Each benchmark derives its own.
      every: steps between evaluations; 0 never evaluates.
      steps: the last step of the run.
      temperature: divides the logits.
    """
    self._benchmarks, self._agents, self._own = benchmarks, agents, own
    self._executor, self._key = executor, key
    self._sampler, self._tokenizer = sampler, tokenizer
    self._every, self._steps = every, steps
    self._temperature = temperature

  def is_finished(self, run: Run, done: int) -> bool:
    """Returns whether a run has finished all steps and the final scoring.

    Args:
      done: the number of finished steps.
    """
    is_there = (
      bool(self._every)
      and done == self._steps
      and run.is_primary
      and metrics_lib.has_step(run.folder, done + 1)
    )
    return run.any_host("final scores", is_there)[0]

  def run(self, policy: Policy, step: int, run: Run) -> dict[str, float]:
    """Returns the scores of the policy before a step, by metric name.

    Returns {} unless an evaluation is due: before the first step and after
    every `evaluation.every` steps. All evaluations of a benchmark use the same
    items and random key.

    Args:
      policy: the policy of the step.
      step: the next step.
      run: the run, whose hosts share the evaluation.
    """
    if not self._every or (step - 1) % self._every:
      return {}
    return self._score(policy, step - 1, run)

  def finish(
    self, params: types.Params, done: int, run: Run, log: StepLog
  ) -> None:
    """Scores the final policy if all steps are done, and logs the scores.

    Args:
      params: the training parameters.
      done: the number of finished steps.
      log: receives the scores, under the number of the step after the last.
    """
    is_last = done == self._steps
    if not self._every or not is_last or self.is_finished(run, done):
      return
    log.write_last(flush=True)
    with policy_lib.open_policy(
      self._sampler, self._tokenizer, params, self._key
    ) as policy:
      log.write_scores(done + 1, self._score(policy, done, run))

  @functools.partial(jax.profiler.annotate_function, name="evaluate")
  def _score(self, policy: Policy, done: int, run: Run) -> dict[str, float]:
    """Scores the policy after `done` steps."""
    start = time.monotonic()
    scores: dict[str, float] = {}
    for benchmark, options in self._benchmarks.items():
      key = runner.key_of(benchmark, self._key)
      with policy.with_key(key, self._temperature) as eval_policy:
        scores |= runner.run(
          benchmark,
          eval_policy,
          self._executor,
          run.hosts,
          options,
          None,
          self._agents[benchmark.name],
          run.print_status,
        )
    if self._own is not None:
      with policy.with_key(self._key, self._temperature) as eval_policy:
        scores |= eval_policy.run(self._own(eval_policy))
    shown = {
      name: f"{score:.3f}"
      for name, score in scores.items()
      if name.endswith(("/pass@1/unbiased", "/reward"))
    }
    text = "  ".join(f"{name} {score}" for name, score in shown.items())
    when = f"after step {done}" if done else "before step 1"
    run.print_status(f"{when}: {text}")
    metrics = {f"evaluation/{name}": score for name, score in scores.items()}
    return metrics | {"time/evaluation": time.monotonic() - start}


def build(
  evaluation: PeriodicSettings,
  executor: Executor,
  system: System,
  sampler: Sampler,
  tokenizer: Tokenizer,
  key: Key[Array, ""],
  *,
  templates: Templates | None,
  has_own: bool,
  steps: int,
  say: Callable[[str], None],
) -> PeriodicEvals:
  """Builds the evaluations of a run. No step has to read data.

  Args:
    evaluation: names the benchmarks.
    executor: grades answers.
    system: provides agents for benchmarks and prompts of training, if it has
      them.
    sampler: samples from the final policy.
    tokenizer: the model's tokenizer.
    key: the random key of all evaluations.
    templates: the user's prompts. None if benchmarks have built-in ones.
    has_own: whether the system has an evaluation of its own.
    steps: the last step of the run.
    say: prints a status line.

  Raises:
    ValueError: a benchmark needs an agent or a prompt that the system lacks,
      or its data cannot be read.
  """
  benchmarks = _read(evaluation, templates, system, tokenizer, say)
  agents = {one.name: _agent(system, one.name) for one in benchmarks}
  # The questions' prompt offers a Python tool; a system without one would
  # score too low.
  if agents.get(questions.NAME) is policy_lib.single_turn:
    raise ValueError(
      f"config.evaluation.benchmarks={evaluation.benchmarks!r}: expected no "
      f"{questions.NAME!r}, because this system runs no code in answers"
    )

  def own(policy: Policy) -> Coroutine[Any, Any, dict[str, float]]:
    return system.evaluate(policy, evaluation.limit, evaluation.samples)

  return PeriodicEvals(
    benchmarks,
    agents,
    own if has_own else None,
    executor,
    sampler,
    tokenizer,
    key,
    every=evaluation.every,
    steps=steps,
    temperature=evaluation.temperature,
  )


def _agent(system: System, benchmark: str) -> Agent:
  """Returns the system's agent for a benchmark, or a single turn."""
  agent = None
  if isinstance(system, AnswersBenchmarks):
    agent = system.benchmark_agent(benchmark)
  return agent or policy_lib.single_turn


def _read(
  evaluation: PeriodicSettings,
  templates: Templates | None,
  system: System,
  tokenizer: Tokenizer,
  say: Callable[[str], None],
) -> dict[Benchmark, ItemOptions]:
  """Returns the benchmarks with their items, and how to run each.

  Raises:
    ValueError: the data of a benchmark cannot be read, or a benchmark with
      training prompts has no counterpart in training.
  """
  prompt_format = templates or evaluation.prompt_format
  names = evaluation.names
  paths = registry.paths(names, evaluation.data) if names else {}
  solver_prompt = None
  if isinstance(system, SolvesPrograms):
    solver_prompt = system.solver_prompt
  benchmarks: dict[Benchmark, ItemOptions] = {}
  for name in names:
    options = ItemOptions(
      paths.get(name, ""),
      evaluation.limit,
      prompt_format,
      evaluation.samples,
      evaluation.arguments,
      evaluation.prefill,
    )
    benchmark = program_tasks.in_format(
      evaluation.benchmark(name, solver_prompt), prompt_format
    )
    try:
      benchmark = benchmark.with_items(
        items_lib.items_of(benchmark, options, say)
      )
    except ValueError as error:
      first = str(error).splitlines()[0].partition(items_lib.PASS_DATA)[0]
      raise ValueError(
        f"config.evaluation.benchmarks has {name}, but {first}; or give its "
        f"file as --config.evaluation.data={benchmark.name}=PATH, or leave it "
        "out"
      ) from error
    # One prompt per subset is enough to check that the format works.
    items = reversed(items_lib.items_of(benchmark, options))
    firsts = benchmark.with_items(list({i.subset: i for i in items}.values()))
    items_lib.longest_prompt(firsts, options, tokenizer, say)
    benchmarks[benchmark] = options
  return benchmarks
