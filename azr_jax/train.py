"""Reinforcement learning from verifiable rewards: the main loop.

  python -m azr_jax.train --config=configs/azr.py:tiny --workdir=DIR
    [--fail_on_recompile] [--distributed]

The life of a step: collect (sample and grade), advantages, pack, update, log,
save. The same command on the same folder goes on where it was stopped.

Only the next step's sampling waits for an update: its metrics are fetched in a
thread and logged once the update after it has been dispatched, or before a
checkpoint is written.
"""

import contextlib
import dataclasses
import pathlib
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from absl import app, flags, logging
from jax.sharding import Mesh
from ml_collections import config_flags

from azr_jax.cli import host_flags
from azr_jax.evals import registry, runner
from azr_jax.evals.benchmark import Benchmark
from azr_jax.executor import Executor
from azr_jax.learner import advantages, packing, update
from azr_jax.learner.critic import ActorCritic
from azr_jax.learner.learner import Learner
from azr_jax.models import load
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.verification import Verification
from azr_jax.rollout import policy as policy_lib
from azr_jax.rollout import sampler as sampler_lib
from azr_jax.run import checkpoint as checkpoint_lib
from azr_jax.run import compile_counter, step_log, storage, text_monitor
from azr_jax.run import folder as run_folder
from azr_jax.run import metrics as metrics_lib
from azr_jax.trainer import build as parts
from azr_jax.trainer import checks, experiment

# Said by a run that SIGTERM ended; `launch/tpu_vm.py` looks for it.
STOPPED = "stopped before its last step"
# Sampling and benchmark that show what a system's run has learned.
_BENCHMARKS = {
  "azr": ("greedy", "programs_heldout"),
  "countdown": ("countdown_tiny", "countdown"),
  "orz": ("problems_tiny", "problems"),
  "code_interpreter": ("questions_tiny", "questions"),
}
_FULL_BENCHMARKS = {
  "countdown": ("countdown", "countdown"),
  "orz": ("average16", "aime24,math500"),
  "code_interpreter": ("questions", "questions"),
}


def train(
  config: ml_collections.ConfigDict,
  workdir: str,
  fail_on_recompile: bool = False,
) -> None:
  """Trains until `config.train.steps`, resuming what the folder holds.

  Args:
    config: a whole experiment, e.g. `configs.azr.get_config("tiny")`.
    workdir: the run folder, here or as gs://BUCKET/FOLDER; see the README for
      what it will hold.
    fail_on_recompile: stop when a step after the first compiles a program.

  Raises:
    RuntimeError: a step compiled a program, and was not to; or the hosts of
      the run do not agree.
    TimeoutError: a host was waited for in vain; see `hosts.timeout_s`.
    ValueError: a config value is not what its key expects, or the folder
      belongs to a run with another config or in another process.
  """
  checks.check_train(config)
  folder = storage.resolve(workdir)
  hosts = Hosts(config.hosts.timeout_s)
  if hosts.is_primary and hosts.count > 1:
    names = ", ".join(map(hosts.name, range(hosts.count)))
    metrics_lib.say(f"{hosts.count} processes have joined: {names}")
  with run_folder.claim(folder, config, hosts):
    _train(config, folder, hosts, fail_on_recompile)


