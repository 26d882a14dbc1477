"""Benchmarks that score the policy during training."""

from azr_jax.evals import mathematics, questions, registry, runner
from azr_jax.evals.benchmark import Benchmark
from azr_jax.executor import Executor
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout.policy import Policy
from azr_jax.run.session import Run
from azr_jax.systems.system import System
from azr_jax.trainer.build import Experiment
from azr_jax.trainer.evaluation_settings import PeriodicSettings


class PeriodicEvals:
  """The benchmarks of section `evaluation`, with their data."""

  def __init__(
    self, experiment: Experiment, executor: Executor, system: System
  ):
    """Reads the data of all benchmarks, so that a step reads none.

    Args:
      experiment: its section `evaluation` names the benchmarks.
      executor: grades answers.
      system: may have agents that answer benchmarks.

    Raises:
      ValueError: a benchmark needs an agent that the system lacks.
    """
    c = experiment.settings.trunk.evaluation
    self._every = c.every
    self._key = experiment.evaluation_key()
    self._executor = executor
    self._benchmarks = _read(c) if c.every else {}
    self._agents = {
      name: system.benchmark_agent(name) or policy_lib.single_turn
      for name in (benchmark.name for benchmark in self._benchmarks)
    }
    # Its prompt offers a tool, without which scores would be lower.
    if self._agents.get(questions.NAME) is policy_lib.single_turn:
      raise ValueError(
        f"config.evaluation.benchmarks={c.benchmarks!r}: expected no "
        f"{questions.NAME!r}, because this system runs no code in answers"
      )

  def run(self, policy: Policy, step: int, run: Run) -> dict[str, float]:
    """Returns the scores of the policy before a step, by metric name.

    There are none unless the step is the first or follows `evaluation.every`
    others. Every evaluation has the same items and the same random keys.

    Args:
      policy: of the step.
      step: the step.
      run: the run, whose hosts share the evaluation.
    """
    if not self._every or (step - 1) % self._every:
      return {}
    scores: dict[str, float] = {}
    for benchmark, settings in self._benchmarks.items():
      scores |= runner.run(
        benchmark,
        policy.with_key(self._key),
        self._executor,
        run.hosts,
        settings,
        None,
        self._agents[benchmark.name],
      )
    shown = {
      name: f"{score:.3f}"
      for name, score in scores.items()
      if name.endswith("/pass@1/unbiased")
    }
    text = "  ".join(f"{name} {score}" for name, score in shown.items())
    run.print_status(f"before step {step}: {text}")
    return {f"evaluation/{name}": score for name, score in scores.items()}


def _read(c: PeriodicSettings) -> dict[Benchmark, runner.RunSettings]:
  """Returns the benchmarks with their items, and how to run each."""
  names = registry.names(c.benchmarks)
  paths = registry.paths(names, c.data)
  benchmarks: dict[Benchmark, runner.RunSettings] = {}
  for name in names:
    settings = runner.RunSettings(
      paths.get(name, ""), c.limit, c.prompt_format, c.samples
    )
    benchmark = mathematics.graded_by(c.mathematics, registry.BENCHMARKS[name])
    items = runner.items_of(benchmark, settings)
    benchmarks[benchmark.with_items(items)] = settings
  return benchmarks
