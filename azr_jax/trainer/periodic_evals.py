"""Benchmarks that score the policy during training."""

from azr_jax.evals import registry, runner
from azr_jax.evals.benchmark import Benchmark
from azr_jax.executor import Executor
from azr_jax.rollout.policy import Policy
from azr_jax.run.session import Run
from azr_jax.trainer.build import Experiment
from azr_jax.trainer.evaluation_settings import PeriodicSettings


class PeriodicEvals:
  """The benchmarks of section `evaluation`, with their data."""

  def __init__(self, experiment: Experiment, executor: Executor):
    """Reads the data of all benchmarks, so that a step reads none."""
    c = experiment.settings.trunk.evaluation
    self._every = c.every
    self._key = experiment.evaluation_key()
    self._executor = executor
    self._benchmarks = _read(c) if c.every else {}

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
    benchmark = registry.BENCHMARKS[name]
    items = runner.items_of(benchmark, settings)
    benchmarks[benchmark.with_items(items)] = settings
  return benchmarks