def _train(  # noqa: PLR0915 - the main loop reads in one piece.
  config: ml_collections.ConfigDict,
  folder: pathlib.Path,
  hosts: Hosts,
  fail_on_recompile: bool,
) -> None:
  say = metrics_lib.say if hosts.is_primary else _say_nothing

  # Build.
  mesh = mesh_lib.make_mesh(config.mesh)
  rules = parts.sharding_rules(config)
  source = load.resolve(config.model.source, config.model.cache_dir)
  model = parts.build_model(config, source.config, mesh)
  learner = parts.build_learner(config, model, mesh)
  state = learner.init(*_start(config, source, learner, mesh, rules))
  ref_params = None
  if config.learner.kl_coef:
    ref_params = jax.tree.map(jnp.copy, state.params)
  sampler = sampler_lib.Sampler(
    model,
    source.tokenizer,
    parts.rollout_mesh(config, mesh),
    rules,
    parts.sampler_settings(config),
  )
  micro_rows = mesh_lib.padded_rows(config.learner.micro_rows, mesh)
  evaluation_key = jax.random.fold_in(jax.random.key(config.seed), 2)
  sample_key = jax.random.fold_in(jax.random.key(config.seed), 1)

  # What one host takes longer over than others shows here, by its name.
  hosts.barrier("the model is loaded")
  checkpoints = checkpoint_lib.Checkpointer(
    folder, config.train.keep_checkpoints
  )
  with (
    _watch_for_sigterm() as preempted,
    parts.build_executor(config) as executor,
    compile_counter.count_compiles() as counter,
    contextlib.ExitStack() as at_exit,
  ):
    # What it reads from disk is built by the first host, if by any.
    verification = Verification(executor, hosts)
    system = hosts.primary_first(
      "system",
      lambda: experiment.build_system(config, verification, executor, hosts),
    )

    benchmarks = hosts.primary_first(
      "benchmarks", lambda: _read_benchmarks(config)
    )

    # Restore.
    done = checkpoints.latest_step() or 0
    hosts.assert_equal("step to go on from", done)
    if done:
      state, system_state = checkpoints.restore(done, learner.abstract)
      system.load_state_dict(system_state)
      say(f"going on after step {done} of the run in {folder}")
    elif (folder / metrics_lib.METRICS).exists():
      say(f"{folder} has no checkpoint yet: starting anew")
    say("compiling the sampler; the first step compiles the rest")
    sampler.warm_up(sampler.compute_params(state.params))
    hosts.barrier("the sampler is compiled")
    log = step_log.StepLog(folder, done + 1, config.train, hosts)
    monitor = text_monitor.Monitor(
      folder,
      hosts.is_primary,
      text_monitor.rules() if config.train.flag_texts else {},
      text_monitor.load_classifier(config.train.flag_classifier),
    )
    at_exit.callback(log.close)

    step = done
    for step in range(done + 1, config.train.steps + 1):
      # Collect.
      # Once the update is done: slots must not lie beside what it needs.
      params = jax.block_until_ready(sampler.compute_params(state.params))
      policy = policy_lib.Policy(
        sampler,
        source.tokenizer,
        params,
        jax.random.fold_in(sample_key, step),
      )
      scores = {}
      if _is_evaluated(config, step):
        # Not kept: it holds the sampler's copy of the weights.
        scores = _evaluate(
          benchmarks,
          dataclasses.replace(policy, key=evaluation_key),
          executor,
          hosts,
        )
        say(f"before step {step}: {_main_scores(scores)}")
      start = time.monotonic()
      collected = system.collect(policy, step)
      collected.metrics.update(scores)
      # Nor must the sampler's copy of the weights.
      policy.params = params = None
      collected_at = time.monotonic()
      collected.metrics["time/sample"] = policy.sample_s
      collected.metrics.update(monitor.look(step, collected.trajectories))

      # Advantages.
      trajectories = collected.trajectories
      values = advantages.estimate(
        config.learner.estimator,
        [t.reward for t in trajectories],
        [t.group_id for t in trajectories],
        [len(t.completion.token_ids) for t in trajectories],
        config.learner.normalize_advantages,
      )

      # Pack.
      batch = packing.pack(
        [
          packing.from_trajectory(trajectory, float(advantage))
          for trajectory, advantage in zip(trajectories, values, strict=True)
        ],
        row_length=config.learner.row_length,
        rows_multiple=micro_rows * config.learner.max_micro_batches,
        aggregation=config.learner.aggregation,
        regularizer_aggregation=config.learner.regularizer_aggregation,
        rng=np.random.default_rng((config.seed, step, 1)),
      )
      batch = update.to_micro_batches(batch, micro_rows)

      # Update.
      hosts.assert_equal_arrays(
        f"batch of step {step}", *jax.tree.leaves(batch)
      )
      batch = update.place(batch, mesh)
      learner_metrics: update.Metrics = {}
      for _ in range(config.learner.epochs):
        state, learner_metrics = learner.update(state, batch, ref_params)

      # Log.
      names = counter.take()
      log.write_last()
      if fail_on_recompile and names and step > done + 1:
        raise RuntimeError(
          f"step {step} compiled {names}; expected every program to be "
          f"compiled by the end of step {done + 1}"
        )
      log.add(
        step,
        collected,
        step_log.fetch(learner_metrics),
        len(names),
        start,
        collected_at,
      )

      # Save.
      last = step == config.train.steps or hosts.any(
        f"end of step {step}", preempted.is_set()
      )
      if last or step % config.train.save_every == 0:
        log.write_last(flush=True)
        checkpoints.save(step, state, system.state_dict())
      if last:
        break
  checkpoints.close()
  say(_ending(config, folder, step))


def _ending(
  config: ml_collections.ConfigDict, folder: pathlib.Path, step: int
) -> str:
  """The last words of a run."""
  stopped = f"{STOPPED}: the same command goes on\n"
  return (
    f"{stopped if step < config.train.steps else ''}step {step} is saved in "
    f"{folder}; to score it: {_scoring(config, folder)}"
  )


