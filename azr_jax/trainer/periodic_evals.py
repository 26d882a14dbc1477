"""Benchmarks that score the policy before, during and after training."""

import functools
import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax

from azr_jax import types
from azr_jax.evals import (
  mathematics,
  program_tasks,
  questions,
  registry,
  runner,
)
from azr_jax.evals.benchmark import Benchmark
from azr_jax.executor import Executor
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.policy import Agent, Policy
from azr_jax.run import metrics as metrics_lib
from azr_jax.run.session import Run
from azr_jax.run.step_log import StepLog
from azr_jax.systems.system import System
from azr_jax.trainer.build import Experiment
from azr_jax.trainer.evaluation_settings import PeriodicSettings


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
    experiment: Experiment,
    executor: Executor,
    system: System,
    say: Callable[[str], None],
  ):
    """Reads the data of all benchmarks, so that no step has to.

    Args:
      experiment: the experiment. Section `evaluation` names the benchmarks.
      executor: grades answers.
      system: provides agents for benchmarks and prompts of training, if it has
        them.
      say: prints a status line.

    Raises:
      ValueError: a benchmark needs an agent or a prompt that the system lacks,
        or its data cannot be read.
    """
    evaluation = experiment.settings.shared.evaluation
    self._every = evaluation.every
    self._key = experiment.evaluation_key()
    self._executor = executor
    self._experiment = experiment
    self._temperature = evaluation.temperature
    self._limit, self._samples = evaluation.limit, evaluation.samples
    self._system = system
    about = system.about(experiment.settings.system_settings)
    self._has_own = about.has_evaluation
    names = evaluation.every and evaluation.benchmarks
    self._benchmarks = (
      _read(evaluation, experiment, system, say) if names else {}
    )
    self._agents = {
      name: _agent(system, name)
      for name in (benchmark.name for benchmark in self._benchmarks)
    }
    # The questions' prompt offers a Python tool; a system without one would
    # score too low.
    if self._agents.get(questions.NAME) is policy_lib.single_turn:
      raise ValueError(
        f"config.evaluation.benchmarks={evaluation.benchmarks!r}: expected no "
        f"{questions.NAME!r}, because this system runs no code in answers"
      )

  def is_finished(self, run: Run, done: int) -> bool:
    """Returns whether a run has finished all steps and the final scoring.

    Args:
      done: the number of finished steps.
    """
    is_there = (
      bool(self._every)
      and done == self._experiment.settings.shared.train.steps
      and run.is_primary
      and metrics_lib.has_step(run.folder, done + 1)
    )
    return run.any_host("final scores", is_there)[0]

  def run(self, policy: Policy, step: int, run: Run) -> dict[str, float]:
    """Returns the scores of the policy before a step, by metric name.

    Returns {} unless an evaluation is due: before the first step and after
    every `evaluation.every` steps. All evaluations use the same items and
    random keys.

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
    is_last = done == self._experiment.settings.shared.train.steps
    if not self._every or not is_last or self.is_finished(run, done):
      return
    log.write_last(flush=True)
    with policy_lib.open_policy(
      self._experiment.sampler,
      self._experiment.source.tokenizer,
      params,
      self._key,
    ) as policy:
      log.write_scores(done + 1, self._score(policy, done, run))

  @functools.partial(jax.profiler.annotate_function, name="evaluate")
  def _score(self, policy: Policy, done: int, run: Run) -> dict[str, float]:
    """Scores the policy after `done` steps."""
    start = time.monotonic()
    scores: dict[str, float] = {}
    for benchmark, options in self._benchmarks.items():
      with policy.with_key(self._key, self._temperature) as asked:
        scores |= runner.run(
          benchmark,
          asked,
          self._executor,
          run.hosts,
          options,
          None,
          self._agents[benchmark.name],
          run.print_status,
        )
    if self._has_own:
      with policy.with_key(self._key, self._temperature) as asked:
        scores |= asked.run(
          self._system.evaluate(asked, self._limit, self._samples)
        )
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


def _agent(system: System, benchmark: str) -> Agent:
  """Returns the system's agent for a benchmark, or a single turn."""
  agent = None
  if isinstance(system, AnswersBenchmarks):
    agent = system.benchmark_agent(benchmark)
  return agent or policy_lib.single_turn


def _read(
  evaluation: PeriodicSettings,
  experiment: Experiment,
  system: System,
  say: Callable[[str], None],
) -> dict[Benchmark, runner.ItemOptions]:
  """Returns the benchmarks with their items, and how to run each.

  Raises:
    ValueError: the data of a benchmark cannot be read, or a benchmark with
      training prompts has no counterpart in training.
  """
  names = registry.names(evaluation.benchmarks)
  paths = registry.paths(names, evaluation.data)
  benchmarks: dict[Benchmark, runner.ItemOptions] = {}
  for name in names:
    options = runner.ItemOptions(
      paths.get(name, ""),
      evaluation.limit,
      evaluation.prompt_format,
      evaluation.samples,
      evaluation.arguments,
      evaluation.prefill,
    )
    benchmark = mathematics.with_grading(
      registry.find(name), **vars(evaluation.mathematics)
    )
    if evaluation.prompt_format == program_tasks.TRAINING:
      benchmark = program_tasks.with_training_prompt(
        benchmark,
        system.solver_prompt if isinstance(system, SolvesPrograms) else None,
      )
    benchmark = program_tasks.in_format(benchmark, evaluation.prompt_format)
    try:
      benchmark = benchmark.with_items(runner.items_of(benchmark, options, say))
    except ValueError as error:
      first = str(error).splitlines()[0].partition(runner.PASS_DATA)[0]
      raise ValueError(
        f"config.evaluation.benchmarks has {name}, but {first}; or give its "
        f"file as --config.evaluation.data={benchmark.name}=PATH, or leave it "
        "out"
      ) from error
    # One prompt per subset is enough to check that the format works.
    items = reversed(runner.items_of(benchmark, options))
    firsts = benchmark.with_items(list({i.subset: i for i in items}.values()))
    tokenizer = experiment.source.tokenizer
    runner.longest_prompt(firsts, options, tokenizer, say)
    benchmarks[benchmark] = options
  return benchmarks