def _scoring(config: ml_collections.ConfigDict, folder: pathlib.Path) -> str:
  """The command that scores a run; scores are kept on this machine."""
  local = not storage.is_object_store(folder)
  scores = folder if local else pathlib.Path("/tmp") / folder.name
  variant, benchmark = _BENCHMARKS[config.system]
  if config.system != "azr" and config[config.system].prompt_style == "full":
    variant, benchmark = _FULL_BENCHMARKS[config.system]
  command = [
    "python -m azr_jax.evaluate",
    f"--config=configs/evaluate.py:{variant}",
    f"--benchmark={benchmark}",
    f"--model={folder}",
    f"--workdir={scores}_scores",
  ]
  data = ""
  if benchmark == "problems":
    data = config.evaluation.data
  elif benchmark == "questions":
    data = "+".join(config.code_interpreter.questions)
  if data:
    command.insert(3, f"--data={shlex.quote(data)}")
  return " ".join(command)


def _start(
  config: ml_collections.ConfigDict,
  source: load.ModelSource,
  learner: Learner,
  mesh: Mesh,
  rules: dict[str, str | None],
) -> tuple[Any, ...]:
  """What to begin with: the model's parameters, or a run's, with its critic's.

  Raises:
    ValueError: the run has no checkpoint.
  """
  if not config.train.start_from:
    return (source.load_params(mesh, rules),)
  folder = storage.resolve(config.train.start_from)
  checkpoints = checkpoint_lib.Checkpointer(folder, keep=None)
  step = checkpoints.latest_step()
  if step is None:
    raise ValueError(
      f"config.train.start_from={str(folder)!r}: expected a run's folder with "
      "a finished checkpoint"
    )
  state, _ = checkpoints.restore(step, learner.abstract)
  checkpoints.close()
  if isinstance(state, ActorCritic):
    return state.params, state.critic.params
  return (state.params,)


def _is_evaluated(config: ml_collections.ConfigDict, step: int) -> bool:
  every = config.evaluation.every
  return every > 0 and (step - 1) % every == 0


def _read_benchmarks(
  config: ml_collections.ConfigDict,
) -> dict[Benchmark, runner.RunSettings]:
  """The benchmarks to run in training, with their data.

  It is read once: a source that cannot be reached in the middle of the night
  must not end a run.
  """
  c = config.evaluation
  names = registry.names(c.benchmarks) if c.every else ()
  paths = registry.paths(names, c.data) if names else {}
  found: dict[Benchmark, runner.RunSettings] = {}
  for name in names:
    settings = runner.RunSettings(
      paths.get(name, ""), c.limit, c.prompt_style, c.samples
    )
    benchmark = registry.BENCHMARKS[name]
    items = runner.items_of(benchmark, settings)
    found[benchmark.holding(items)] = settings
  return found


def _evaluate(
  benchmarks: Mapping[Benchmark, runner.RunSettings],
  policy: policy_lib.Policy,
  executor: Executor,
  hosts: Hosts,
) -> dict[str, float]:
  """Scores of the policy that a step began with, each time the same items."""
  found: dict[str, float] = {}
  for benchmark, settings in benchmarks.items():
    policy.calls = 0  # The same draws, whatever was asked before.
    found |= runner.run(benchmark, policy, executor, hosts, settings, None)
  return {f"evaluation/{name}": score for name, score in found.items()}


def _main_scores(scores: dict[str, float]) -> str:
  """The scores of an evaluation that are worth a line."""
  shown = {
    name.removeprefix("evaluation/"): f"{score:.3f}"
    for name, score in scores.items()
    if name.endswith("/pass@1/unbiased")
  }
  return "  ".join(f"{name} {score}" for name, score in shown.items())


def _say_nothing(text: str) -> None:
  """What hosts but the first have to say."""


@contextlib.contextmanager
def _watch_for_sigterm() -> Iterator[threading.Event]:
  """An event that SIGTERM (a preemption) sets, while the context lasts."""
  received = threading.Event()
  if threading.current_thread() is not threading.main_thread():
    yield received  # Only the main thread may handle signals.
    return
  previous = signal.signal(signal.SIGTERM, lambda *_: received.set())
  try:
    yield received
  finally:
    signal.signal(signal.SIGTERM, previous)


def run() -> None:
  """The console script."""
  config = config_flags.DEFINE_config_file("config", None, "The experiment.")
  workdir = flags.DEFINE_string(
    "workdir", None, "The run folder.", required=True
  )
  fail_on_recompile = flags.DEFINE_bool(
    "fail_on_recompile", False, "Stop when a later step compiles a program."
  )
  join = host_flags.define()
  flags.mark_flag_as_required("config")

  def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    chosen = config.value  # Whether it can be read, before others wait.
    join()
    train(chosen, workdir.value, fail_on_recompile.value)

  app.run(main)


if __name__ == "__main__":
  run()
